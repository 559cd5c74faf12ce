"""Train on a slide of the paper's size, end to end: stages, engine, MLflow; validated and tested on the demo's slides.

In a folder of its own that links to the project's MLflow store, so that the run stands beside the others and nothing of
the project's own results is touched.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from gigaslide import machine, provenance
from gigaslide.benchmarks import large_slide
from gigaslide.benchmarks.scratch import train_and_evaluate
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.errors import UsageError
from gigaslide.files import write_text
from gigaslide.slides.store import INDEX_FILE

_STORES = Path("data/stores")
_MLRUNS = Path("mlruns")
# Few steps, each with the gradient of two hundred times as many pixels as a demo slide's: large ones, hardly averaged.
_SETTINGS = {"train.learning_rate": 0.04, "train.warmup_steps": 3, "train.average_momentum": 0.5}


def run(
    settings: Settings, steps: int, budget_gb: float | None, json_file: Path, store: Path = large_slide.STORE
) -> None:
    """Train `steps` steps on the large slide, evaluate on the split `test` of the demo, and write the figures.

    Raises:
        UsageError: the demo is not prepared, or there is no large slide.
        GigaslideError: a stage failed.
    """
    if not (_STORES / INDEX_FILE).exists():
        raise UsageError(f"there are no prepared stores in {_STORES}: run `make repro` first")
    if not store.exists():
        raise UsageError(f"there is no {store}: `gigaslide bench steps --make-slide` makes it")
    changes: dict[str, Any] = {
        **_SETTINGS,
        "train.epochs": steps,  # one slide: a step is an epoch
        "train.patience_epochs": steps,
        "tracking.experiment": "gigapixel",
        "tracking.model_name": "gigapixel",
    }
    if budget_gb is not None:
        changes["memory.budget_gb"] = budget_gb
    changed = settings.replaced(changes)
    with tempfile.TemporaryDirectory(prefix="gigaslide-training-") as name:
        folder = Path(name)
        _link_data(folder, store.resolve())
        figures = _figures(*train_and_evaluate(folder, changed, show=True))
    write_text(json_file, json.dumps(figures, indent=2) + "\n")
    console.print(
        "{steps} steps, {plan}: {step_time_s:.1f} s a step, peak {peak_memory_gb:.2f} GB, validation Dice "
        "{validation_dice:.4f}, test Dice {test_dice_mean:.4f}".format(**figures)
    )


def _link_data(folder: Path, store: Path) -> None:
    """Give `folder` the large slide to train on, the demo's other slides, and the project's MLflow store."""
    stores = folder / _STORES
    stores.mkdir(parents=True)
    entries = json.loads((_STORES / INDEX_FILE).read_text(encoding="utf-8"))["slides"]
    others = [
        entry | {"store": str((_STORES / entry["store"]).resolve())} for entry in entries if entry["split"] != "train"
    ]
    index = {"slides": [{"name": store.stem, "split": "train", "store": str(store)}, *others]}
    (stores / INDEX_FILE).write_text(json.dumps(index), encoding="utf-8")
    _MLRUNS.mkdir(exist_ok=True)
    (folder / _MLRUNS).symlink_to(_MLRUNS.resolve())


def _figures(summary: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    kept = ("steps", "plan", "step_time_s", "megapixels_per_step", "peak_memory_gb", "predicted_peak_gb", "budget_gb")
    return {key: summary[key] for key in (*kept, "train_time_s", "validation_dice")} | {
        "test_dice_mean": metrics["dice_mean"],
        "test_dice": metrics["slides"],
        "machine": machine.describe_machine(),
        "git_commit": provenance.git_commit(),
    }
