"""The step of `gigaslide train --cluster` on this machine, measured beside what `gigaslide plan --workers` predicts.

In one run and in turn: the step without Ray by one thread, then by 1, 2 and 4 single-threaded workers, round after
round; medians over the rounds. What is predicted knows the seconds of single tiles, measured first, and nothing of the
steps. More workers than cores are there to see whether that is predicted, too. Every step has to give the same bits.
"""

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from rich.table import Table

from gigaslide import machine, provenance
from gigaslide.benchmarks.areas import Middle, Repeated
from gigaslide.benchmarks.large_slide import STORE
from gigaslide.benchmarks.step import timed
from gigaslide.benchmarks.tile_costs import tile_seconds
from gigaslide.cluster import choice, connection
from gigaslide.cluster.engine import ClusterStreamed
from gigaslide.cluster.forecast import Cluster, Division, divide, forecast
from gigaslide.cluster.pool import RayPool
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

Case = Callable[[Settings, keras.Model, Plan, Area, int, int], tuple[StepResult, list[float], int | None]]


def run(
    settings: Settings,
    json_file: Path,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    rounds: int = 3,
    steps: int = 1,
    workers: Sequence[int] = WORKERS,
    store: Path = STORE,
    case: Case | None = None,
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
        case: makes one measurement; None: `measure`.

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
        found.append(_area(settings, network, area, rounds, steps, workers, case or measure))
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
    case: Case,
) -> dict[str, Any]:
    graph = describe(settings.network)
    # That of one machine with so many workers as it has cores; the same for every case, as the same bits need it.
    here = Cluster(usable_threads(), usable_threads())
    plan = choice.forecasts(choice.divisions(graph, area.shape), here)[0].division.plan
    by_constants = divide(graph, area.shape, plan)
    by_tiles = divide(graph, area.shape, plan, tile_seconds(network, plan, area))
    seconds: dict[int, list[float]] = {count: [] for count in (WITHOUT_RAY, *workers)}
    moved: dict[int, int | None] = {}
    first: StepResult | None = None
    for _ in range(rounds):
        for count in seconds:
            result, took, moved[count] = case(settings, network, plan, area, count, steps)
            seconds[count] += took
            first = first or result
            _check_bits(first, result, count)
    medians = {count: statistics.median(all_s) for count, all_s in seconds.items()}
    cases = []
    for count, all_s in seconds.items():
        cases.append(
            {
                "workers": count,
                "step_s": medians[count],
                "step_s_all": all_s,
                "predicted_step_s": _predicted_s(by_tiles, count),
                "predicted_by_constants_s": _predicted_s(by_constants, count),
                "moved_bytes": moved[count],
            }
        )
    return {
        "height": area.shape[0],
        "width": area.shape[1],
        "source": area.name,
        "plan": plan.name,
        "tiles": by_tiles.tiles,
        "tile_seconds": {
            one.segment.output: asdict(measured) for one, measured in zip(by_tiles.spans, by_tiles.seconds, strict=True)
        },
        "cases": cases,
        "two_workers_over_one": medians[2] / medians[1] if {1, 2} <= set(medians) else None,
        "overhead_of_ray": medians[1] / medians[WITHOUT_RAY] - 1 if 1 in medians else None,
        "same_bits": True,  # or it would have ended
    }


def measure(
    settings: Settings, network: keras.Model, plan: Plan, area: Area, workers: int, steps: int
) -> tuple[StepResult, list[float], int | None]:
    """Return the last step's result, the seconds of each, and the bytes that it sent between machines."""
    train = settings.train
    weights = train.dice_weight, train.cross_entropy_weight
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
            "no Ray" if case["workers"] == WITHOUT_RAY else str(case["workers"]),
            f"{measured:.2f}",
            f"{predicted:.2f}",
            f"{predicted / measured:.2f}",
            f"{case['predicted_by_constants_s']:.2f}",
        )
    return table


def _summary(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['height']} x {found['width']} px ({found['source']}), {found['plan']}, {found['tiles']} tiles"
    if found["two_workers_over_one"] is not None:
        yield f"two workers take {found['two_workers_over_one']:.2f} of one's time"
    if found["overhead_of_ray"] is not None:
        yield f"Ray with one worker: {100 * found['overhead_of_ray']:+.1f} %; the same bits everywhere"
