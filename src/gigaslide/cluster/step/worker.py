"""What a worker's process does: some jobs at a time, with the network that it builds once.

It reads the pixels of a tile itself, from the store, wherever it runs.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gigaslide import quiet
from gigaslide.cluster.step.pieces import Job, Key, add, cut, join, keys, made, needed
from gigaslide.geometry import Window
from gigaslide.network.graph import IMAGE
from gigaslide.streaming.engine import Area
from gigaslide.streaming.plan import READ_AHEAD, Plan

if TYPE_CHECKING:
    from gigaslide.streaming.layout import Layout

Array = NDArray[Any]


class Recipe(NamedTuple):
    """From what a worker builds its network; `key` names it."""

    key: str
    model_json: str
    plan: Plan
    precision: str | None
    threads: int


class Visit(NamedTuple):
    """What the jobs of one visit of an area have in common; `key` names the weights."""

    key: tuple[str, int]
    area: Area
    weights: list[Array]


class Worker:
    """The network in this process."""

    def __init__(self, recipe: Recipe) -> None:
        """Start TensorFlow as the training does, and build the network."""
        quiet.import_tensorflow()
        import keras
        import tensorflow as tf

        from gigaslide.network.keras_graph import from_model
        from gigaslide.streaming import devices
        from gigaslide.streaming.buffers import BufferPool
        from gigaslide.streaming.plan import segments
        from gigaslide.streaming.segment import SegmentFunctions

        devices.set_threads(1, recipe.threads)
        tf.config.experimental.enable_op_determinism()
        tf.config.optimizer.set_experimental_options({"remapping": False})  # as in streaming/streamed.py
        self.key = recipe.key
        self._plan = recipe.plan
        self._model = keras.models.model_from_json(recipe.model_json)
        self._graph, layers = from_model(self._model)
        self._segments = segments(self._graph, recipe.plan.cuts)
        self._functions = [
            SegmentFunctions(self._graph, s, layers, self._model, recipe.precision) for s in self._segments
        ]
        self._dtype = np.dtype(tf.as_dtype(self._model.inputs[0].dtype).as_numpy_dtype)
        self._buffers = BufferPool()
        self._reader = ThreadPoolExecutor(1, "read")
        self._layouts: dict[tuple[int, int], Layout] = {}
        self._visit: Visit | None = None

    def compute(
        self,
        visit: Visit,
        jobs: Sequence[Job],
        places: Sequence[tuple[int, int, Window]],
        cuts: Sequence[Sequence[tuple[int, Window]]],
        bundles: Sequence[Sequence[Array]],
    ) -> list[Any]:
        """Return (seconds of waiting for pixels, result of every job), then a list of the pieces, then those of `cuts`.

        Tiles are read while the one before is computed.

        Args:
            visit: the area, and the weights at this time.
            jobs: what of which tiles.
            places: where what they need is, in the order of `keys`: number of the bundle, within it, what it covers.
            cuts: lists of what is to be cut out of which of the pieces that are made.
            bundles: of pieces, or parts of them.
        """
        from gigaslide.streaming.layout import lay_out

        if self._visit is None or visit.key != self._visit.key:
            self._model.set_weights(visit.weights)
            self._visit = visit
        area = self._visit.area  # the first of a visit: it has the files open
        if area.shape not in self._layouts:
            self._layouts = {area.shape: lay_out(self._graph, self._segments, self._plan, area.shape)}
        layout = self._layouts[area.shape]
        names = keys(group for job in jobs for group in needed(layout, self._segments, job))
        pieces = {
            key: (covered, bundles[bundle][index]) for key, (bundle, index, covered) in zip(names, places, strict=True)
        }

        results: Any = []
        wait_s, new = 0.0, []
        left, reading = iter(jobs), deque[Any]()
        for job in jobs:
            for other in islice(left, 1 + READ_AHEAD - len(reading)):
                reading.append(self._reader.submit(self._read, area, layout, pieces, other))
            started = time.perf_counter()
            read = reading.popleft().result()
            wait_s += time.perf_counter() - started
            value, gradients = self._run(layout, job, *read)
            results.append(value)
            new += gradients
        windows = [window for job in jobs for _, window in made(layout, self._segments, job)]
        if jobs[0].sweep in ("loss_backward", "backward"):
            results = np.stack(results)  # one value travels faster than thousands
        parts = [[cut(new[index], windows[index], part) for index, part in one] for one in cuts]
        return [(wait_s, results), *([new] if new else []), *parts]

    def _read(
        self, area: Area, layout: "Layout", pieces: Mapping[Key, Any], job: Job
    ) -> tuple[list[Array], list[Array]]:
        """Return the inputs of a tile and, where they are needed, its labels or the gradient of its output."""
        from gigaslide.streaming.reading import read_labels, read_planes

        segment = self._segments[job.segment]
        tile = layout.tiles[segment.output][job.tile]
        groups = [[pieces[piece.key] for piece in group] for group in needed(layout, self._segments, job)]
        inputs: list[Array] = []
        for name, window in zip(segment.inputs, tile.reads, strict=True):
            if name == IMAGE:
                inputs.append(read_planes(area, window, area.density_table, self._dtype, self._buffers))
            else:
                inputs.append(self._take(name, window.shape))
                join(window, groups.pop(0), inputs[-1])
        if job.sweep in ("statistics", "loss_backward"):
            return inputs, [read_labels(area, tile.owned, self._buffers)]
        if job.sweep == "backward":
            gradient = self._take(segment.output, tile.owned.shape)
            add(tile.owned, groups.pop(0), gradient)
            return inputs, [gradient]
        return inputs, []

    def _run(self, layout: "Layout", job: Job, inputs: list[Array], more: list[Array]) -> tuple[Any, list[Array]]:
        """Return a job's result, None where it has none, and the pieces that it makes."""
        tile = layout.tiles[self._segments[job.segment].output][job.tile]
        compute = getattr(self._functions[job.segment], job.sweep)
        if job.sweep == "loss_backward":
            compute = partial(compute, np.array(job.slopes, np.float64))
        found = compute(tile, inputs, *more)
        for array in (*inputs, *more):
            self._buffers.give(array)
        if job.sweep == "forward":
            return None, [found]
        if job.sweep in ("statistics", "probability"):
            return found, []
        weights, gradients = found
        # A segment may have no weights.
        return np.concatenate([np.zeros(0, self._dtype), *(gradient.ravel() for gradient in weights)]), gradients

    def _take(self, name: str, shape: tuple[int, int]) -> Array:
        return self._buffers.take((1, *shape, self._graph.by_name[name].channels), self._dtype)


_here: list[Worker] = []


def here(recipe: Recipe) -> Worker:
    """Return this process' worker for `recipe`; the one before it is dropped."""
    if not _here or _here[0].key != recipe.key:
        _here[:] = [Worker(recipe)]
    return _here[0]
