"""Tiles of a segment as frozen values: what each owns, what it reads, and where the edge of the image is.

Everything is computed beforehand, one axis at a time, from the graph's receptive fields. A tile owns a window of its
segment's output; every output pixel is owned by exactly one tile. Going back from the owned window, each operation
gets exactly the window that is needed, so nothing is computed to be thrown away but what two tiles both need.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gigaslide.errors import UsageError
from gigaslide.geometry import Interval, Window, round_up, split
from gigaslide.network.graph import Axis, Graph, Op
from gigaslide.network.receptive import aligned, extent, needed
from gigaslide.streaming.plan import Segment, balanced_tile

AxisName = Literal["y", "x"]
# Columns of a tile's table: first pixel and size of the crop from what the input holds, pixels beyond the edge.
_START, _SIZE, _BEFORE, _AFTER = range(4)


@dataclass(frozen=True)
class Tile:
    """One tile of a segment. Windows are in pixels of the map that they belong to."""

    owned: Window  # of the segment's output
    reads: tuple[Window, ...]  # of each input of the segment
    holds: tuple[Window, ...]  # of each of its operations: what is computed
    # (edge, axis, 4) int32: per input of every operation, in order, and last for the output, the crop and the padding.
    table: NDArray[np.int32]

    @cached_property
    def touches_edge(self) -> bool:
        """Whether any operation needs pixels beyond the edge of its input."""
        return bool(self.table[..., _BEFORE:].any())


@dataclass(frozen=True)
class _AxisTile:
    owned: Interval
    reads: tuple[Interval, ...]
    holds: tuple[Interval, ...]
    rows: tuple[tuple[int, int, int, int], ...]


def extents(graph: Graph, shape: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Return the size (y, x) of every map for an image of `shape`.

    Raises:
        UsageError: a map has no pixel, two maps that are joined differ in size, or the logits' size is not the image's.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for op in graph.ops:
        if not op.inputs:
            sizes[op.name] = shape
            continue
        inputs = [sizes[name] for name in op.inputs]
        if len(set(inputs)) > 1:
            raise UsageError(
                f"layer {op.layer!r} joins maps of one size; for an image of {shape[0]} x {shape[1]} px it gets "
                f"{' and '.join(f'{y} x {x}' for y, x in inputs)}"
            )
        height, width = extent(op, op.y, inputs[0][0]), extent(op, op.x, inputs[0][1])
        if min(height, width) < 1:
            raise UsageError(f"an image of {shape[0]} x {shape[1]} px is too small for layer {op.layer!r}")
        sizes[op.name] = height, width
    height, width = sizes[graph.output.name]
    if (height, width) != shape:
        raise UsageError(
            f"the network's output has the size of the image; for {shape[0]} x {shape[1]} px layer "
            f"{graph.output.layer!r} gives {height} x {width}: use padding 'same', or pad and crop"
        )
    return sizes


def padded_shape(graph: Graph, shape: tuple[int, int]) -> tuple[int, int]:
    """Return `shape` rounded up to multiples of the network's total stride."""
    by_y, by_x = graph.total_stride
    return round_up(shape[0], by_y), round_up(shape[1], by_x)


def owned_shape(
    graph: Graph,
    segment: Segment,
    tile: tuple[int, int],
    padded: tuple[int, int],
    sizes: Mapping[str, tuple[int, int]],
) -> tuple[int, int]:
    """Return what a tile owns of the segment's output, (y, x).

    Args:
        graph: the network.
        segment: one of its segments.
        tile: the plan's tile for it, (y, x) in pixels of the image.
        padded: the image's shape, from `padded_shape`.
        sizes: of every map, from `extents`.
    """
    balanced = balanced_tile(padded, tile, graph.total_stride)
    size = sizes[segment.output]
    # At least a pixel: a map without padding is smaller than its share of the image.
    return max(1, balanced[0] * size[0] // padded[0]), max(1, balanced[1] * size[1] // padded[1])


def tiles(
    graph: Graph, segment: Segment, sizes: Mapping[str, tuple[int, int]], tile: tuple[int, int]
) -> tuple[Tile, ...]:
    """Return the tiles of a segment, row by row.

    Args:
        graph: the network.
        segment: one of its segments.
        sizes: of every map, from `extents`.
        tile: (y, x) that a tile owns, in pixels of the segment's output; the last ones may be smaller.
    """
    height, width = sizes[segment.output]
    rows = [_axis_tile(graph, segment, sizes, "y", owned) for owned in split(height, tile[0])]
    columns = [_axis_tile(graph, segment, sizes, "x", owned) for owned in split(width, tile[1])]
    return tuple(_tile(y, x) for y in rows for x in columns)


def tile_of(graph: Graph, segment: Segment, sizes: Mapping[str, tuple[int, int]], owned: Window) -> Tile:
    """Return the tile of a segment that owns the window `owned` of its output."""
    return _tile(_axis_tile(graph, segment, sizes, "y", owned.y), _axis_tile(graph, segment, sizes, "x", owned.x))


def _tile(y: _AxisTile, x: _AxisTile) -> Tile:
    return Tile(
        Window(y.owned, x.owned),
        tuple(Window(a, b) for a, b in zip(y.reads, x.reads, strict=True)),
        tuple(Window(a, b) for a, b in zip(y.holds, x.holds, strict=True)),
        np.stack([np.array(y.rows, np.int32), np.array(x.rows, np.int32)], axis=1),
    )


def _axis_tile(
    graph: Graph, segment: Segment, sizes: Mapping[str, tuple[int, int]], axis: AxisName, owned: Interval
) -> _AxisTile:
    number = 0 if axis == "y" else 1
    wanted: dict[str, Interval] = {segment.output: owned}
    held: dict[str, Interval] = {}
    wants: dict[tuple[str, int], Interval] = {}  # what an operation needs of its n-th input, not clipped
    for name in reversed(segment.ops):
        op = graph.by_name[name]
        held[name] = aligned(op, _axis(op, axis), wanted[name])
        for index, source in enumerate(op.inputs):
            size = sizes[source][number]
            window = needed(op, _axis(op, axis), held[name], size)
            wants[name, index] = window
            wanted[source] = _hull(wanted.get(source), _inside(window, size))
    for name in segment.inputs:
        held[name] = wanted[name]

    rows = []
    for name in segment.ops:
        for index, source in enumerate(graph.by_name[name].inputs):
            rows.append(_row(wants[name, index], sizes[source][number], held[source]))
    rows.append((owned.start - held[segment.output].start, owned.size, 0, 0))
    reads, holds = (tuple(held[name] for name in names) for names in (segment.inputs, segment.ops))
    return _AxisTile(owned, reads, holds, tuple(rows))


def _axis(op: Op, axis: AxisName) -> Axis:
    return op.y if axis == "y" else op.x


def _inside(window: Interval, size: int) -> Interval:
    """Return the part of `window` inside the map; its nearest pixel if there is none."""
    inside = window.clip(Interval(0, size))
    if inside.size:
        return inside
    start = min(inside.start, size - 1)
    return Interval(start, start + 1)


def _row(window: Interval, size: int, held: Interval) -> tuple[int, int, int, int]:
    inside = window.clip(Interval(0, size))
    if not inside.size:
        return 0, 0, window.size, 0
    return inside.start - held.start, inside.size, inside.start - window.start, window.stop - inside.stop


def _hull(a: Interval | None, b: Interval) -> Interval:
    return b if a is None else Interval(min(a.start, b.start), max(a.stop, b.stop))
