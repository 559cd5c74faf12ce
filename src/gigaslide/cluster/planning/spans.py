"""The windows of all tiles of a plan, one axis at a time, as arrays: what `lay_out` gives, for millions of tiles.

Tiles are the product of rows and columns. Away from the edges of the image each row reads what the one before it reads,
shifted; so a few rows are computed at either end, and one between them stands for all others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gigaslide.geometry import Interval, Window
from gigaslide.network.graph import UPSAMPLING, Graph
from gigaslide.streaming.plan import Plan, Segment, segments
from gigaslide.streaming.tiles import Tile, extents, owned_shape, padded_shape, tile_of

Pixels = NDArray[np.int64]
# Fewer tiles than this are computed one by one.
_FEW = 8
_BEYOND = slice(2, None)  # columns of a tile's table: pixels beyond the edge


@dataclass(frozen=True)
class Spans:
    """Pixels start <= i < stop of a map along one axis, one for each row (or column) of tiles, in their order."""

    starts: Pixels
    stops: Pixels

    @property
    def sizes(self) -> Pixels:
        """Number of pixels of each."""
        return self.stops - self.starts


@dataclass(frozen=True)
class AxisSpans:
    """Along one axis, what the tiles of a segment own of its output and read of each of its inputs."""

    owned: Spans
    reads: Mapping[str, Spans]

    def __len__(self) -> int:
        """Return the number of rows (or columns) of tiles."""
        return len(self.owned.starts)


@dataclass(frozen=True)
class SegmentSpans:
    """The tiles of a segment: rows `y`, columns `x`."""

    segment: Segment
    y: AxisSpans
    x: AxisSpans

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return len(self.y) * len(self.x)


def spans(graph: Graph, plan: Plan, shape: tuple[int, int]) -> list[SegmentSpans]:
    """Return the tiles of every segment, for an area of `shape` (y, x).

    Raises:
        UsageError: as `tiles.extents`.
    """
    padded = padded_shape(graph, shape)
    sizes = extents(graph, padded)
    found = []
    for segment in segments(graph, plan.cuts):
        owned = owned_shape(graph, segment, plan.tiles[segment.output], padded, sizes)
        y, x = (_axis(graph, segment, sizes, owned, number) for number in (0, 1))
        found.append(SegmentSpans(segment, y, x))
    return found


def _axis(
    graph: Graph, segment: Segment, sizes: Mapping[str, tuple[int, int]], owned: tuple[int, int], number: int
) -> AxisSpans:
    size, step = sizes[segment.output][number], owned[number]
    count = -(-size // step)
    across = Interval(0, min(owned[1 - number], sizes[segment.output][1 - number]))

    def tile(index: int) -> Tile:
        along = Interval(index * step, min((index + 1) * step, size))
        window = Window(along, across) if number == 0 else Window(across, along)
        return tile_of(graph, segment, sizes, window)

    shifts = _shifts(graph, segment, step, number)
    if count <= _FEW or shifts is None:
        alone = {index: tile(index) for index in range(count)}
    else:
        alone = _ends(tile, count, number)
    middle = min((index for index in alone if index + 1 not in alone), default=count - 1)
    return AxisSpans(
        _spans(count, alone, middle, step, lambda tile: _along(tile.owned, number)),
        {
            name: _spans(count, alone, middle, (shifts or {}).get(name, 0), lambda t, i=i: _along(t.reads[i], number))
            for i, name in enumerate(segment.inputs)
        },
    )


def _shifts(graph: Graph, segment: Segment, step: int, number: int) -> dict[str, int] | None:
    """Return by how many pixels of each input a tile reads farther than the one before it; None if that varies."""
    numerator, denominator = graph.scales[segment.output][number]
    found = {}
    for name in (*segment.inputs, *segment.ops):
        by, of = graph.scales[name][number]
        shift, rest = divmod(step * numerator * of, denominator * by)
        op = graph.by_name[name]
        block = (op.y, op.x)[number].stride if op.kind in UPSAMPLING else 1
        if rest or (shift % block and name in segment.ops):
            return None
        found[name] = shift
    return found


def _ends(tile: Any, count: int, number: int) -> dict[int, Tile]:
    """Return the tiles at both ends, up to the first ones that need nothing from beyond the edge."""
    found: dict[int, Tile] = {}
    for order in (range(count), range(count - 1, -1, -1)):
        for index in order:
            if index not in found:
                found[index] = tile(index)
            # The last one may be smaller than the others.
            if index < count - 1 and not found[index].table[:, number, _BEYOND].any():
                break
    return found


def _spans(count: int, alone: Mapping[int, Tile], middle: int, shift: int, of: Any) -> Spans:
    """Return the spans of all tiles: those of `alone` as they are, the others as `middle`, shifted."""
    ways = (np.arange(count, dtype=np.int64) - middle) * shift
    like = of(alone[middle])
    starts, stops = like.start + ways, like.stop + ways
    for index, tile in alone.items():
        starts[index], stops[index] = of(tile).start, of(tile).stop
    return Spans(starts, stops)


def _along(window: Window, number: int) -> Interval:
    return window.y if number == 0 else window.x
