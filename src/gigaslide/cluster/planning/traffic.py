"""Bytes that a step sends between the machines of a cluster, sweep by sweep: counted, not estimated.

As `handing_out.Handing` does it: of each piece that another machine reads, it is sent once in a step the rectangle that
all its tiles read. Only rows of tiles beside a border between two machines' runs (step/machines.py) send anything.
Those are counted column by column, the others not at all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gigaslide.cluster.planning.runs import machine_of, runs
from gigaslide.cluster.planning.spans import SegmentSpans, Spans
from gigaslide.cluster.step.pieces import Sweep
from gigaslide.network.graph import IMAGE, Graph

Counts = NDArray[np.int64]  # one for each machine

# Of a store (slides/store.py): a window is read in whole chunks.
CHUNK_PX = 512
# Compressed, of the project's stores: images 0.6 to 1.6, the largest one 1.33; labels 0.005 to 0.022.
_IMAGE_BYTES_PER_PX = 1.5
_LABEL_BYTES_PER_PX = 0.02
_STATISTICS_BYTES = 5 * 8  # float64, of network/losses.py


class _Grid(NamedTuple):
    """A window of each of some tiles, which are the product of rows and columns."""

    y: Spans
    x: Spans

    @property
    def tiles(self) -> int:
        return len(self.y.starts) * len(self.x.starts)


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
    graph: Graph,
    found: Sequence[SegmentSpans],
    shape: tuple[int, int],
    workers: Sequence[int],
    itemsize: int = 4,
    with_maps: bool = True,
) -> list[SweepTraffic]:
    """Return what each sweep of a step moves.

    Args:
        graph: the network.
        found: its segments' tiles, from `spans`.
        shape: of the area (y, x); nothing beyond it is read from the storage.
        workers: of each machine.
        itemsize: bytes of a value of a map.
        with_maps: count what is sent of maps; without, which takes no time, `in_bytes` and `out_bytes` are 0.
    """
    order = sweeps(len(found))
    into = {which: np.zeros(len(workers), np.int64) for which in order}
    out = {which: np.zeros(len(workers), np.int64) for which in order}
    for pieces, readers, name in _exchanges(found) if with_maps and len(workers) > 1 else ():
        size = graph.by_name[name].channels * itemsize
        for which, to, source, pixels in _moved(pieces, readers, workers):
            into[which][to] += int(pixels.sum()) * size
            np.add.at(out[which], source, pixels * size)
    return [_sweep(graph, found, shape, workers, into[which], out[which], *which) for which in order]


def held_bytes(graph: Graph, found: Sequence[SegmentSpans], workers: Sequence[int], itemsize: int = 4) -> Counts:
    """Return the most bytes of pieces that each machine holds at once, of those that it made.

    Of a gradient it holds what each tile adds to it, and neighbours' parts overlap: more than `model.kept_bytes`.
    """

    def piece(grid: _Grid, name: str) -> Counts:
        return _by_machine(grid.y.sizes, grid.x.sizes, workers) * graph.by_name[name].channels

    maps = {one.segment.output: piece(_owned(one), one.segment.output) for one in found[:-1]}
    gradients: dict[str, Counts] = {}
    nothing = np.zeros(len(workers), np.int64)
    most = sum(maps.values(), nothing)
    for one in reversed(found):
        name = one.segment.output
        maps.pop(name, None)
        for source in one.segment.inputs:
            if source != IMAGE:
                gradients[source] = gradients.get(source, nothing) + piece(_reads(one, source), source)
        most = np.maximum(most, sum(maps.values(), nothing) + sum(gradients.values(), nothing))
        gradients.pop(name, None)
    return most * itemsize


def _sweep(
    graph: Graph,
    found: Sequence[SegmentSpans],
    shape: tuple[int, int],
    workers: Sequence[int],
    into: Counts,
    out: Counts,
    sweep: Sweep,
    number: int,
) -> SweepTraffic:
    here = found[number]
    tiles = np.diff(runs(here.tiles, workers))
    stored = np.zeros(len(workers), np.int64)
    if IMAGE in here.segment.inputs:
        stored += _stored(_reads(here, IMAGE), shape, workers, _IMAGE_BYTES_PER_PX)
    if sweep in ("statistics", "loss_backward"):
        stored += _stored(_owned(here), shape, workers, _LABEL_BYTES_PER_PX)
    results = {"forward": 0, "statistics": _STATISTICS_BYTES}.get(sweep, 4 * _parameters(graph, here))
    return SweepTraffic(sweep, number, tiles, into, out, stored, tiles * results)


_Readers = list[tuple[tuple[Sweep, int], _Grid]]  # the sweep in which tiles read, and what


def _exchanges(found: Sequence[SegmentSpans]) -> Iterator[tuple[_Grid, _Readers, str]]:
    """Yield the pieces of every kept map, and of every part of its gradient, with who reads them, and the map."""
    last = len(found) - 1
    for number, here in enumerate(found[:-1]):
        name = here.segment.output
        consumers = [(index, one) for index, one in enumerate(found) if name in one.segment.inputs]
        readers: _Readers = [
            (("statistics" if index == last else "forward", index), _reads(one, name)) for index, one in consumers
        ]
        yield _owned(here), readers, name
        for _, one in consumers:
            yield _reads(one, name), [(("backward", number), _owned(here))], name


def _moved(
    pieces: _Grid, readers: _Readers, workers: Sequence[int]
) -> Iterator[tuple[tuple[Sweep, int], int, Counts, Counts]]:
    """Yield (sweep, to, from, pixels) of pieces that a machine is sent, in the sweep that reads them there first."""
    columns = len(pieces.x.starts)
    mine = runs(pieces.tiles, workers)
    theirs = [runs(grid.tiles, workers) for _, grid in readers]
    rows = [_meeting(grid.y, pieces.y) for _, grid in readers]
    across = [_meeting(grid.x, pieces.x) for _, grid in readers]
    numbers = np.arange(len(pieces.y.starts)) * columns
    first, last = machine_of(numbers, mine), machine_of(numbers + columns - 1, mine)
    for (_, grid), starts, (low, high) in zip(readers, theirs, rows, strict=True):
        count, some = len(grid.x.starts), high >= low
        first = np.where(some, np.minimum(first, machine_of(low * count, starts)), first)
        last = np.where(some, np.maximum(last, machine_of(high * count + count - 1, starts)), last)
    for row in np.flatnonzero(first < last).tolist():
        makers = machine_of(numbers[row] + np.arange(columns), mine)
        for machine in range(int(first[row]), int(last[row]) + 1):
            part = _Part(columns)
            for index, (_, grid) in enumerate(readers):
                start, stop = int(theirs[index][machine]), int(theirs[index][machine + 1])
                part.add(index, pieces, row, grid, rows[index], across[index], start, stop)
            sent = (part.reader >= 0) & (makers != machine)
            for index, (sweep, _) in enumerate(readers):
                chosen = sent & (part.reader == index)
                if chosen.any():
                    yield sweep, machine, makers[chosen], part.pixels[chosen]


class _Part:
    """Of every piece of a row, the rectangle around what the tiles of one machine read of it."""

    def __init__(self, columns: int) -> None:
        far = np.iinfo(np.int64).max
        self.reader = np.full(columns, -1)  # the first one that reads any of it
        self._y0, self._x0 = np.full(columns, far), np.full(columns, far)
        self._y1, self._x1 = np.zeros(columns, np.int64), np.zeros(columns, np.int64)

    @property
    def pixels(self) -> Counts:
        """Of each rectangle; 0 where nothing is read."""
        there = self.reader >= 0
        found: Counts = np.where(there, self._y1 - self._y0, 0) * np.where(there, self._x1 - self._x0, 0)
        return found

    def add(
        self,
        index: int,
        pieces: _Grid,
        row: int,
        grid: _Grid,
        rows: tuple[Counts, Counts],
        across: tuple[Counts, Counts],
        start: int,
        stop: int,
    ) -> None:
        """Add what reader `index` reads with its tiles from `start` to `stop`."""
        count = len(grid.x.starts)
        low, high = max(int(rows[0][row]), start // count), min(int(rows[1][row]), (stop - 1) // count)
        whole = range(max(low, -(-start // count)), min(high, stop // count - 1) + 1)
        # Rows that are all the machine's read the same columns: together they are one.
        lines = [(whole[0], whole[-1])] if whole else []
        lines += [(one, one) for one in {low, high} if low <= high and one not in whole]
        for top, bottom in lines:
            left = np.maximum(across[0], start - top * count)
            right = np.minimum(across[1], stop - bottom * count - 1)
            there = right >= left
            left, right = np.where(there, left, 0), np.where(there, right, 0)
            y0 = max(int(grid.y.starts[top]), int(pieces.y.starts[row]))
            y1 = min(int(grid.y.stops[bottom]), int(pieces.y.stops[row]))
            x0 = np.maximum(grid.x.starts[left], pieces.x.starts)
            x1 = np.minimum(grid.x.stops[right], pieces.x.stops)
            self._y0 = np.where(there, np.minimum(self._y0, y0), self._y0)
            self._y1 = np.where(there, np.maximum(self._y1, y1), self._y1)
            self._x0 = np.where(there, np.minimum(self._x0, x0), self._x0)
            self._x1 = np.where(there, np.maximum(self._x1, x1), self._x1)
            self.reader = np.where(there & (self.reader < 0), index, self.reader)


def _meeting(readers: Spans, pieces: Spans) -> tuple[Counts, Counts]:
    """Return of every piece the first and the last reader that meets it; neither's starts and ends ever go back."""
    low: Counts = np.searchsorted(readers.stops, pieces.starts, "right")
    high: Counts = np.searchsorted(readers.starts, pieces.stops, "left") - 1
    return low, high


def _owned(spans: SegmentSpans) -> _Grid:
    return _Grid(spans.y.owned, spans.x.owned)


def _reads(spans: SegmentSpans, name: str) -> _Grid:
    return _Grid(spans.y.reads[name], spans.x.reads[name])


def _stored(grid: _Grid, shape: tuple[int, int], workers: Sequence[int], bytes_per_px: float) -> Counts:
    chunks = _by_machine(_chunks(grid.y, shape[0]), _chunks(grid.x, shape[1]), workers)
    sizes: Counts = np.ceil(chunks * CHUNK_PX**2 * bytes_per_px).astype(np.int64)
    return sizes


def _chunks(spans: Spans, size: int) -> Counts:
    """Return how many chunks each meets, of an area that ends at `size`."""
    stops = np.minimum(spans.stops, size)
    found: Counts = np.where(stops > spans.starts, -(-stops // CHUNK_PX) - spans.starts // CHUNK_PX, 0)
    return found


def _by_machine(of_rows: Counts, of_columns: Counts, workers: Sequence[int]) -> Counts:
    """Return, for each machine, the sum over its tiles of the product of what is theirs in their row and column."""
    row, column = np.divmod(runs(len(of_rows) * len(of_columns), workers), len(of_columns))
    before_row, before_column = (np.concatenate([[0], np.cumsum(of)]) for of in (of_rows, of_columns))
    rows = np.append(of_rows, 0)
    sums: Counts = before_row[row] * before_column[-1] + rows[row] * before_column[column]
    return np.diff(sums)


def _parameters(graph: Graph, spans: SegmentSpans) -> int:
    layers = {op.layer or op.name: op.parameters for op in map(graph.by_name.__getitem__, spans.segment.ops)}
    return sum(layers.values())
