"""Seconds of a tile of every segment, measured: what a cluster's worker does, in this process and without a cluster."""

import statistics
import time
from collections.abc import Sequence

import keras
import numpy as np
from numpy.typing import NDArray

from gigaslide.cluster.step.pieces import Job, Sweep, needed
from gigaslide.cluster.step.worker import Recipe, Visit, Worker
from gigaslide.geometry import Window
from gigaslide.memory.cost import TileSeconds
from gigaslide.network.keras_graph import from_model
from gigaslide.streaming.engine import Area
from gigaslide.streaming.layout import Layout, lay_out
from gigaslide.streaming.plan import Plan, Segment, segments

_REPEATS = 3
_TILES = 8  # of a task
_SLOPES = (1.0, -0.5, -0.5, 1.0, 0.0)  # of the loss by its totals; any will do


def tile_seconds(model: keras.Model, plan: Plan, area: Area) -> list[TileSeconds]:
    """Return the seconds of a tile of each segment, from its pixels or its pieces of maps to its result.

    Some tiles in the middle of the area are computed one after the other, the next one read meanwhile, as in a task;
    with one thread. The median of a few repetitions, after one that is not timed.
    """
    graph, _ = from_model(model)
    found = segments(graph, plan.cuts)
    layout = lay_out(graph, found, plan, area.shape)
    channels = {op.name: op.channels for op in graph.ops}
    worker = Worker(Recipe("tile_costs", model.to_json(), plan, None, 1))
    visit = Visit(("tile_costs", 0), area, model.get_weights())

    def measured(sweep: Sweep, number: int) -> float:
        jobs = _jobs(layout, found, sweep, number)
        places, pieces = _pieces(layout, found, jobs, channels)
        seconds = []
        for _ in range(1 + _REPEATS):
            started = time.perf_counter()
            worker.compute(visit, jobs, places, [], [pieces])
            seconds.append((time.perf_counter() - started) / len(jobs))
        return statistics.median(seconds[1:])

    last = len(found) - 1
    inner = [TileSeconds(measured("forward", number), measured("backward", number)) for number in range(last)]
    return [*inner, TileSeconds(measured("statistics", last), measured("loss_backward", last))]


def _jobs(layout: Layout, found: Sequence[Segment], sweep: Sweep, number: int) -> list[Job]:
    tiles = len(layout.tiles[found[number].output])
    count = min(_TILES, tiles)
    first = (tiles - count) // 2
    slopes = _SLOPES if sweep == "loss_backward" else ()
    return [Job(sweep, number, tile, slopes) for tile in range(first, first + count)]


def _pieces(
    layout: Layout, found: Sequence[Segment], jobs: Sequence[Job], channels: dict[str, int]
) -> tuple[list[tuple[int, int, Window]], list[NDArray[np.float32]]]:
    """Return what jobs read: where the pieces are in the one bundle, and that, with any values."""
    groups = [group for job in jobs for group in needed(layout, found, job)]
    windows = {piece.key: piece.window for group in groups for piece in group}
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(1, *w.shape, channels[key.map])).astype(np.float32) for key, w in windows.items()]
    return [(0, number, window) for number, window in enumerate(windows.values())], arrays
