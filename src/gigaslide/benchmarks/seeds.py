"""Train once per seed: how many converge, how far they spread, how bad the worst is.

Every seed is a process of its own (memory is not given back inside one), in a scratch folder that links to the prepared
stores, so that nothing of the project's own run is touched. Seeds that are in the file already are not trained again.
"""

import json
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gigaslide import machine, provenance
from gigaslide.benchmarks.scratch import train_and_evaluate
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.files import write_text

# A network that calls everything tissue, or nothing, is far below this on the demo cohort (its test slides are less
# than half tissue, so the first has a Dice of about 0.5); one that has learned the task is far above.
CONVERGED_DICE = 0.9


def run(settings: Settings, count: int, jobs: int, json_file: Path) -> None:
    """Train with the seeds 0 .. count - 1, `jobs` at a time, and write their figures to `json_file`.

    Raises:
        UsageError: nothing is prepared.
        GigaslideError: a training failed.
    """
    stores = Path("data/stores").resolve()
    if not (stores / "index.json").exists():
        raise UsageError("there are no prepared stores in data/stores: run `make repro` first")
    inputs = provenance.fingerprint(
        settings.model_dump(exclude={"report", "tracking", "sweep"}), (stores / "index.json").read_text()
    )
    rows = _known(json_file, inputs)
    left = [seed for seed in range(count) if all(row["seed"] != seed for row in rows)]
    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(lambda seed: _train(settings, seed, stores), left):
            rows.append(row)
            write_text(json_file, json.dumps(_results(rows, inputs), indent=2) + "\n")
            console.print(
                "seed {seed}: validation Dice {validation_dice:.4f}, test Dice {test_dice_mean:.4f}".format(**row)
            )
    figures = _results(rows, inputs)["figures"]
    console.print(
        f"{figures['converged']} of {figures['seeds']} seeds converged; test Dice {figures['test_dice_mean']:.4f} "
        f"+- {figures['test_dice_sd']:.4f}, worst {figures['test_dice_worst']:.4f}"
    )


def _known(json_file: Path, inputs: str) -> list[dict[str, Any]]:
    if not json_file.exists():
        return []
    known = json.loads(json_file.read_text(encoding="utf-8"))
    return list(known["runs"]) if known["inputs"] == inputs else []


def _train(settings: Settings, seed: int, stores: Path) -> dict[str, Any]:
    """Run the stages train and evaluate in a folder of their own; return their figures."""
    settings = settings.replaced({"train.seed": seed})
    with tempfile.TemporaryDirectory(prefix="gigaslide-seed-") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        (folder / "data" / "stores").symlink_to(stores)
        try:
            summary, metrics = train_and_evaluate(folder, settings, show=False)
        except GigaslideError as error:
            raise GigaslideError(f"seed {seed}: {error}") from None
    return {
        "seed": seed,
        "validation_dice": summary["validation_dice"],
        "test_dice_mean": metrics["dice_mean"],
        "test_dice_worst": metrics["dice_worst"],
        "test_dice": metrics["slides"],
        "best_epoch": summary["best_epoch"],
        "peak_memory_gb": summary["peak_memory_gb"],
    }


def _results(rows: list[dict[str, Any]], inputs: str) -> dict[str, Any]:
    dice = [row["test_dice_mean"] for row in rows]
    return {
        "figures": {
            "seeds": len(rows),
            "converged": sum(row["validation_dice"] >= CONVERGED_DICE for row in rows),
            "test_dice_mean": statistics.fmean(dice),
            "test_dice_sd": statistics.stdev(dice) if len(dice) > 1 else 0.0,
            "test_dice_worst": min(dice),
        },
        "runs": rows,
        "machine": machine.describe_machine(),
        "git_commit": provenance.git_commit(),
        "inputs": inputs,
    }
