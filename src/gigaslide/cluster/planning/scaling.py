"""`gigaslide plan --scaling`: steps over 8 to 512 workers on 1 to 1000 gigapixels, predicted, and where that ends."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.table import Table

from gigaslide import machine, provenance
from gigaslide.cluster.planning import choice
from gigaslide.cluster.planning.command import describe_links, figures, one_worker_s
from gigaslide.cluster.planning.forecast import Cluster, Division
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.files import atomic_path, write_text
from gigaslide.memory.planner import DoesNotFit
from gigaslide.network.describe import describe

WORKERS = (8, 16, 32, 64, 128, 256, 512)
SIDES_PX = (31_616, 100_000, 316_224, 1_000_000)  # of squares of 1, 10, 100, 1000 gigapixels
# Twice as many workers are worth it if they are at least so many times as fast.
WORTH_IT = 1.25
_MOST_WORKERS = 4096  # of those that are looked at for where it ends
_BYTES_PER_GB = 1e9


def run(
    settings: Settings,
    cluster: Cluster,
    budget_gb: float | None,
    json_file: Path | None,
    picture: Path | None,
    sides_px: Sequence[int] = SIDES_PX,
    workers: Sequence[int] = WORKERS,
) -> list[dict[str, Any]]:
    """Print the table, write it with the commit that it is from, draw it; return what is written of each area.

    Args:
        settings: the network, and the budget where `budget_gb` is None.
        cluster: its machines and links; its number of workers does not count.
        budget_gb: of each machine; None: `memory.budget_gb`.
        json_file: where the areas go.
        picture: where the speed-up over the workers goes, PNG.
        sides_px: of the areas.
        workers: that are asked about, each twice as many as before.
    """
    budget_bytes = (settings.memory.budget_gb if budget_gb is None else budget_gb) * _BYTES_PER_GB
    areas = [_area(settings, side, cluster, budget_bytes, workers) for side in sides_px]
    conditions = (
        f"machines of {cluster.workers_per_machine} workers, {budget_bytes / _BYTES_PER_GB:g} GB and "
        f"{describe_links(cluster)}"
    )
    console.print(conditions, markup=False)
    console.print(_table(areas))
    console.print("\n".join(map(_remark, areas)), markup=False)
    results = {"git_commit": provenance.git_commit(), "machine": machine.describe_machine(), "areas": areas}
    if json_file is not None:
        write_text(json_file, json.dumps(results, indent=2) + "\n")
    if picture is not None:
        # Not above: the table needs no Matplotlib.
        from gigaslide.cluster.planning import scaling_picture

        with atomic_path(picture) as temporary:
            temporary.write_bytes(scaling_picture.draw(areas, WORTH_IT, _sources(conditions, results)))
    return areas


def end(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return where twice as many workers are not worth it, and why: what holds them up most beside computing.

    None if they always are.
    """
    for here, double in pairwise(row for row in rows if "step_s" in row):
        if here["step_s"] / double["step_s"] < WORTH_IT:
            others = {name: seconds for name, seconds in double["spent_s"].items() if name != "compute"}
            reason = max(others, key=lambda name: others[name])
            return {"workers": here["workers"], "speed_up": here["speed_up"], "reason": reason}
    return None


def _area(
    settings: Settings, side: int, cluster: Cluster, budget_bytes: float, workers: Sequence[int]
) -> dict[str, Any]:
    divisions = choice.divisions(describe(settings.network), (side, side))
    alone_s = one_worker_s(divisions, cluster)
    rows = [_row(divisions, replace(cluster, workers=count), budget_bytes, alone_s) for count in workers]
    found, beyond = end(rows), list(rows)
    fits = any("step_s" in row for row in rows)
    while fits and found is None and beyond[-1]["workers"] < _MOST_WORKERS:
        beyond.append(_row(divisions, replace(cluster, workers=2 * beyond[-1]["workers"]), budget_bytes, alone_s))
        found = end(beyond)
    return {"side_px": side, "gigapixels": side**2 / 1e9, "one_worker_s": alone_s, "rows": rows, "end": found}


def _row(divisions: Sequence[Division], cluster: Cluster, budget_bytes: float, alone_s: float) -> dict[str, Any]:
    try:
        chosen = choice.choose(choice.forecasts(divisions, cluster, budget_bytes), budget_bytes)
    except DoesNotFit as error:
        return {"workers": cluster.workers, "does_not_fit": str(error)}
    return {"plan": chosen.division.plan.name} | figures(chosen, alone_s)


def _table(areas: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    names = ("Gpx", "workers", "step s", "times", "of ideal", "bound by", "traffic GB", "pixels GB", "machine GB")
    for name in names:
        table.add_column(name, justify="left" if name == "bound by" else "right", no_wrap=True)
    for gigapixels, row in ((area["gigapixels"], row) for area in areas for row in area["rows"]):
        start = f"{gigapixels:.0f}", str(row["workers"])
        if "step_s" not in row:
            table.add_row(*start, "-", "-", "-", "does not fit")
            continue
        table.add_row(
            *start,
            f"{row['step_s']:.2f}" if row["step_s"] < 100 else f"{row['step_s']:.0f}",
            f"{row['speed_up']:.1f}",
            f"{100 * row['efficiency']:.0f} %",
            row["bound"],
            f"{(row['margin_bytes'] + row['result_bytes']) / _BYTES_PER_GB:.3f}",
            f"{row['stored_bytes'] / _BYTES_PER_GB:.0f}",
            f"{row['machine_bytes'] / _BYTES_PER_GB:.1f}",
        )
    return table


def _remark(area: dict[str, Any]) -> str:
    found = area["end"]
    if not any("step_s" in row for row in area["rows"]):
        remark = "no plan fits"
    elif found is None:
        remark = f"twice as many workers are at least {WORTH_IT:g} times as fast, up to {_MOST_WORKERS}"
    else:
        remark = f"beyond {found['workers']} workers, twice as many are less than {WORTH_IT:g} times as fast"
        remark += f": {found['reason']}"
    return f"{area['gigapixels']:.0f} gigapixels: {remark}"


def _sources(conditions: str, results: dict[str, Any]) -> str:
    return (
        f"Predicted, not measured, for {conditions}; a worker is a core of {results['machine']['cpu']}.\n"
        f"`gigaslide plan --scaling`, commit {results['git_commit'][:12]}."
    )
