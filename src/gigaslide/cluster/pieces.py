"""Which pieces of maps a tile needs, and who made them. Plain values, the same for the driver and for a worker.

A map is never in one place. What a tile wrote of a kept map, and what it adds to the gradient of one, stays a piece of
its own; who reads a window puts it together from the pieces that meet it, gradients added in the order in which
`Streamed` adds them. So the sums are the same, bit for bit.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gigaslide.geometry import Interval, Window
from gigaslide.network.graph import IMAGE
from gigaslide.streaming.layout import Layout
from gigaslide.streaming.plan import Segment
from gigaslide.streaming.tiles import Tile

Array = NDArray[Any]
Sweep = Literal["forward", "statistics", "probability", "loss_backward", "backward"]


class Job(NamedTuple):
    """What is computed of one tile."""

    sweep: Sweep
    segment: int  # its number
    tile: int  # its number within the segment
    slopes: tuple[float, ...] = ()  # for loss_backward: the derivative of the loss by each of its totals


class Key(NamedTuple):
    """The name of a piece of a map: of the map itself if `map` is its maker, else of its gradient."""

    map: str
    maker: str
    tile: int


class Piece(NamedTuple):
    """A piece and the window of its map that it covers."""

    key: Key
    window: Window


def made(segment: Segment, job: Job) -> list[Key]:
    """Return the pieces that a job makes, in the order in which it returns them."""
    if job.sweep == "forward":
        return [Key(segment.output, segment.output, job.tile)]
    if job.sweep in ("loss_backward", "backward"):
        return [Key(name, segment.output, job.tile) for name in segment.inputs if name != IMAGE]
    return []


def needed(layout: Layout, segments: Sequence[Segment], job: Job) -> list[list[Piece]]:
    """Return the pieces that a job reads, of each of the segment's kept inputs and then of its output's gradient."""
    segment = segments[job.segment]
    tile = layout.tiles[segment.output][job.tile]
    found = [
        [Piece(Key(name, name, number), owned) for number, owned in _meeting(layout.tiles[name], _owned, window)]
        for name, window in zip(segment.inputs, tile.reads, strict=True)
        if name != IMAGE
    ]
    if job.sweep == "backward":
        found.append(list(_parts_of_gradient(layout, segments, segment.output, tile.owned)))
    return found


def keys(groups: Iterable[Sequence[Piece]]) -> list[Key]:
    """Return the keys of pieces, each once, in the order in which they are first needed."""
    return list(dict.fromkeys(piece.key for group in groups for piece in group))


def join(window: Window, pieces: Sequence[tuple[Window, Array]], into: Array) -> None:
    """Fill `into`, (1, y, x, channel), with a window of a map that `pieces` cover, each (1, y, x, channel)."""
    for covered, values in pieces:
        common = window.clip(covered)
        into[0][_within(window, common)] = values[0][_within(covered, common)]


def add(window: Window, pieces: Sequence[tuple[Window, Array]], into: Array) -> None:
    """Fill `into` with the sum of `pieces`, added in their order, zero where there is none."""
    into[...] = 0
    for covered, values in pieces:
        common = window.clip(covered)
        part = into[0][_within(window, common)]
        np.add(part, values[0][_within(covered, common)], out=part)


def _parts_of_gradient(layout: Layout, segments: Sequence[Segment], name: str, window: Window) -> Iterator[Piece]:
    for segment in reversed(segments):
        if name in segment.inputs:
            index = segment.inputs.index(name)
            for number, read in _meeting(layout.tiles[segment.output], lambda tile, i=index: tile.reads[i], window):  # type: ignore[misc]
                yield Piece(Key(name, segment.output, number), read)


def _owned(tile: Tile) -> Window:
    return tile.owned


def _meeting(tiles: Sequence[Tile], of: Callable[[Tile], Window], window: Window) -> Iterator[tuple[int, Window]]:
    """Yield number and window `of` the tiles for which it meets `window`, in their order.

    Tiles are the product of rows and columns, so that few of them have to be looked at.
    """
    columns = sum(tile.owned.y == tiles[0].owned.y for tile in tiles)
    rows = [row for row in range(0, len(tiles), columns) if _meet(of(tiles[row]).y, window.y)]
    beside = [column for column in range(columns) if _meet(of(tiles[column]).x, window.x)]
    for row in rows:
        for column in beside:
            yield row + column, of(tiles[row + column])


def _meet(a: Interval, b: Interval) -> bool:
    return a.start < b.stop and b.start < a.stop


def _within(outer: Window, inner: Window) -> tuple[slice, slice]:
    return inner.shift(-outer.y.start, -outer.x.start).slices
