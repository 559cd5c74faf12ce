"""`gigaslide plan`: the plans for an area under a budget, without the slides and without TensorFlow.

The table holds the plans than which none is both faster and smaller, and the whole-image one beside them.
"""

import json
from pathlib import Path

import psutil
from rich.table import Table

from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.files import write_text
from gigaslide.machine import usable_threads
from gigaslide.memory import plan_file, planner
from gigaslide.memory.planner import Candidate
from gigaslide.network.describe import describe
from gigaslide.streaming.plan import WHOLE, whole_plan

_BYTES_PER_GB = 1e9
_ROWS = 10


def run(
    settings: Settings, shape: tuple[int, int], budget_gb: float | None, cores: int | None, json_file: Path | None
) -> None:
    """Print the plans for an area of `shape` (y, x); write the chosen one to `json_file`.

    Args:
        settings: the network, and the budget where `budget_gb` is None.
        shape: of the area in pixels.
        budget_gb: of a process, on whatever machine; None: what training here would have.
        cores: of the machine to plan for; None: those of this one.
        json_file: where the chosen plan goes.

    Raises:
        DoesNotFit: no plan keeps to the budget.
    """
    budget_bytes, reason = _budget(settings, budget_gb)
    cores = cores or usable_threads()
    graph = describe(settings.network)
    found = planner.candidates(graph, shape, cores)
    whole = planner.candidate(graph, shape, whole_plan(), cores)
    console.print(
        f"{shape[0]} x {shape[1]} px ({shape[0] * shape[1] / 1e6:.0f} megapixels), kernel "
        f"{settings.network.kernel_size}, stride {settings.network.stride}, {cores} core(s), "
        f"{budget_bytes / _BYTES_PER_GB:.2f} GB ({reason})"
    )
    chosen = None
    try:
        chosen = planner.choose(found, shape, budget_bytes)
    finally:
        console.print(_table([*_rows(found, chosen), whole], chosen, budget_bytes))
    if json_file is not None:
        write_text(json_file, json.dumps(plan_file.as_json(chosen, shape, budget_bytes), indent=2) + "\n")


def _budget(settings: Settings, budget_gb: float | None) -> tuple[float, str]:
    if budget_gb is not None:
        return budget_gb * _BYTES_PER_GB, "as asked for"
    wanted = settings.memory.budget_gb * _BYTES_PER_GB
    free = float(psutil.virtual_memory().available)
    return (wanted, "memory.budget_gb") if wanted <= free else (free, "what this machine has free")


def _rows(found: list[Candidate], chosen: Candidate | None) -> list[Candidate]:
    """Return the candidates than which none is both faster and smaller, fastest first, the chosen one among them."""
    front: list[Candidate] = []
    for candidate in sorted(found, key=lambda candidate: (candidate.step_s, candidate.peak_bytes)):
        if not front or candidate.peak_bytes < front[-1].peak_bytes:
            front.append(candidate)
    first = 0
    if chosen in front[_ROWS:]:
        first = front.index(chosen) - _ROWS + 1
    return front[first : first + _ROWS]


def _table(rows: list[Candidate], chosen: Candidate | None, budget_bytes: float) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("plan", overflow="fold")
    for name in ("maps in", "tile px"):
        table.add_column(name, no_wrap=True)
    for name in ("peak GB", "step s", "fits"):
        table.add_column(name, justify="right", no_wrap=True)
    for candidate in rows:
        fits = candidate.peak_bytes <= budget_bytes
        table.add_row(
            "->" if candidate is chosen else "",
            candidate.plan.name,
            candidate.plan.storage if candidate.plan.cuts else "-",
            _tile(candidate),
            f"{candidate.peak_bytes / _BYTES_PER_GB:.2f}",
            f"{candidate.step_s:.1f}",
            "yes" if fits else "no",
            style="bold" if candidate is chosen else ("" if fits else "dim"),
        )
    return table


def _tile(candidate: Candidate) -> str:
    """Return the tile where the network is finest; where it is coarser, tiles cover more of the image."""
    if candidate.plan.name == WHOLE:
        return "all"
    height, width = min(candidate.plan.tiles.values())
    return f"{height} x {width}"
