"""The exact streamed step with its tiles computed by the workers of a pool; the same bits as `Streamed`.

The driver hands out jobs, a few tiles at a time, and adds what comes back (weight gradients, sums of the loss) in the
order of the tiles. Maps never come to it: it holds references to their pieces, and hands those to the jobs that read
them. What it holds at once does not depend on the number of tiles.
"""

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gigaslide.cluster.pieces import Job, Key, Sweep, keys, made, needed
from gigaslide.cluster.worker import Recipe, Visit
from gigaslide.geometry import Window
from gigaslide.network import losses
from gigaslide.network.keras_graph import from_model
from gigaslide.network.losses import Statistics
from gigaslide.streaming.engine import Area, StepResult
from gigaslide.streaming.layout import Layout, lay_out
from gigaslide.streaming.plan import Plan, segments
from gigaslide.streaming.segment import weights_of
from gigaslide.streaming.streamed import step_result

# Tiles that are handed out together: a task costs some milliseconds, and within it the next tile is read while one is
# computed. As many tasks as this for each worker of a sweep, so that all end at about the same time.
_MOST_TILES = 8
_TASKS = 4

Reference = Any  # of the pool: a value that some worker's machine holds


class Pool(Protocol):
    """Workers, and the values that they hold (cluster/pool.py)."""

    @property
    def threads(self) -> int:
        """Threads of an operation of a worker."""

    @property
    def workers(self) -> int:
        """How many tasks can be computed at once, now."""

    @property
    def ahead(self) -> int:
        """How many tasks may be handed out at once."""

    def put(self, value: Any) -> Reference:
        """Give a value to all workers."""

    def submit(
        self, recipe: Reference, visit: Reference, jobs: list[Job], pieces: list[Reference], made: int
    ) -> list[Reference]:
        """Hand out some jobs; return the references of their results and of the `made` pieces."""

    def get(self, result: Reference) -> Any:
        """Wait for a value, and return it."""

    def cancel(self, result: Reference) -> None:
        """Do not compute these jobs, if nobody has begun with them."""


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
        return step_result(self.model, float(loss), totals, gradients, visit.wait_s / self._pool.workers)

    def predict(
        self, area: Area, wanted: Callable[[Window], bool] | None = None
    ) -> Iterator[tuple[Window, NDArray[np.float32]]]:
        """Yield windows that tile the area, row by row, with the probability of tissue, (y, x) float32.

        Args:
            area: what is predicted.
            wanted: told a window, whether anything in it is of interest; the others are 0, and not computed.
        """
        inside = Window.of(0, 0, *area.shape)
        tiles = self.layout(area.shape).tiles[self._segments[-1].output]
        owned = [(number, tile.owned.clip(inside)) for number, tile in enumerate(tiles)]
        owned = [(number, window) for number, window in owned if window.y.size and window.x.size]
        chosen = [number for number, window in owned if wanted is None or wanted(window)]
        computed = self._visit(area).probabilities(chosen)
        coming = set(chosen)
        for number, window in owned:
            if number in coming:
                yield window, next(computed)[: window.y.size, : window.x.size]
            else:
                yield window, np.zeros(window.shape, np.float32)

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
        self._visit = engine._pool.put(Visit((engine._key, engine._visits), area, engine.model.get_weights()))
        self._pieces: dict[Key, Reference] = {}
        self._last = len(engine._segments) - 1
        self.wait_s = 0.0

    def statistics(self) -> Statistics:
        """Have the map of every cut computed, and sum up what the loss needs, over the whole area."""
        totals = np.zeros(len(Statistics._fields))
        for _, part in self._results(chain(self._forward(), [self._sweep("statistics", self._last)])):
            totals += part
        return Statistics(*tf.unstack(tf.constant(totals)))

    def probabilities(self, chosen: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """Yield the probability of tissue, (y, x), of those tiles that are chosen."""
        jobs = [Job("probability", self._last, tile) for tile in chosen]
        for _, found in self._results(chain(self._forward(), [jobs])):
            yield found

    def pull_back(self, slopes: tuple[float, ...]) -> list[NDArray[np.float64]]:
        """Backward: return the gradient of every weight."""
        sums = [np.zeros(variable.shape) for variable in self._engine.model.trainable_variables]
        for job, weights in self._results(self._backward(slopes)):
            for index, gradient in zip(self._engine._weights[job.segment], weights, strict=True):
                sums[index] += gradient
        return sums

    def _forward(self) -> Iterator[list[Job]]:
        for number in range(self._last):
            yield self._sweep("forward", number)

    def _backward(self, slopes: tuple[float, ...]) -> Iterator[list[Job]]:
        """Yield the jobs of sweep after sweep; the next is asked for when those of one are all handed out."""
        for number in range(self._last, -1, -1):
            output = self._engine._segments[number].output
            # Whoever reads this map is handed out, and Ray keeps what they need; its gradient is yet to be read.
            self._forget(lambda key, name=output: key.map == key.maker == name)  # type: ignore[misc]
            yield self._sweep("loss_backward", number, slopes) if slopes else self._sweep("backward", number)
            self._forget(lambda key, name=output: key.map == name)  # type: ignore[misc]
            slopes = ()

    def _sweep(self, sweep: Sweep, number: int, slopes: tuple[float, ...] = ()) -> list[Job]:
        tiles = self._layout.tiles[self._engine._segments[number].output]
        return [Job(sweep, number, tile, slopes) for tile in range(len(tiles))]

    def _results(self, sweeps: Iterable[list[Job]]) -> Iterator[tuple[Job, Any]]:
        """Yield the jobs that have a result, in their order, with it; a bounded number is handed out at a time.

        Jobs of a sweep may begin before the last of the sweep before it are done: each waits only for what it reads.
        """
        pool = self._engine._pool
        running: deque[tuple[list[Job], Reference]] = deque()
        try:
            for jobs in sweeps:
                ahead = pool.ahead
                count = max(1, min(_MOST_TILES, len(jobs) // (pool.workers * _TASKS)))
                for first in range(0, len(jobs), count):
                    some = jobs[first : first + count]
                    running.append((some, self._hand_out(some)))
                    if len(running) >= ahead:
                        yield from self._taken(*running.popleft())
            while running:
                yield from self._taken(*running.popleft())
        finally:
            for _, result in running:
                pool.cancel(result)

    def _hand_out(self, jobs: list[Job]) -> Reference:
        engine = self._engine
        read = keys(group for job in jobs for group in needed(self._layout, engine._segments, job))
        new = [key for job in jobs for key in made(engine._segments[job.segment], job)]
        arrays = [self._pieces[key] for key in read]
        result, *pieces = engine._pool.submit(engine._recipe, self._visit, jobs, arrays, len(new))
        self._pieces.update(zip(new, pieces, strict=True))
        return result

    def _taken(self, jobs: list[Job], reference: Reference) -> Iterator[tuple[Job, Any]]:
        wait_s, values = self._engine._pool.get(reference)
        self.wait_s += wait_s
        yield from ((job, value) for job, value in zip(jobs, values, strict=True) if value is not None)

    def _forget(self, done: Callable[[Key], bool]) -> None:
        self._pieces = {key: reference for key, reference in self._pieces.items() if not done(key)}
