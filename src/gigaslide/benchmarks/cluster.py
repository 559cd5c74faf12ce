"""The step of `gigaslide train --cluster` on this machine, measured beside what `gigaslide plan --workers` predicts.

In one run and in turn: the step without Ray by one thread, then by 1, 2 and 4 single-threaded workers, round after
round; medians over the rounds. What is predicted knows the seconds of single tiles, measured first, and nothing of the
steps. More workers than cores are there to see whether that is predicted, too. Every step has to give the same bits.

A worker of one thread reads the next tile in a second one, and Ray and the process that leads have work of their own.
Where there is a core to spare that takes no time. So both are measured: with all cores, and with one worker, and all
that belongs to it, on one core alone.
"""

import json
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from rich.table import Table

from gigaslide import machine, provenance
from gigaslide.benchmarks.areas import Middle, Repeated
from gigaslide.benchmarks.large_slide import STORE
from gigaslide.benchmarks.step import timed
from gigaslide.benchmarks.tile_costs import tile_seconds
from gigaslide.cluster import connection
from gigaslide.cluster.planning import choice
from gigaslide.cluster.planning.forecast import Cluster, Division, divide, forecast
from gigaslide.cluster.step.engine import ClusterStreamed
from gigaslide.cluster.step.pool import RayPool
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.errors import GigaslideError
from gigaslide.files import write_text
from gigaslide.machine import usable_threads
from gigaslide.network import unet
from gigaslide.network.describe import describe
from gigaslide.slides.store import open_store
from gigaslide.streaming import devices
from gigaslide.streaming.engine import Area, StepResult
from gigaslide.streaming.plan import Plan
from gigaslide.streaming.streamed import Streamed

SHAPES = ((8192, 8192), (16000, 16000))
WORKERS = (1, 2, 4)
WITHOUT_RAY = 0  # "workers" of the step without Ray
_STORE_BYTES = 2_000_000_000


class Case(NamedTuple):
    """So many workers, with all cores or on one alone."""

    workers: int
    on_one_core: bool


# Makes one measurement, of so many steps.
Measure = Callable[[Settings, keras.Model, Plan, Area, Case, int], tuple[StepResult, list[float], int | None]]


def run(
    settings: Settings,
    json_file: Path,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    rounds: int = 3,
    steps: int = 1,
    workers: Sequence[int] = WORKERS,
    store: Path = STORE,
    measured: Measure | None = None,
) -> dict[str, Any]:
    """Measure, print a table, write and return the results; in this process, before TensorFlow computes anything.

    Args:
        settings: the network, and how it is trained.
        json_file: the results.
        shapes: of the areas, (y, x) in pixels.
        rounds: in each of which every case is measured.
        steps: of each case in a round, after one that is not timed.
        workers: the clusters' sizes.
        store: of a slide that the areas are the middle of; if it is not there, they are made up.
        measured: makes one measurement; None: `measure`.

    Raises:
        UsageError: Ray is not installed, or the slide is smaller than a shape.
        GigaslideError: two steps differ in a bit, or a cluster that runs here already has other workers.
    """
    connection.check_installed()
    devices.set_threads(1, 1)
    tf.config.experimental.enable_op_determinism()
    network = unet.build(settings.network, settings.train.seed)
    found = []
    for shape in shapes:
        area: Area = Middle(open_store(store), shape) if store.exists() else Repeated(shape)
        found.append(_area(settings, network, area, rounds, steps, workers, measured or measure))
        console.print(_table(found[-1]))
        console.print("\n".join(_summary(found[-1])), markup=False)
    results = {"git_commit": provenance.git_commit(), "machine": machine.describe_machine(), "areas": found}
    write_text(json_file, json.dumps(results, indent=2) + "\n")
    return results


def _area(
    settings: Settings,
    network: keras.Model,
    area: Area,
    rounds: int,
    steps: int,
    workers: Sequence[int],
    measured: Measure,
) -> dict[str, Any]:
    graph = describe(settings.network)
    # That of one machine with so many workers as it has cores; the same for every case, as the same bits need it.
    here = Cluster(usable_threads(), usable_threads())
    plan = choice.forecasts(choice.divisions(graph, area.shape), here)[0].division.plan
    by_constants = divide(graph, area.shape, plan)
    by_tiles = divide(graph, area.shape, plan, tile_seconds(network, plan, area))
    cases = [Case(count, on_one_core=False) for count in (WITHOUT_RAY, *workers)]
    if hasattr(os, "sched_setaffinity") and usable_threads() > 1:
        cases = [Case(count, on_one_core=True) for count in (WITHOUT_RAY, 1)] + cases
    seconds: dict[Case, list[float]] = {case: [] for case in cases}
    moved: dict[Case, int | None] = {}
    first: StepResult | None = None
    for _ in range(rounds):
        for case in cases:
            with _cores(case):
                result, took, moved[case] = measured(settings, network, plan, area, case, steps)
            seconds[case] += took
            first = first or result
            _check_bits(first, result, case.workers)
    medians = {case: statistics.median(all_s) for case, all_s in seconds.items()}
    rows = [
        {
            **case._asdict(),
            "step_s": medians[case],
            "step_s_all": seconds[case],
            "predicted_step_s": _predicted_s(by_tiles, case.workers),
            "predicted_by_constants_s": _predicted_s(by_constants, case.workers),
            "moved_bytes": moved[case],
        }
        for case in cases
    ]
    return {
        "height": area.shape[0],
        "width": area.shape[1],
        "source": area.name,
        "plan": plan.name,
        "tiles": by_tiles.tiles,
        "tile_seconds": {
            one.segment.output: asdict(measured) for one, measured in zip(by_tiles.spans, by_tiles.seconds, strict=True)
        },
        "cases": rows,
        **_ratios(medians),
        "same_bits": True,  # or it would have ended
    }


def _ratios(medians: Mapping[Case, float]) -> dict[str, float | None]:
    def ratio(a: tuple[int, bool], b: tuple[int, bool]) -> float | None:
        return medians[Case(*a)] / medians[Case(*b)] if {a, b} <= set(medians) else None

    return {
        "two_workers_over_one": ratio((2, False), (1, False)),
        "two_workers_over_one_on_one_core": ratio((2, False), (1, True)),
        "ray_over_no_ray": ratio((1, False), (WITHOUT_RAY, False)),
        "ray_over_no_ray_on_one_core": ratio((1, True), (WITHOUT_RAY, True)),
    }


@contextmanager
def _cores(case: Case) -> Iterator[None]:
    """Keep this thread, and what it starts meanwhile, on one core if the case says so."""
    if not case.on_one_core:
        yield
        return
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(usable)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


def measure(
    settings: Settings, network: keras.Model, plan: Plan, area: Area, case: Case, steps: int
) -> tuple[StepResult, list[float], int | None]:
    """Return the last step's result, the seconds of each, and the bytes that it sent between machines."""
    train = settings.train
    weights = train.dice_weight, train.cross_entropy_weight
    workers = case.workers
    if workers == WITHOUT_RAY:
        results, seconds = timed(Streamed(network, plan, *weights), area, steps)
        return results[-1], seconds, None
    with connection.connected("auto", 1, workers, _STORE_BYTES):
        pool = RayPool(1)
        if pool.workers != workers:
            raise GigaslideError(
                f"a cluster of {pool.workers} worker(s) runs on this machine, and {workers} are to be measured: end it "
                "first, with `ray stop`"
            )
        engine = ClusterStreamed(pool, network, plan, *weights)
        results, seconds = timed(engine, area, steps)
        return results[-1], seconds, engine.moved_bytes


def _check_bits(first: StepResult, result: StepResult, workers: int) -> None:
    pairs = zip(first.gradients, result.gradients, strict=True)
    if first.loss != result.loss or not all(np.array_equal(a, b) for a, b in pairs):
        raise GigaslideError(f"the step of {workers} worker(s) differs from the one without Ray: that is a defect")


def _predicted_s(division: Division, workers: int) -> float:
    if workers == WITHOUT_RAY:
        pairs = zip(division.spans, division.seconds, strict=True)
        return sum(one.tiles * (tile.forward_s + tile.backward_s) for one, tile in pairs)
    return forecast(division, Cluster(workers, workers, 1, usable_threads())).step_s


def _table(found: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("workers", "step s", "predicted s", "ratio", "by constants s"):
        table.add_column(name, justify="right", no_wrap=True)
    for case in found["cases"]:
        measured, predicted = case["step_s"], case["predicted_step_s"]
        table.add_row(
            ("no Ray" if case["workers"] == WITHOUT_RAY else str(case["workers"]))
            + (", one core" if case["on_one_core"] else ""),
            f"{measured:.2f}",
            f"{predicted:.2f}",
            f"{predicted / measured:.2f}",
            f"{case['predicted_by_constants_s']:.2f}",
        )
    return table


def _summary(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['height']} x {found['width']} px ({found['source']}), {found['plan']}, {found['tiles']} tiles"
    for name, words in (
        ("two_workers_over_one", "two workers over one"),
        ("two_workers_over_one_on_one_core", "two workers over one that has a core to itself and no more"),
        ("ray_over_no_ray", "one worker over no Ray"),
        ("ray_over_no_ray_on_one_core", "one worker over no Ray, both on one core"),
    ):
        if found[name] is not None:
            yield f"{words}: {found[name]:.2f}"
    yield "the same bits everywhere"
