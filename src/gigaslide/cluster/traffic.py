"""Bytes that a step sends between the machines of a cluster, sweep by sweep: counted, not estimated.

Of each piece of a map (cluster/pieces.py), a machine gets the rectangle that its tiles read of it, once in a sweep;
what it made itself stays. Rows and columns are counted apart: a machine's band holds all columns, so that only rows of
tiles near a border between two bands send anything, each over the whole width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gigaslide.cluster.bands import machine_of
from gigaslide.cluster.pieces import Sweep
from gigaslide.cluster.spans import SegmentSpans, Spans
from gigaslide.network.graph import IMAGE, Graph

Counts = NDArray[np.int64]  # one for each machine

# Of a store (slides/store.py): a window is read in whole chunks.
CHUNK_PX = 512
# Compressed, of the project's stores: images 0.6 to 1.6, the largest one 1.33; labels 0.005 to 0.022.
_IMAGE_BYTES_PER_PX = 1.5
_LABEL_BYTES_PER_PX = 0.02
_STATISTICS_BYTES = 5 * 8  # float64, of network/losses.py


@dataclass(frozen=True)
class SweepTraffic:
    """What a sweep computes and moves, by machine."""

    sweep: Sweep
    segment: int  # its number
    tiles: Counts
    in_bytes: Counts  # parts of pieces that other machines made
    out_bytes: Counts
    stored_bytes: Counts  # pixels and labels, compressed, from the storage
    result_bytes: Counts  # gradients of weights, or sums of the loss, to the driver

    @property
    def margin_bytes(self) -> int:
        """Bytes between machines, in all."""
        return int(self.in_bytes.sum())


def sweeps(count: int) -> list[tuple[Sweep, int]]:
    """Return the sweeps of a step over `count` segments, in their order, with the numbers of their segments."""
    last = count - 1
    forward: list[tuple[Sweep, int]] = [("forward", number) for number in range(last)]
    backward: list[tuple[Sweep, int]] = [("backward", number) for number in range(last - 1, -1, -1)]
    return [*forward, ("statistics", last), ("loss_backward", last), *backward]


def traffic(
    graph: Graph, found: Sequence[SegmentSpans], shape: tuple[int, int], machines: int, itemsize: int = 4
) -> list[SweepTraffic]:
    """Return what each sweep of a step moves.

    Args:
        graph: the network.
        found: its segments' tiles, from `spans`.
        shape: of the area (y, x); nothing beyond it is read from the storage.
        machines: that share the tiles (cluster/bands.py).
        itemsize: bytes of a value of a map.
    """
    return [_sweep(graph, found, shape, machines, itemsize, *which) for which in sweeps(len(found))]


def held_bytes(graph: Graph, found: Sequence[SegmentSpans], machines: int, itemsize: int = 4) -> Counts:
    """Return the most bytes of pieces that each machine holds at once, of those that it made.

    Of a gradient it holds what each tile adds to it, and neighbours' parts overlap: more than `model.kept_bytes`.
    """

    def piece(spans: SegmentSpans, y: Spans, x: Spans, name: str) -> Counts:
        return _by_machine(y.sizes, len(spans.y), machines) * int(x.sizes.sum()) * graph.by_name[name].channels

    maps = {one.segment.output: piece(one, one.y.owned, one.x.owned, one.segment.output) for one in found[:-1]}
    gradients: dict[str, Counts] = {}
    nothing = np.zeros(machines, np.int64)
    most = sum(maps.values(), nothing)
    for one in reversed(found):
        name = one.segment.output
        maps.pop(name, None)
        for source in one.segment.inputs:
            if source != IMAGE:
                new = piece(one, one.y.reads[source], one.x.reads[source], source)
                gradients[source] = gradients.get(source, nothing) + new
        most = np.maximum(most, sum(maps.values(), nothing) + sum(gradients.values(), nothing))
        gradients.pop(name, None)
    return most * itemsize


def _sweep(
    graph: Graph,
    found: Sequence[SegmentSpans],
    shape: tuple[int, int],
    machines: int,
    itemsize: int,
    sweep: Sweep,
    number: int,
) -> SweepTraffic:
    here = found[number]
    rows, columns = len(here.y), len(here.x)
    tiles = _by_machine(np.ones(rows, np.int64), rows, machines) * columns
    got, sent = np.zeros(machines, np.int64), np.zeros(machines, np.int64)
    for readers, pieces, name in _readings(found, here, sweep):
        width = _columns(readers[1], pieces[1])
        for to, source, height in _rows(readers[0], pieces[0], machines):
            size = height * width * graph.by_name[name].channels * itemsize
            np.add.at(got, to, size)
            np.add.at(sent, source, size)
    stored = np.zeros(machines, np.int64)
    if IMAGE in here.segment.inputs:
        stored += _stored(here.y.reads[IMAGE], here.x.reads[IMAGE], shape, machines, _IMAGE_BYTES_PER_PX)
    if sweep in ("statistics", "loss_backward"):
        stored += _stored(here.y.owned, here.x.owned, shape, machines, _LABEL_BYTES_PER_PX)
    results = {"forward": 0, "statistics": _STATISTICS_BYTES}.get(sweep, 4 * _parameters(graph, here))
    return SweepTraffic(sweep, number, tiles, got, sent, stored, tiles * results)


def _readings(
    found: Sequence[SegmentSpans], here: SegmentSpans, sweep: Sweep
) -> Iterator[tuple[tuple[Spans, Spans], tuple[Spans, Spans], str]]:
    """Yield (rows, columns) of what is read, those of the pieces that it is read from, and the map: as `needed`."""
    by_output = {one.segment.output: one for one in found}
    for name in here.segment.inputs:
        if name != IMAGE:
            maker = by_output[name]
            yield (here.y.reads[name], here.x.reads[name]), (maker.y.owned, maker.x.owned), name
    if sweep == "backward":
        name = here.segment.output
        for maker in found:
            if name in maker.segment.inputs:
                yield (here.y.owned, here.x.owned), (maker.y.reads[name], maker.x.reads[name]), name


def _columns(readers: Spans, pieces: Spans) -> int:
    """Return the pixels, over all columns of pieces, that are read of them: from the first that is to the last."""
    _, sizes = _common(readers, pieces, np.arange(len(pieces.starts)), 0, len(readers.starts) - 1)
    return int(sizes.sum())


def _rows(readers: Spans, pieces: Spans, machines: int) -> Iterator[tuple[Counts, Counts, Counts]]:
    """Yield (to, from, rows of pixels) for the pieces of which machines read some, that others made.

    In rounds: of each piece the first machine that reads it, then the second, ...
    """
    count, rows = len(pieces.starts), len(readers.starts)
    makers = machine_of(np.arange(count), count, machines)
    numbers, _ = _common(readers, pieces, np.arange(count), 0, rows - 1)
    some = np.flatnonzero(numbers[1] >= numbers[0])
    to, last = machine_of(numbers[0][some], rows, machines), machine_of(numbers[1][some], rows, machines)
    while len(some):
        others = to != makers[some]
        chosen, machine = some[others], to[others]
        first_row, after = -(-machine * rows // machines), -(-(machine + 1) * rows // machines)
        _, sizes = _common(readers, pieces, chosen, first_row, after - 1)
        yield machine, makers[chosen], sizes
        some, to, last = some[to < last], to[to < last] + 1, last[to < last]


def _common(
    readers: Spans, pieces: Spans, which: Counts, first: Counts | int, last: Counts | int
) -> tuple[tuple[Counts, Counts], Counts]:
    """Return, of `which` pieces, the first and last reader from `first` to `last` that meets it, and the pixels read.

    Both are in their order along the axis, starts and ends.
    """
    starts, stops = pieces.starts[which], pieces.stops[which]
    low = np.maximum(np.searchsorted(readers.stops, starts, "right"), first)
    high = np.minimum(np.searchsorted(readers.starts, stops, "left") - 1, last)
    there = high >= low
    a, b = np.where(there, low, 0), np.where(there, high, 0)
    sizes = np.minimum(readers.stops[b], stops) - np.maximum(readers.starts[a], starts)
    return (low, high), np.where(there, sizes, 0)


def _stored(y: Spans, x: Spans, shape: tuple[int, int], machines: int, bytes_per_px: float) -> Counts:
    rows = _by_machine(_chunks(y, shape[0]), len(y.starts), machines)
    sizes: Counts = np.ceil(rows * int(_chunks(x, shape[1]).sum()) * CHUNK_PX**2 * bytes_per_px).astype(np.int64)
    return sizes


def _chunks(spans: Spans, size: int) -> Counts:
    """Return how many chunks each meets, of an area that ends at `size`."""
    stops = np.minimum(spans.stops, size)
    found: Counts = np.where(stops > spans.starts, -(-stops // CHUNK_PX) - spans.starts // CHUNK_PX, 0)
    return found


def _by_machine(of_rows: Counts, rows: int, machines: int) -> Counts:
    """Return, for each machine, the sum over the rows of its band."""
    found = np.zeros(machines, np.int64)
    np.add.at(found, machine_of(np.arange(rows), rows, machines), of_rows)
    return found


def _parameters(graph: Graph, spans: SegmentSpans) -> int:
    layers = {op.layer or op.name: op.parameters for op in map(graph.by_name.__getitem__, spans.segment.ops)}
    return sum(layers.values())
