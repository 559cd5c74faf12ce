"""Predicted beside measured memory, over networks, areas and plans.

Every case is a process of its own that makes a step and measures its peak; the prediction is the one that it went by.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from gigaslide import machine, provenance
from gigaslide.benchmarks import child
from gigaslide.benchmarks.child import Measure
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.errors import GigaslideError
from gigaslide.files import write_text
from gigaslide.machine import usable_threads
from gigaslide.memory import plan_file, planner
from gigaslide.memory.planner import Candidate
from gigaslide.network.describe import describe

# whole; auto; the fastest plan with maps on disk; the fastest with the largest tiles; auto under a budget in GB
Kind = Literal["whole", "auto", "disk", "large tiles"] | float
_LIMIT_S = 120.0
_SMALL, _MIDDLE, _LARGE = (2048, 2048), (4096, 4096), (6144, 8192)


@dataclass(frozen=True)
class Case:
    """A network, an area (y, x) in pixels and a kind of plan."""

    kernel_size: int
    stride: int
    shape: tuple[int, int]
    kind: Kind


# Every plan with kernels from 3 to 14 and strides from 2 to 8, every area with the default network. In the whole-image
# plan, kernels of 15 and more leave TensorFlow's fast path (model.py), so that only streamed plans have them here.
GRID = (
    *(Case(11, 4, shape, kind) for shape in (_SMALL, _MIDDLE, _LARGE) for kind in ("whole", "auto", "disk")),
    Case(11, 4, _MIDDLE, "large tiles"),
    Case(11, 4, _LARGE, "large tiles"),
    Case(11, 4, _LARGE, 1.2),
    *(Case(3, 2, _SMALL, kind) for kind in ("whole", "auto", "disk")),
    Case(3, 2, _MIDDLE, "auto"),
    Case(3, 2, _MIDDLE, 1.2),
    *(Case(5, 3, _MIDDLE, kind) for kind in ("whole", "auto", "large tiles")),
    *(Case(7, 4, _MIDDLE, kind) for kind in ("whole", "auto", "disk")),
    *(Case(9, 8, _MIDDLE, kind) for kind in ("whole", "auto")),
    Case(9, 8, _LARGE, "auto"),
    *(Case(13, 3, _SMALL, kind) for kind in ("whole", "auto")),
    *(Case(14, 8, _MIDDLE, kind) for kind in ("whole", "auto", "large tiles")),
    Case(17, 4, _MIDDLE, "auto"),
    Case(21, 8, _MIDDLE, "disk"),
)


def run(
    settings: Settings, json_file: Path, cases: Sequence[Case] = GRID, measure: Measure = child.measure
) -> dict[str, Any]:
    """Measure every case, print a table, write and return the results.

    Raises:
        GigaslideError: a case failed; the others are measured all the same.
    """
    runs, failures = [], []
    with tempfile.TemporaryDirectory(prefix="gigaslide-plans-") as folder:
        for number, case in enumerate(cases, start=1):
            try:
                figures = measure(_arguments(settings, case, Path(folder)), _LIMIT_S)
            except GigaslideError as error:
                failures.append(f"{_describe(case)}: {error}")
                console.print(f"{number}/{len(cases)}  {failures[-1]}", markup=False)
                continue
            runs.append(_row(case, figures))
            console.print(f"{number}/{len(cases)}  {_describe(case)}: {runs[-1]['ratio']:.2f}", markup=False)
    results = {
        "git_commit": provenance.git_commit(),
        "machine": machine.describe_machine(),
        "figures": _figures(runs) if runs else {},
        "runs": runs,
        "failures": failures,
    }
    write_text(json_file, json.dumps(results, indent=2) + "\n")
    if runs:
        console.print(_table(runs))
        console.print("\n".join(_summary(runs)), markup=False)
    if failures:
        raise GigaslideError(f"{len(failures)} of {len(cases)} measurements failed, the first one with {failures[0]}")
    return results


def _arguments(settings: Settings, case: Case, folder: Path) -> list[str]:
    """Return the arguments of `gigaslide bench step`; a plan that they need is written into `folder`."""
    height, width = case.shape
    named = {"height": height, "width": width, "kernel": case.kernel_size, "stride": case.stride, "steps": 1}
    arguments = [f"--{name}={value}" for name, value in named.items()] + ["--no-product"]
    if case.kind in ("whole", "auto"):
        return [*arguments, f"--plan={case.kind}"]
    if isinstance(case.kind, float):
        return [*arguments, "--plan=auto", f"--budget-gb={case.kind}"]
    plan = folder / "plan.json"
    write_text(plan, json.dumps(plan_file.as_json(_candidate(settings, case), case.shape, 0)))
    return [*arguments, f"--plan={plan}"]


def _candidate(settings: Settings, case: Case) -> Candidate:
    """Return the plan of a case that `auto` does not choose by itself."""
    network = settings.replaced({"network.kernel_size": case.kernel_size, "network.stride": case.stride}).network
    found = planner.candidates(describe(network), case.shape, usable_threads())
    if case.kind == "disk":
        return next(candidate for candidate in found if candidate.plan.storage == "disk")
    same_cuts = [candidate for candidate in found if candidate.plan.cuts == found[0].plan.cuts]
    return max(same_cuts, key=lambda candidate: candidate.prediction.tiles_bytes)


def _row(case: Case, figures: dict[str, Any]) -> dict[str, Any]:
    names = ["kernel_size", "stride", "height", "width", "plan", "storage", "workers", "cuts", "tiles_px", "idle_bytes"]
    names += ["predicted_bytes", "predicted_peak_bytes", "peak_bytes", "step_s", "predicted_step_s"]
    row = {"kind": _kind(case)} | {name: figures[name] for name in names}
    predicted, measured, idle = (row[name] for name in ("predicted_peak_bytes", "peak_bytes", "idle_bytes"))
    # The second one without what the process holds anyway, which hides small steps.
    return row | {"ratio": predicted / measured, "ratio_above_idle": (predicted - idle) / max(measured - idle, 1)}


def _figures(runs: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = sorted(run["ratio"] for run in runs)
    return {
        "cases": len(runs),
        "ratio_lowest": ratios[0],
        "ratio_median": ratios[len(ratios) // 2],
        "ratio_highest": ratios[-1],
    }


def _table(runs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("kernel", "stride", "area", "plan", "predicted GB", "measured GB", "ratio", "above idle"):
        table.add_column(name, justify="left" if name == "plan" else "right", no_wrap=True)
    for run in runs:
        area = f"{run['height']} x {run['width']}"
        sizes = (f"{run[name] / 1e9:.2f}" for name in ("predicted_peak_bytes", "peak_bytes"))
        ratios = (f"{run[name]:.2f}" for name in ("ratio", "ratio_above_idle"))
        table.add_row(str(run["kernel_size"]), str(run["stride"]), area, run["kind"], *sizes, *ratios)
    return table


def _summary(runs: list[dict[str, Any]]) -> Iterator[str]:
    highest, lowest = (chosen(runs, key=lambda run: run["ratio"]) for chosen in (max, min))
    for what, run in (("most over", highest), ("most under", lowest)):
        yield (
            f"{what}: predicted {run['predicted_peak_bytes'] / 1e9:.2f} GB, measured {run['peak_bytes'] / 1e9:.2f} GB, "
            f"ratio {run['ratio']:.2f}: kernel {run['kernel_size']}, stride {run['stride']}, "
            f"{run['height']} x {run['width']} px, plan {run['plan']}"
        )


def _kind(case: Case) -> str:
    return f"auto in {case.kind} GB" if isinstance(case.kind, float) else case.kind


def _describe(case: Case) -> str:
    return f"kernel {case.kernel_size}, stride {case.stride}, {case.shape[0]} x {case.shape[1]} px, {_kind(case)}"
