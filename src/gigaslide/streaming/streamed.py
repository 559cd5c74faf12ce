"""The exact streamed step: the loss and gradient of the whole area, from tiles that fit anywhere.

Forward, every segment writes its kept map tile by tile. The loss is a function of sums over pixels: one sweep over the
last segment adds them up, and the derivative of the loss by each sum is then known. Backward, segments in reverse:
each tile is computed again from the same input window, and its gradient pulled back; weight gradients are added up in
float64, gradients of kept maps where the windows of tiles overlap in the map's own type, both in the order of the
tiles whatever thread was ready first.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gigaslide.geometry import Window
from gigaslide.network import losses
from gigaslide.network.graph import IMAGE
from gigaslide.network.keras_graph import from_model
from gigaslide.network.losses import Statistics
from gigaslide.streaming.buffers import BufferPool
from gigaslide.streaming.engine import Area, StepResult
from gigaslide.streaming.layout import Layout, lay_out, stitched
from gigaslide.streaming.maps import DiskMap, Map, RamMap
from gigaslide.streaming.plan import READ_AHEAD, Plan, Segment, segments
from gigaslide.streaming.reading import read_labels, read_planes
from gigaslide.streaming.segment import SegmentFunctions
from gigaslide.streaming.tiles import Tile

Array = NDArray[Any]
R = TypeVar("R")


def step_result(
    model: keras.Model, loss: float, totals: Statistics, gradients: list[NDArray[np.float64]], wait_s: float
) -> StepResult:
    """Return what a step came to: the gradients, added up in float64, in the types of the weights."""
    kinds = [tf.as_dtype(variable.dtype).as_numpy_dtype for variable in model.trainable_variables]
    return StepResult(
        loss,
        float(losses.soft_dice(totals)),
        [gradient.astype(kind) for gradient, kind in zip(gradients, kinds, strict=True)],
        wait_s,
    )


class Streamed:
    """Engine that visits an area tile by tile."""

    def __init__(
        self,
        model: keras.Model,
        plan: Plan,
        dice_weight: float,
        cross_entropy_weight: float,
        precision: str | None = None,
        scratch: Path = Path(),
    ) -> None:
        """Read the graph of `model` and divide it by the plan's cuts.

        Args:
            model: a functional Keras model, image to logits.
            plan: how areas are visited.
            dice_weight: of the loss.
            cross_entropy_weight: of the loss.
            precision: type to compute in, as bfloat16; None: the model's own. Maps and sums keep the model's own.
            scratch: folder for maps on disk.

        Raises:
            UsageError: a layer cannot be computed tile by tile.
        """
        self.model = model
        # TensorFlow 2.19 cannot fuse a leaky ReLU that has a gradient: it tries, fails, and says so on standard error.
        tf.config.optimizer.set_experimental_options({"remapping": False})
        self._graph, layers = from_model(model)
        self._plan = plan
        self._loss_weights = dice_weight, cross_entropy_weight
        self._scratch = scratch
        self._dtype = np.dtype(tf.as_dtype(model.inputs[0].dtype).as_numpy_dtype)
        self._segments = segments(self._graph, plan.cuts)
        self._functions = {s: SegmentFunctions(self._graph, s, layers, model, precision) for s in self._segments}
        self._layouts: dict[tuple[int, int], Layout] = {}
        self._buffers = BufferPool()

    @property
    def plan(self) -> str:
        """The plan's name."""
        return self._plan.name

    @property
    def traces(self) -> int:
        """How often a TensorFlow function was traced so far."""
        return sum(functions.traces for functions in self._functions.values())

    def step(self, area: Area) -> StepResult:
        """Return loss and gradient of the whole area."""
        with _Visit(self, area) as visit:
            visit.compute_maps()
            totals = visit.statistics()
            loss, slopes = losses.slopes(totals, *self._loss_weights)
            gradients = visit.pull_back(np.array(slopes, np.float64))
            wait_s = visit.wait_s
        return step_result(self.model, float(loss), totals, gradients, wait_s)

    def predict(
        self, area: Area, wanted: Callable[[Window], bool] | None = None
    ) -> Iterator[tuple[Window, NDArray[np.float32]]]:
        """Yield windows that tile the area, row by row, with the probability of tissue, (y, x) float32.

        Args:
            area: what is predicted.
            wanted: told a window, whether anything in it is of interest; the others are 0, and not computed.
        """
        tiles = self.layout(area.shape).tiles[self._segments[-1].output]
        with _Visit(self, area) as visit:
            visit.compute_maps()

            def compute(chosen: Sequence[int]) -> Iterator[NDArray[np.float32]]:
                return (values for _, values in visit.probabilities(tuple(tiles[number] for number in chosen)))

            yield from stitched(tiles, area.shape, wanted, compute)

    def layout(self, shape: tuple[int, int]) -> Layout:
        """Return the tiles for an area of `shape`, from which all areas of that shape are visited."""
        if shape not in self._layouts:
            self._layouts[shape] = lay_out(self._graph, self._segments, self._plan, shape)
        return self._layouts[shape]


class _Visit:
    """One area, its maps and the threads that compute them; closed when the step is done, or fails."""

    def __init__(self, engine: Streamed, area: Area) -> None:
        self._engine, self._area = engine, area
        self._layout = engine.layout(area.shape)
        self._table = area.density_table
        self._maps: dict[str, Map] = {}
        self._gradients: dict[str, Map] = {}
        self._waits_s: list[float] = []
        workers = engine._plan.workers
        self._workers = ThreadPoolExecutor(workers, "tile")
        self._readers = ThreadPoolExecutor(workers, "read")

    def __enter__(self) -> "_Visit":
        return self

    def __exit__(self, *error: object) -> None:
        for pool in (self._workers, self._readers):
            pool.shutdown(cancel_futures=True)
        for kept in (*self._maps.values(), *self._gradients.values()):
            kept.close()

    @property
    def wait_s(self) -> float:
        """Seconds in which a worker had nothing to compute because its tile was being read, mean over the workers."""
        return sum(self._waits_s) / self._engine._plan.workers

    def compute_maps(self) -> None:
        """Forward: write the map of every cut."""
        for segment in self._engine._segments[:-1]:
            functions = self._engine._functions[segment]
            kept = self._maps[segment.output] = self._new_map(segment.output)
            for tile, values in self._sweep(segment, functions.forward):
                kept.write(tile.owned, values)

    def statistics(self) -> Statistics:
        """Sum up what the loss needs, over the whole area."""
        segment = self._engine._segments[-1]
        totals = np.zeros(len(Statistics._fields))
        for _, part in self._sweep(segment, self._engine._functions[segment].statistics, self._labels):
            totals += part
        return Statistics(*tf.unstack(tf.constant(totals)))

    def probabilities(self, chosen: tuple[Tile, ...]) -> Iterator[tuple[Tile, NDArray[np.float32]]]:
        """Yield the probability of tissue, tile by tile, of those that are chosen."""
        segment = self._engine._segments[-1]
        return self._sweep(segment, self._engine._functions[segment].probability, chosen=chosen)

    def pull_back(self, slopes: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Backward: return the gradient of every weight."""
        engine = self._engine
        sums = [np.zeros(variable.shape) for variable in engine.model.trainable_variables]
        for segment in reversed(engine._segments):
            functions = engine._functions[segment]
            # Every segment that reads this map is done.
            if segment.output in self._maps:
                self._maps.pop(segment.output).close()
            kept = [name for name in segment.inputs if name != IMAGE]
            for name in kept:
                if name not in self._gradients:
                    self._gradients[name] = self._new_map(name)
            if segment is engine._segments[-1]:
                results = self._sweep(segment, partial(functions.loss_backward, slopes), self._labels)
            else:
                arriving = partial(self._window, self._gradients[segment.output], segment.output)
                results = self._sweep(segment, functions.backward, lambda tile, read=arriving: read(tile.owned))  # type: ignore[misc]
            for tile, (weights, inputs) in results:
                for index, gradient in zip(functions.weights, weights, strict=True):
                    sums[index] += gradient
                windows = [w for name, w in zip(segment.inputs, tile.reads, strict=True) if name != IMAGE]
                for name, window, gradient in zip(kept, windows, inputs, strict=True):
                    self._gradients[name].add(window, gradient)
            if segment.output in self._gradients:
                self._gradients.pop(segment.output).close()
        return sums

    def _sweep(
        self,
        segment: Segment,
        compute: Callable[..., R],
        read_more: Callable[[Tile], Array] | None = None,
        chosen: tuple[Tile, ...] | None = None,
    ) -> Iterator[tuple[Tile, R]]:
        """Yield the tiles of a segment, or those chosen, in their order, each with what `compute` returns.

        Reading goes ahead.

        `compute` gets the tile, its inputs and, if asked for, what `read_more` has read.
        """

        def read(tile: Tile) -> tuple[list[Array], list[Array]]:
            inputs = [
                self._image(window) if name == IMAGE else self._window(self._maps[name], name, window)
                for name, window in zip(segment.inputs, tile.reads, strict=True)
            ]
            return inputs, [read_more(tile)] if read_more else []

        def work(tile: Tile, data: "Future[tuple[list[Array], list[Array]]]") -> R:
            started = time.perf_counter()
            inputs, more = data.result()
            self._waits_s.append(time.perf_counter() - started)
            result = compute(tile, inputs, *more)
            for array in (*inputs, *more):
                self._engine._buffers.give(array)
            return result

        most = self._engine._plan.workers * (1 + READ_AHEAD)
        running: deque[tuple[Tile, Future[R]]] = deque()
        for tile in self._layout.tiles[segment.output] if chosen is None else chosen:
            running.append((tile, self._workers.submit(work, tile, self._readers.submit(read, tile))))
            if len(running) > most:
                tile, done = running.popleft()
                yield tile, done.result()
        while running:
            tile, done = running.popleft()
            yield tile, done.result()

    def _image(self, window: Window) -> Array:
        return read_planes(self._area, window, self._table, self._engine._dtype, self._engine._buffers)

    def _window(self, kept: Map, name: str, window: Window) -> Array:
        """Return a window of a map, (1, y, x, channel)."""
        channels = self._engine._graph.by_name[name].channels
        values = self._engine._buffers.take((1, *window.shape, channels), self._engine._dtype)
        kept.read(window, values)
        return values

    def _labels(self, tile: Tile) -> NDArray[np.uint8]:
        return read_labels(self._area, tile.owned, self._engine._buffers)

    def _new_map(self, name: str) -> Map:
        dtype = self._engine._dtype
        shape = *self._layout.sizes[name], self._engine._graph.by_name[name].channels
        if self._engine._plan.storage == "disk":
            return DiskMap(shape, dtype, self._engine._scratch)
        return RamMap(shape, dtype)
