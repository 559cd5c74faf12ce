"""The fastest plan that fits a memory budget.

Candidates are made from two thresholds. Maps finer than the first are computed again from the image wherever they are
needed; where the network first becomes that coarse, and at every coarser level, the map is kept. The same for the maps
from which it becomes finer again, with the second. Each is tried with a few tile sizes, in memory and on disk.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gigaslide.errors import GigaslideError
from gigaslide.memory import cost, model
from gigaslide.memory.model import Platform, Prediction
from gigaslide.network.graph import IMAGE, UPSAMPLING, Graph, Op
from gigaslide.streaming.plan import Plan, Storage, segments
from gigaslide.streaming.tiles import padded_shape

# Pixels, along one side, of a tile of the finest map of its segment: more do not fit a core's cache, fewer are
# dominated by what a call costs.
_TILE_PX = (512, 1024, 2048)
_SMALLEST_TILE_PX = 256
# Plans whose predicted times differ by less than this are equally fast, as far as a prediction can tell.
_NEARLY = 1.1
_STORAGES: tuple[Storage, ...] = ("ram", "disk")


class DoesNotFit(GigaslideError):  # noqa: N818  (it says what it says)
    """No plan fits the budget."""


@dataclass(frozen=True)
class Candidate:
    """A plan with what it is predicted to need."""

    plan: Plan
    prediction: Prediction
    step_s: float

    @property
    def peak_bytes(self) -> int:
        """Most bytes of the process at once."""
        return self.prediction.peak_bytes


def candidate(
    graph: Graph,
    shape: tuple[int, int],
    plan: Plan,
    workers: int,
    itemsize: int = 4,
    platform: Platform | None = None,
    runtime_bytes: int | None = None,
) -> Candidate:
    """Return a plan with what it is predicted to need for an area of `shape` (y, x); more as for `model.predict`."""
    prediction = model.predict(graph, shape, plan, itemsize, platform, runtime_bytes)
    return Candidate(plan, prediction, cost.step_s(graph, shape, plan, workers))


def candidates(graph: Graph, shape: tuple[int, int], workers: int, **about: Any) -> list[Candidate]:
    """Return every plan worth looking at, fastest first; not the whole-image one. `about` is handed to `candidate`."""
    plans = _plans(graph, padded_shape(graph, shape), workers)
    found = [candidate(graph, shape, plan, workers, **about) for plan in plans]
    return sorted(found, key=lambda candidate: (candidate.step_s, candidate.peak_bytes))


def choose(found: list[Candidate], shape: tuple[int, int], budget_bytes: float) -> Candidate:
    """Return the fastest candidate that fits; of those that are nearly as fast, the one that needs least.

    Raises:
        DoesNotFit: none does; the message says by how much, and the smallest budget that would do.
    """
    fitting = [candidate for candidate in found if candidate.peak_bytes <= budget_bytes]
    if fitting:
        fastest = min(candidate.step_s for candidate in fitting)
        near = [candidate for candidate in fitting if candidate.step_s <= _NEARLY * fastest]
        return min(near, key=lambda candidate: candidate.peak_bytes)
    smallest = min(found, key=lambda candidate: candidate.peak_bytes)
    raise DoesNotFit(
        f"a training step on {shape[0]} x {shape[1]} px does not fit {budget_bytes / 1e9:.2f} GB: the smallest plan "
        f"({smallest.plan.name}) needs {smallest.peak_bytes / 1e9:.2f} GB, "
        f"{(smallest.peak_bytes - budget_bytes) / 1e9:.2f} GB more; set memory.budget_gb to "
        f"{_rounded_up_gb(smallest.peak_bytes)} or more, or prepare.region_px to a smaller area"
    )


def _rounded_up_gb(size: int) -> str:
    return f"{-(-size // 10_000_000) / 100:.2f}"


def _plans(graph: Graph, padded: tuple[int, int], workers: int) -> Iterator[Plan]:
    for cuts in cut_sets(graph):
        seen = set()
        for tile_px in (_SMALLEST_TILE_PX, *_TILE_PX):
            tiles = {s.output: tile_px_of(graph, s.inputs + s.ops, tile_px, padded) for s in segments(graph, cuts)}
            if tuple(tiles.values()) in seen:
                continue
            seen.add(tuple(tiles.values()))
            kept = "+".join(cuts) or "none"
            plan = Plan(f"cut:{kept} tile:{tile_px}", cuts, tiles)
            for count in sorted({1, workers}, reverse=True):
                for storage in _STORAGES if cuts else _STORAGES[:1]:
                    if tile_px == _SMALLEST_TILE_PX and count > 1:
                        continue  # only to get below a small budget
                    suffix = (" disk" if storage == "disk" else "") + ("" if count == workers else " one worker")
                    yield replace(plan, name=plan.name + suffix, storage=storage, workers=count)


def tile_px_of(graph: Graph, ops: tuple[str, ...], tile_px: int, padded: tuple[int, int]) -> tuple[int, int]:
    """Return a tile in pixels of the image, a multiple of the total stride, no larger than the area."""
    found = []
    for axis in (0, 1):
        finest = min(graph.scales[name][axis][0] / graph.scales[name][axis][1] for name in ops)
        step = graph.total_stride[axis]
        found.append(min(max(step, int(tile_px * finest) // step * step), padded[axis]))
    return found[0], found[1]


def cut_sets(graph: Graph) -> list[tuple[str, ...]]:
    """Return the sets of cuts worth looking at; the first one is empty."""
    levels = sorted({_scale(graph, op.name) for op in graph.ops if _scale(graph, op.name) > 1})
    found: dict[tuple[str, ...], None] = {(): None}
    for first in levels:
        down = {op.name for op in graph.ops if _is_coarser(graph, op) and _scale(graph, op.name) >= first}
        for second in levels:
            up = {
                _before_activation(graph, op.inputs[0])
                for op in graph.ops
                if op.kind in UPSAMPLING and _scale(graph, op.inputs[0]) >= second
            }
            skips = {
                _before_activation(graph, name)
                for op in graph.ops
                if op.kind in ("concat", "merge")
                for name in op.inputs
                if _scale(graph, name) >= first and not _comes_from_upsampling(graph, name)
            }
            for chosen in (down | up, down | up | skips):
                chosen -= {IMAGE, graph.output.name}
                found[tuple(op.name for op in graph.ops if op.name in chosen)] = None
    return list(found)


def _scale(graph: Graph, name: str) -> float:
    (a, b), (c, d) = graph.scales[name]
    return max(a / b, c / d)


def _is_coarser(graph: Graph, op: Op) -> bool:
    return bool(op.inputs) and _scale(graph, op.name) > _scale(graph, op.inputs[0])


def _before_activation(graph: Graph, name: str) -> str:
    """Step back over an activation: a map kept before it spares the backward sweep the convolution's forward one."""
    op = graph.by_name[name]
    while op.elementwise and op.inputs[0] != IMAGE:
        op = graph.by_name[op.inputs[0]]
    return op.name


def _comes_from_upsampling(graph: Graph, name: str) -> bool:
    """Whether the way back from `name` meets an up-sampling before it meets a finer map."""
    waiting, here = [name], _scale(graph, name)
    while waiting:
        op = graph.by_name[waiting.pop()]
        if op.kind in UPSAMPLING:
            return True
        waiting += [source for source in op.inputs if _scale(graph, source) == here]
    return False
