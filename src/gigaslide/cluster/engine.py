"""The exact streamed step with its tiles computed by the workers of a pool; the same bits as `Streamed`.

The driver hands out jobs, a tile each, and adds what comes back (weight gradients, sums of the loss) in the order of
the tiles. Maps never come to it: it holds references to their pieces, and hands those to the jobs that read them. What
it holds at once does not depend on the number of tiles.
"""

import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gigaslide.cluster.pieces import Job, Key, Sweep, made, needed
from gigaslide.cluster.worker import Recipe, Visit
from gigaslide.geometry import Window
from gigaslide.network import losses
from gigaslide.network.keras_graph import from_model
from gigaslide.network.losses import Statistics
from gigaslide.streaming.engine import Area, StepResult
from gigaslide.streaming.layout import Layout, lay_out
from gigaslide.streaming.plan import READ_AHEAD, Plan, segments
from gigaslide.streaming.segment import weights_of

Reference = Any  # of the pool: a value that some worker's machine holds


class Pool(Protocol):
    """Workers, and the values that they hold (cluster/pool.py)."""

    @property
    def threads(self) -> int:
        """Threads of an operation of a worker."""

    @property
    def workers(self) -> int:
        """How many jobs can be computed at once, now."""

    def put(self, value: Any) -> Reference:
        """Give a value to all workers."""

    def submit(
        self, recipe: Reference, visit: Reference, job: Job, pieces: list[Reference], made: int
    ) -> list[Reference]:
        """Hand out a job; return the references of its result and of the `made` pieces."""

    def get(self, result: Reference) -> Any:
        """Wait for a value, and return it."""

    def cancel(self, result: Reference) -> None:
        """Do not compute this job, if nobody has begun with it."""


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
        visit.compute_maps()
        totals = visit.statistics()
        loss, slopes = losses.slopes(totals, *self._loss_weights)
        gradients = visit.pull_back(tuple(float(slope) for slope in slopes))
        kinds = [tf.as_dtype(variable.dtype).as_numpy_dtype for variable in self.model.trainable_variables]
        return StepResult(
            float(loss),
            float(losses.soft_dice(totals)),
            [gradient.astype(kind) for gradient, kind in zip(gradients, kinds, strict=True)],
            visit.read_s / self._pool.workers,
        )

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
        visit = self._visit(area)
        visit.compute_maps()
        computed = visit.sweep("probability", len(self._segments) - 1, chosen=chosen)
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
        self.read_s = 0.0

    def compute_maps(self) -> None:
        """Forward: have the map of every cut computed."""
        for number in range(len(self._engine._segments) - 1):
            deque(self.sweep("forward", number), maxlen=0)

    def statistics(self) -> Statistics:
        """Sum up what the loss needs, over the whole area."""
        totals = np.zeros(len(Statistics._fields))
        for part in self.sweep("statistics", len(self._engine._segments) - 1):
            totals += part
        return Statistics(*tf.unstack(tf.constant(totals)))

    def pull_back(self, slopes: tuple[float, ...]) -> list[NDArray[np.float64]]:
        """Backward: return the gradient of every weight."""
        engine = self._engine
        variables = engine.model.trainable_variables
        sums = [np.zeros(variable.shape) for variable in variables]
        last = len(engine._segments) - 1
        for number in range(last, -1, -1):
            output = engine._segments[number].output
            # Every segment that reads this map is done; its gradient is what stays.
            self._forget(lambda key, name=output: key.map == key.maker == name)  # type: ignore[misc]
            sweep: Sweep = "loss_backward" if number == last else "backward"
            for weights in self.sweep(sweep, number, slopes if number == last else ()):
                for index, gradient in zip(engine._weights[number], weights, strict=True):
                    sums[index] += gradient
            self._forget(lambda key, name=output: key.map == name)  # type: ignore[misc]
        return sums

    def sweep(
        self, sweep: Sweep, number: int, slopes: tuple[float, ...] = (), chosen: list[int] | None = None
    ) -> Iterator[Any]:
        """Yield the results of a segment's tiles, or of those chosen, in their order."""
        engine, pool = self._engine, self._engine._pool
        segment = engine._segments[number]
        tiles = range(len(self._layout.tiles[segment.output])) if chosen is None else chosen
        most = pool.workers * (1 + READ_AHEAD)
        running: deque[Reference] = deque()
        try:
            for tile in tiles:
                job = Job(sweep, number, tile, slopes)
                read = [self._pieces[p.key] for group in needed(self._layout, engine._segments, job) for p in group]
                keys = made(segment, job)
                result, *pieces = pool.submit(engine._recipe, self._visit, job, read, len(keys))
                self._pieces.update(zip(keys, pieces, strict=True))
                running.append(result)
                if len(running) > most:
                    yield self._result(running.popleft())
            while running:
                yield self._result(running.popleft())
        finally:
            for result in running:
                pool.cancel(result)

    def _result(self, reference: Reference) -> Any:
        read_s, value = self._engine._pool.get(reference)
        self.read_s += read_s
        return value

    def _forget(self, done: Callable[[Key], bool]) -> None:
        self._pieces = {key: reference for key, reference in self._pieces.items() if not done(key)}
