"""What a worker's process does: one job after the other, with the network that it builds once.

It reads the pixels of a tile itself, from the store, wherever it runs.
"""

import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gigaslide import quiet
from gigaslide.cluster.pieces import Job, add, join, needed
from gigaslide.network.graph import IMAGE
from gigaslide.streaming.engine import Area
from gigaslide.streaming.plan import Plan

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
        from gigaslide.streaming.layout import Layout
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
        self._layouts: dict[tuple[int, int], Layout] = {}
        self._weights_key: tuple[str, int] | None = None

    def compute(self, visit: Visit, job: Job, arrays: tuple[Array, ...]) -> list[Any]:
        """Return (seconds of reading, result), and then the pieces that the job makes.

        Args:
            visit: the area, and the weights at this time.
            job: what of which tile.
            arrays: the pieces that `needed` names, in its order.
        """
        from gigaslide.streaming.layout import lay_out
        from gigaslide.streaming.reading import read_labels, read_planes

        if visit.key != self._weights_key:
            self._model.set_weights(visit.weights)
            self._weights_key = visit.key
        area = visit.area
        if area.shape not in self._layouts:
            self._layouts = {area.shape: lay_out(self._graph, self._segments, self._plan, area.shape)}
        layout = self._layouts[area.shape]
        segment, functions = self._segments[job.segment], self._functions[job.segment]
        tile = layout.tiles[segment.output][job.tile]

        started = time.perf_counter()
        left = iter(arrays)
        groups = [[(piece.window, next(left)) for piece in group] for group in needed(layout, self._segments, job)]
        inputs: list[Array] = []
        for name, window in zip(segment.inputs, tile.reads, strict=True):
            if name == IMAGE:
                inputs.append(read_planes(area, window, area.density_table, self._dtype, self._buffers))
            else:
                inputs.append(self._take(name, window.shape))
                join(window, groups.pop(0), inputs[-1])
        more: list[Array] = []
        if job.sweep in ("statistics", "loss_backward"):
            more.append(read_labels(area, tile.owned, self._buffers))
        elif job.sweep == "backward":
            more.append(self._take(segment.output, tile.owned.shape))
            add(tile.owned, groups.pop(0), more[-1])
        read_s = time.perf_counter() - started

        compute = getattr(functions, job.sweep)
        if job.sweep == "loss_backward":
            compute = partial(compute, np.array(job.slopes, np.float64))
        found = compute(tile, inputs, *more)
        for array in (*inputs, *more):
            self._buffers.give(array)
        if job.sweep == "forward":
            return [(read_s, None), found]
        if job.sweep in ("statistics", "probability"):
            return [(read_s, found)]
        weights, gradients = found
        return [(read_s, weights), *gradients]

    def _take(self, name: str, shape: tuple[int, int]) -> Array:
        return self._buffers.take((1, *shape, self._graph.by_name[name].channels), self._dtype)


_here: list[Worker] = []


def here(recipe: Recipe) -> Worker:
    """Return this process' worker for `recipe`; the one before it is dropped."""
    if not _here or _here[0].key != recipe.key:
        _here[:] = [Worker(recipe)]
    return _here[0]
