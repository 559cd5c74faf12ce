"""Which pieces of maps a tile needs, who made them, who reads them. Plain values, for the driver and for a worker.

A map is never in one place. What a tile wrote of a kept map, and what it adds to the gradient of one, stays a piece of
its own; who reads a window puts it together from the pieces that meet it, gradients added in the order in which
`Streamed` adds them. So the sums are the same, bit for bit.
"""

from bisect import bisect_left, bisect_right
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
    """A piece, the window of its map that it covers, and the part of that which is read."""

    key: Key
    window: Window
    part: Window


def made(layout: Layout, segments: Sequence[Segment], job: Job) -> list[tuple[Key, Window]]:
    """Return the pieces that a job makes, in the order in which it returns them, each with what it covers."""
    segment = segments[job.segment]
    tile = layout.tiles[segment.output][job.tile]
    if job.sweep == "forward":
        return [(Key(segment.output, segment.output, job.tile), tile.owned)]
    if job.sweep in ("loss_backward", "backward"):
        return [
            (Key(name, segment.output, job.tile), window)
            for name, window in zip(segment.inputs, tile.reads, strict=True)
            if name != IMAGE
        ]
    return []


def needed(layout: Layout, segments: Sequence[Segment], job: Job) -> list[list[Piece]]:
    """Return the pieces that a job reads, of each of the segment's kept inputs and then of its output's gradient."""
    segment = segments[job.segment]
    tile = layout.tiles[segment.output][job.tile]
    found = [
        [
            Piece(Key(name, name, number), owned, owned.clip(window))
            for number, owned in _meeting(layout.tiles[name], _owned, window)
        ]
        for name, window in zip(segment.inputs, tile.reads, strict=True)
        if name != IMAGE
    ]
    if job.sweep == "backward":
        found.append(list(_parts_of_gradient(layout, segments, segment.output, tile.owned)))
    return found


def readers(layout: Layout, segments: Sequence[Segment], key: Key, window: Window) -> Iterator[tuple[str, int, Window]]:
    """Yield who reads a piece that covers `window`: the segment's output, the number of the tile, and the part."""
    if key.map != key.maker:
        for number, owned in _meeting(layout.tiles[key.map], _owned, window):
            yield key.map, number, window.clip(owned)
        return
    for segment in segments:
        if key.map in segment.inputs:
            reads = _reads(segment, key.map)
            for number, read in _meeting(layout.tiles[segment.output], reads, window):
                yield segment.output, number, window.clip(read)


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


def around(windows: Iterable[Window]) -> Window:
    """Return the smallest window that holds all of these."""
    found = list(windows)
    y, x = [window.y for window in found], [window.x for window in found]
    return Window(*(Interval(min(one.start for one in axis), max(one.stop for one in axis)) for axis in (y, x)))


def cut(values: Array, covered: Window, part: Window) -> Array:
    """Return a copy of a part of a piece, (1, y, x, channel), that covers more."""
    return values[:, *_within(covered, part)].copy()


def _parts_of_gradient(layout: Layout, segments: Sequence[Segment], name: str, window: Window) -> Iterator[Piece]:
    for segment in reversed(segments):
        if name in segment.inputs:
            for number, read in _meeting(layout.tiles[segment.output], _reads(segment, name), window):
                yield Piece(Key(name, segment.output, number), read, read.clip(window))


def _owned(tile: Tile) -> Window:
    return tile.owned


def _reads(segment: Segment, name: str) -> Callable[[Tile], Window]:
    index = segment.inputs.index(name)
    return lambda tile: tile.reads[index]


def _meeting(tiles: Sequence[Tile], of: Callable[[Tile], Window], window: Window) -> Iterator[tuple[int, Window]]:
    """Yield number and window `of` the tiles for which it meets `window`, in their order.

    Tiles are the product of rows and columns, and neither the starts nor the ends of their windows ever go back, so
    that few of them have to be looked at.
    """
    columns = columns_of(tiles)
    for row in _between(range(0, len(tiles), columns), lambda tile: of(tiles[tile]).y, window.y):
        for tile in _between(range(row, row + columns), lambda tile: of(tiles[tile]).x, window.x):
            yield tile, of(tiles[tile])


def columns_of(tiles: Sequence[Tile]) -> int:
    """Return how many tiles are in a row of them."""
    return bisect_right(tiles, tiles[0].owned.y.start, key=lambda tile: tile.owned.y.start)


def _between(tiles: range, of: Callable[[int], Interval], wanted: Interval) -> range:
    first = bisect_right(tiles, wanted.start, key=lambda tile: of(tile).stop)
    return tiles[first : bisect_left(tiles, wanted.stop, lo=first, key=lambda tile: of(tile).start)]


def _within(outer: Window, inner: Window) -> tuple[slice, slice]:
    return inner.shift(-outer.y.start, -outer.x.start).slices
