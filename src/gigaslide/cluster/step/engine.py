"""The exact streamed step with its tiles computed by the workers of a pool; the same bits as `Streamed`.

The driver hands out jobs, a few tiles at a time, and adds what comes back (weight gradients, sums of the loss) in the
order of the tiles. Maps never come to it: it holds references to their pieces, and hands those to the jobs that read
them. What is computed before its turn waits on the machine that computed it.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import prod

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gigaslide.cluster.step.handing_out import Handing, Pool
from gigaslide.cluster.step.pieces import Job, Sweep
from gigaslide.cluster.step.worker import Recipe, Visit
from gigaslide.geometry import Window
from gigaslide.network import losses
from gigaslide.network.keras_graph import from_model
from gigaslide.network.losses import Statistics
from gigaslide.streaming.engine import Area, StepResult
from gigaslide.streaming.layout import Layout, lay_out, stitched
from gigaslide.streaming.plan import Plan, segments
from gigaslide.streaming.segment import weights_of
from gigaslide.streaming.streamed import step_result


class ClusterStreamed:
    """Engine that has an area's tiles computed by the workers of a pool."""

    def __init__(
        self,
        pool: Pool,
        model: keras.Model,
        plan: Plan,
        dice_weight: float,
        cross_entropy_weight: float,
        precision: str | None = None,
    ) -> None:
        """Divide `model` by the plan's cuts; arguments as of `Streamed`.

        Raises:
            UsageError: a layer cannot be computed tile by tile.
        """
        self.model = model
        self._pool, self._plan = pool, plan
        self._graph, layers = from_model(model)
        self._loss_weights = dice_weight, cross_entropy_weight
        self._segments = segments(self._graph, plan.cuts)
        self._weights = [weights_of(segment, layers, model) for segment in self._segments]
        self._layouts: dict[tuple[int, int], Layout] = {}
        self._key, self._visits = uuid.uuid4().hex, 0
        self.moved_bytes = 0  # of maps and their gradients, from machine to machine, in the last step
        self._recipe = pool.put(Recipe(self._key, model.to_json(), plan, precision, pool.threads))

    @property
    def plan(self) -> str:
        """The plan's name."""
        return self._plan.name

    def step(self, area: Area) -> StepResult:
        """Return loss and gradient of the whole area.

        Raises:
            GigaslideError: the cluster lost something that could not be computed again.
        """
        visit = self._visit(area)
        totals = visit.statistics()
        loss, slopes = losses.slopes(totals, *self._loss_weights)
        gradients = visit.pull_back(tuple(float(slope) for slope in slopes))
        self.moved_bytes = visit.moved_bytes
        return step_result(self.model, float(loss), totals, gradients, visit.wait_s / self._pool.workers)

    def predict(
        self, area: Area, wanted: Callable[[Window], bool] | None = None
    ) -> Iterator[tuple[Window, NDArray[np.float32]]]:
        """Return windows that tile the area, row by row, with the probability of tissue, (y, x) float32.

        Args:
            area: what is predicted.
            wanted: told a window, whether anything in it is of interest; the others are 0, and not computed.
        """
        tiles = self.layout(area.shape).tiles[self._segments[-1].output]
        return stitched(tiles, area.shape, wanted, lambda chosen: self._visit(area).probabilities(chosen))

    def layout(self, shape: tuple[int, int]) -> Layout:
        """Return the tiles for an area of `shape`."""
        if shape not in self._layouts:
            self._layouts[shape] = lay_out(self._graph, self._segments, self._plan, shape)
        return self._layouts[shape]

    def _visit(self, area: Area) -> "_Visit":
        self._visits += 1
        return _Visit(self, area)


class _Visit:
    """One area, and the references to the pieces of its maps; they are given back with it."""

    def __init__(self, engine: ClusterStreamed, area: Area) -> None:
        self._engine, self._layout = engine, engine.layout(area.shape)
        visit = engine._pool.put(Visit((engine._key, engine._visits), area, engine.model.get_weights()))
        itemsize = np.dtype(tf.as_dtype(engine.model.inputs[0].dtype).as_numpy_dtype).itemsize
        bytes_per_px = {name: engine._graph.by_name[name].channels * itemsize for name in self._layout.tiles}
        self._handing = Handing(engine._pool, engine._recipe, visit, self._layout, engine._segments, bytes_per_px)
        self._last = len(engine._segments) - 1

    @property
    def wait_s(self) -> float:
        """Seconds in which workers had nothing to compute because a tile was being read, of all together."""
        return self._handing.wait_s

    @property
    def moved_bytes(self) -> int:
        """Bytes of pieces that were sent from one machine to another."""
        return self._handing.moved_bytes

    def statistics(self) -> Statistics:
        """Have the map of every cut computed, and sum up what the loss needs, over the whole area."""
        totals = np.zeros(len(Statistics._fields))
        for _, part in self._handing.results(chain(self._forward(), [self._sweep("statistics", self._last)])):
            totals += part
        return Statistics(*tf.unstack(tf.constant(totals)))

    def probabilities(self, chosen: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """Yield the probability of tissue, (y, x), of those tiles that are chosen."""
        jobs = [Job("probability", self._last, tile) for tile in chosen]
        for _, found in self._handing.results(chain(self._forward(), [jobs])):
            yield found

    def pull_back(self, slopes: tuple[float, ...]) -> list[NDArray[np.float64]]:
        """Backward: return the gradient of every weight."""
        shapes = [variable.shape for variable in self._engine.model.trainable_variables]
        ends = np.cumsum([prod(shape) for shape in shapes])
        numbers = np.split(np.arange(ends[-1]), ends[:-1])
        places = [np.concatenate([numbers[0][:0], *(numbers[i] for i in weights)]) for weights in self._engine._weights]
        sums = np.zeros(ends[-1])
        for job, gradient in self._handing.results(self._backward(slopes)):
            sums[places[job.segment]] += gradient
        return [part.reshape(shape) for part, shape in zip(np.split(sums, ends[:-1]), shapes, strict=True)]

    def _forward(self) -> Iterator[list[Job]]:
        for number in range(self._last):
            yield self._sweep("forward", number)

    def _backward(self, slopes: tuple[float, ...]) -> Iterator[list[Job]]:
        """Yield the jobs of sweep after sweep; the next is asked for when those of one are all handed out."""
        for number in range(self._last, -1, -1):
            output = self._engine._segments[number].output
            # Whoever reads this map is handed out, and Ray keeps what they need; its gradient is yet to be read.
            self._handing.forget(lambda key, name=output: key.map == key.maker == name)  # type: ignore[misc]
            yield self._sweep("loss_backward", number, slopes) if slopes else self._sweep("backward", number)
            self._handing.forget(lambda key, name=output: key.map == name)  # type: ignore[misc]
            slopes = ()

    def _sweep(self, sweep: Sweep, number: int, slopes: tuple[float, ...] = ()) -> list[Job]:
        tiles = self._layout.tiles[self._engine._segments[number].output]
        return [Job(sweep, number, tile, slopes) for tile in range(len(tiles))]
