"""Time and memory of a step against the size of the area: whole images, and streamed under a budget.

All areas have the shape of the paper's, 1 to 4. Every run is a process of its own, one after the other. A run that is
in the results already, from the same code, settings, slide and machine, is not repeated.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.table import Table

from gigaslide import machine, provenance
from gigaslide.benchmarks import child, picture
from gigaslide.benchmarks.child import Measure
from gigaslide.benchmarks.large_slide import SHAPE, STORE
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.errors import GigaslideError
from gigaslide.files import atomic_path, write_text
from gigaslide.machine import usable_threads
from gigaslide.memory import planner
from gigaslide.memory.planner import DoesNotFit
from gigaslide.network.describe import describe
from gigaslide.slides.store import open_store
from gigaslide.streaming.plan import WHOLE, whole_plan

# 4, 16, 64, 256 megapixels, and the paper's 1024.
SIZES = (*((1000 * part, 4000 * part) for part in (1, 2, 4, 8)), SHAPE)
# The square that the largest is compared with: whole, and streamed, in the same run.
SQUARE = (4096, 4096)
BUDGETS_GB = (2.0, 4.0, 8.0)
_CURVE_BUDGET_GB = 4.0  # of the areas smaller than the largest
_BYTES_PER_GB = 1e9
_LIMIT_S = 3600.0
# Of the steps that are timed, by megapixels: a large one takes minutes, and its noise is small.
_STEPS = ((32, 5), (300, 3), (float("inf"), 1))


@dataclass(frozen=True)
class Case:
    """A step that is measured: an area (y, x) in pixels, and how it is visited."""

    shape: tuple[int, int]
    plan: str  # whole, or auto
    budget_gb: float | None  # None: whatever is free

    @property
    def name(self) -> str:
        """The case for people."""
        budget = "" if self.budget_gb is None else f" in {self.budget_gb:g} GB"
        return f"{self.shape[0]} x {self.shape[1]} px, {self.plan}{budget}"


def cases(sizes: Sequence[tuple[int, int]] = SIZES) -> list[Case]:
    """Return what is measured: every size whole and streamed in the middle budget, the largest in every budget.

    The largest is never held whole: it has tensors of more than 2^31 values, which TensorFlow cannot index.
    """
    found = [Case(shape, WHOLE, None) for shape in sizes[:-1]]
    found += [Case(shape, "auto", _CURVE_BUDGET_GB) for shape in sizes[:-1]]
    if SHAPE in sizes:
        found += [Case(SQUARE, WHOLE, None), Case(SQUARE, "auto", _CURVE_BUDGET_GB)]
    return found + [Case(sizes[-1], "auto", budget_gb) for budget_gb in BUDGETS_GB]


def run(
    settings: Settings,
    json_file: Path,
    picture_file: Path,
    store: Path = STORE,
    found: Sequence[Case] | None = None,
    measure: Measure = child.measure,
) -> dict[str, Any]:
    """Measure the cases that are not in `json_file` yet; write it after each, and the picture at the end.

    Args:
        settings: the network, and how it is trained.
        json_file: the results.
        picture_file: time and memory against pixels, PNG.
        store: of a slide that the areas are parts of; if it is not there, they are made up.
        found: the cases; None: `cases()`.
        measure: makes one measurement.

    Raises:
        GigaslideError: a measurement failed; the others are made all the same.
    """
    found = cases() if found is None else found
    slide = store if store.exists() else None
    if slide is None:
        console.print(f"there is no {store} (`gigaslide bench steps --make-slide` makes it): areas are made up")
    known = _known(json_file)
    runs: list[dict[str, Any]] = []
    for case in found:
        fingerprint = _fingerprint(settings, case, slide)
        row = next((row for row in known if row["fingerprint"] == fingerprint and "step_s" in row), None)
        if row is None:
            row = {"name": case.name, "fingerprint": fingerprint}
            row |= {"budget_gb": case.budget_gb} | _measured(settings, case, slide, measure)
            console.print(_line(row), markup=False)
        runs.append(row)
        write_text(json_file, json.dumps(_results(runs, known, found), indent=2) + "\n")
    console.print(_table(runs))
    if any("step_s" in row for row in runs):
        with atomic_path(picture_file) as temporary:
            temporary.write_bytes(picture.draw(_of_one_shape(runs), machine.describe_machine(), _CURVE_BUDGET_GB))
    failed = [row for row in runs if "error" in row]
    if failed:
        raise GigaslideError(
            f"{len(failed)} of {len(runs)} measurements failed, the first one, {failed[0]['name']}, with "
            f"{failed[0]['error']}"
        )
    return _results(runs, known, found)


def _of_one_shape(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the square: next to an area of nearly its size it would only be in the way."""
    return [row for row in runs if (row.get("height"), row.get("width")) != SQUARE]


def _known(json_file: Path) -> list[dict[str, Any]]:
    if not json_file.exists():
        return []
    return list(json.loads(json_file.read_text(encoding="utf-8"))["runs"])


def _fingerprint(settings: Settings, case: Case, slide: Path | None) -> str:
    """Return a hash of all that a run's figures follow from."""
    about = None if slide is None else open_store(slide).attributes["shape_px"]
    return provenance.fingerprint(
        case.name,
        settings.model_dump(mode="json", include={"network", "train", "memory"}),
        about,
        machine.describe_machine(),
    )


def _measured(settings: Settings, case: Case, slide: Path | None, measure: Measure) -> dict[str, Any]:
    """Return the figures of a case, or why there are none: `skipped` if it does not fit, else `error`."""
    reason = _does_not_fit(settings, case)
    if reason:
        return {"skipped": reason}
    height, width = case.shape
    steps = next(steps for most, steps in _STEPS if height * width / 1e6 <= most)
    arguments = [f"--height={height}", f"--width={width}", f"--plan={case.plan}", f"--steps={steps}"]
    if case.budget_gb is not None:
        arguments.append(f"--budget-gb={case.budget_gb}")
    if slide is not None:
        arguments.append(f"--slide={slide}")
    try:
        figures = measure(arguments, _LIMIT_S)
    except GigaslideError as error:
        return {"error": str(error)}
    # The same for all runs of a file.
    figures.pop("machine", None)
    return figures


def _does_not_fit(settings: Settings, case: Case) -> str | None:
    """Return the sentence that says so, or None; asked before TensorFlow is started for it."""
    free = float(psutil.virtual_memory().available)
    budget_bytes = free if case.budget_gb is None else min(free, case.budget_gb * _BYTES_PER_GB)
    graph, cores = describe(settings.network), usable_threads()
    if case.plan == WHOLE:
        needed = planner.candidate(graph, case.shape, whole_plan(), cores).peak_bytes
        if needed <= budget_bytes:
            return None
        return f"predicted {needed / _BYTES_PER_GB:.1f} GB, and {budget_bytes / _BYTES_PER_GB:.1f} GB are free"
    try:
        planner.choose(planner.candidates(graph, case.shape, cores), case.shape, budget_bytes)
    except DoesNotFit as error:
        return str(error)
    return None


def _results(runs: list[dict[str, Any]], known: list[dict[str, Any]], found: Sequence[Case]) -> dict[str, Any]:
    """Return what the file holds: the runs so far, and older ones of the cases still to come."""
    left = {case.name for case in found} - {row["name"] for row in runs}
    return {
        "git_commit": provenance.git_commit(),
        "machine": machine.describe_machine(),
        "paper": picture.PAPER,
        "runs": runs + [row for row in known if row["name"] in left],
    }


def _line(row: dict[str, Any]) -> str:
    if "step_s" not in row:
        return f"{row['name']}: {row.get('skipped') or row['error']}"
    return (
        "{name}: {step_s:.2f} s a step, {ms_per_megapixel:.0f} ms per megapixel, peak {peak:.2f} GB ({plan})"
    ).format(**row, peak=row["peak_bytes"] / _BYTES_PER_GB)


def _table(runs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("area and plan", overflow="fold")
    for name in ("step s", "ms/Mpx", "GFLOP/s", "product", "wait s", "peak GB", "predicted"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in runs:
        table.add_row(row["name"], *(_cells(row) if "step_s" in row else ["skipped" if "skipped" in row else "failed"]))
    return table


def _cells(row: dict[str, Any]) -> Iterator[str]:
    yield f"{row['step_s']:.2f}"
    yield f"{row['ms_per_megapixel']:.0f}"
    yield f"{row['gflops']:.0f}"
    yield f"{row['matmul_gflops']:.0f}"
    yield f"{row['data_wait_s']:.2f}"
    yield f"{row['peak_bytes'] / _BYTES_PER_GB:.2f}"
    yield f"{row['predicted_peak_bytes'] / _BYTES_PER_GB:.2f}"
