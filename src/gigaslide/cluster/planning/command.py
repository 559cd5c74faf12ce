"""`gigaslide plan --workers N`: a step over a cluster, predicted here, where the cluster need not be. No TensorFlow.

What it goes by is in forecast.py; the plan that it writes is for `memory.plan` of `gigaslide train --cluster`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from gigaslide.cluster.planning import choice
from gigaslide.cluster.planning.forecast import Cluster, Division, Forecast
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.files import write_text
from gigaslide.memory import plan_file
from gigaslide.memory.model import Prediction
from gigaslide.memory.planner import Candidate
from gigaslide.network.describe import describe

_BYTES_PER_GB = 1e9
_ROWS = 6


def run(
    settings: Settings, shape: tuple[int, int], cluster: Cluster, budget_gb: float | None, json_file: Path | None
) -> None:
    """Print the plans for an area of `shape` (y, x) over a cluster, and what bounds the best; write it to `json_file`.

    Args:
        settings: the network, and the budget where `budget_gb` is None.
        shape: of the area in pixels.
        cluster: what the step is computed by.
        budget_gb: of each machine; None: `memory.budget_gb`.
        json_file: where the chosen plan goes.

    Raises:
        DoesNotFit: with no plan do the machines keep to the budget.
    """
    budget_bytes = (settings.memory.budget_gb if budget_gb is None else budget_gb) * _BYTES_PER_GB
    divisions = choice.divisions(describe(settings.network), shape)
    found = choice.forecasts(divisions, cluster, budget_bytes, _ROWS)
    console.print(
        f"{shape[0]} x {shape[1]} px ({shape[0] * shape[1] / 1e6:.0f} megapixels), kernel "
        f"{settings.network.kernel_size}, stride {settings.network.stride}; {cluster.workers} worker(s) on "
        f"{cluster.machines} machine(s) with {budget_bytes / _BYTES_PER_GB:.2f} GB and {describe_links(cluster)}"
    )
    chosen = None
    try:
        chosen = choice.choose(found, budget_bytes)
    finally:
        console.print(_plans(found[:_ROWS], chosen, budget_bytes))
    alone_s = one_worker_s(divisions, cluster)
    console.print()
    console.print(_sweeps(chosen))
    console.print("\n" + "\n".join(_lines(chosen, alone_s)), markup=False)
    if json_file is not None:
        write_text(json_file, json.dumps(as_json(chosen, alone_s, budget_bytes), indent=2) + "\n")


def one_worker_s(divisions: Sequence[Division], cluster: Cluster) -> float:
    """Return what one of the workers would take alone, with the plan that is best for it, whatever memory it needs."""
    return choice.forecasts(divisions, replace(cluster, workers=1))[0].step_s


def describe_links(cluster: Cluster) -> str:
    """Return in words what a machine is connected by."""
    pixels = "over the same link" if cluster.storage_gbps is None else f"at {cluster.storage_gbps:g} Gbit/s"
    return f"{cluster.network_gbps:g} Gbit/s, pixels {pixels}"


def as_json(chosen: Forecast, alone_s: float, budget_bytes: float) -> dict[str, Any]:
    """Return what plan.json holds; its memory is that of the fullest machine, term by term."""
    cluster, division = chosen.cluster, chosen.division
    here = max(cluster.of_machines)
    one = division.prediction
    # Of the driver, and of what the workers know of all tiles, the rest.
    runtime = chosen.machine_bytes - chosen.store_bytes - here * (one.tiles_bytes + one.read_bytes)
    prediction = Prediction(runtime, chosen.store_bytes, here * one.tiles_bytes, here * one.read_bytes)
    plan = replace(division.plan, workers=here)
    values = plan_file.as_json(Candidate(plan, prediction, chosen.step_s), division.shape, budget_bytes)
    return values | {"cluster": figures(chosen, alone_s)}


def figures(chosen: Forecast, alone_s: float) -> dict[str, Any]:
    """Return what is predicted, as plain values."""
    cluster = chosen.cluster
    return {
        "workers": cluster.workers,
        "machines": cluster.machines,
        "threads_per_worker": cluster.threads,
        "network_gbps": cluster.network_gbps,
        "storage_gbps": cluster.storage_gbps,
        "step_s": chosen.step_s,
        "speed_up": alone_s / chosen.step_s,
        "efficiency": alone_s / chosen.step_s / cluster.workers,
        "bound": chosen.bound,
        "spent_s": chosen.spent_s,
        "margin_bytes": chosen.margin_bytes,
        "machine_margin_bytes": chosen.machine_margin_bytes,
        "result_bytes": chosen.result_bytes,
        "stored_bytes": chosen.stored_bytes,
        "worker_bytes": chosen.worker_bytes,
        "store_bytes": chosen.store_bytes,
        "machine_bytes": chosen.machine_bytes,
    }


def _plans(rows: Sequence[Forecast], chosen: Forecast | None, budget_bytes: float) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("plan", overflow="fold")
    for name in ("tiles", "step s", "traffic GB", "machine GB", "fits"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in rows:
        fits = one.machine_bytes <= budget_bytes
        table.add_row(
            "->" if one is chosen else "",
            one.division.plan.name,
            str(one.division.tiles),
            f"{one.step_s:.2f}",
            f"{(one.margin_bytes + one.result_bytes) / _BYTES_PER_GB:.3f}",
            f"{one.machine_bytes / _BYTES_PER_GB:.2f}",
            "yes" if fits else "no",
            style="bold" if one is chosen else ("" if fits else "dim"),
        )
    return table


def _sweeps(chosen: Forecast) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("sweep", "to"):
        table.add_column(name, no_wrap=True)
    for name in ("tiles", "compute", "idle", "network", "storage", "driver", "takes s"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in chosen.sweeps:
        seconds = (
            one.even_s,
            one.busiest_s - one.even_s,
            one.network_s,
            one.storage_s,
            one.driver_s,
            one.total_s,
        )
        name = chosen.division.spans[one.traffic.segment].segment.output
        table.add_row(one.sweep, name, str(int(one.traffic.tiles.sum())), *(f"{value:.3f}" for value in seconds))
    return table


def _lines(chosen: Forecast, alone_s: float) -> Iterator[str]:
    cluster, speed_up = chosen.cluster, alone_s / chosen.step_s
    spent = ", ".join(
        f"{name} {100 * seconds / chosen.step_s:.0f} %" for name, seconds in chosen.spent_s.items() if seconds > 0
    )
    yield (
        f"step: {chosen.step_s:.2f} s, {speed_up:.1f} times as fast as one worker ({alone_s:.2f} s); efficiency "
        f"{100 * speed_up / cluster.workers:.0f} %; bound by {chosen.bound} ({spent})"
    )
    sizes = [chosen.margin_bytes, chosen.machine_margin_bytes, chosen.result_bytes, chosen.stored_bytes]
    margins, most, results, pixels = (f"{size / _BYTES_PER_GB:.3f} GB" for size in sizes)
    yield (
        f"traffic of a step: {margins} of maps between machines, at most {most} into one; {results} of results to the "
        f"driver; {pixels} of pixels and labels from the storage"
    )
    worker, store, machine = (
        f"{size / _BYTES_PER_GB:.2f} GB" for size in (chosen.worker_bytes, chosen.store_bytes, chosen.machine_bytes)
    )
    yield f"memory: {worker} a worker, {store} of maps in a machine's object store, {machine} a machine"
