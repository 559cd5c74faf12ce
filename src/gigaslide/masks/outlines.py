"""The exact outlines of the tissue in a mask of any size, in memory bounded by the number of their corners.

Points are (y, x) on the lattice of pixel corners: pixel (row, column) covers row to row + 1 and column to column + 1.
Tissue is 4-connected: two pixels that touch at a corner only are two pieces. Every ring is simple; rings touch at
points at most. So a shell and its holes are a valid polygon (OGC Simple Features), and its inside is connected.

Time is that of reading the mask, some tenths of a nanosecond per pixel, and some tens of nanoseconds per corner. Up to
2^31 corners; about 40 bytes are held for each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from gigaslide.classes import TISSUE
from gigaslide.errors import GigaslideError
from gigaslide.geometry import split
from gigaslide.masks import cleaning, tracing

_BAND_ROWS = 256
_WORD_BYTES = 8
_MOST_CORNERS = 2**31 - 1
_POLYGONS_AT_ONCE = 4096


@dataclass(frozen=True)
class _Graph:
    """Corners and the outlines between one piece of tissue and one of glass; see tracing.py."""

    y: NDArray[np.int32]
    x: NDArray[np.int32]
    partner: NDArray[np.int32]
    outline: NDArray[np.int32]
    is_hole: NDArray[np.bool_]
    inside: NDArray[np.int32]
    area_px: NDArray[np.int64]

    def only(self, kept: NDArray[np.bool_], inside: NDArray[np.int32]) -> "_Graph":
        """Return what is left when only some outlines are `kept`, which lie `inside` others as given."""
        corners = kept[self.outline]
        number = np.cumsum(corners, dtype=np.int32) - 1
        outline_number = np.cumsum(kept, dtype=np.int32) - 1
        inside = inside[kept]
        return _Graph(
            self.y[corners],
            self.x[corners],
            number[self.partner[corners]],
            outline_number[self.outline[corners]],
            self.is_hole[kept],
            np.where(inside < 0, np.int32(-1), outline_number[inside]).astype(np.int32),
            self.area_px[kept],
        )


@dataclass(frozen=True)
class Outlines:
    """The outlines of the tissue in a mask, as flat arrays; in the order of their upper left corners.

    `shape`: (y, x) of the mask in px. `vertices`: int32 (vertices, 2), (y, x); the closing vertex is not repeated.
    `starts`: int64 (rings + 1,), ring k has the vertices from starts[k] to starts[k + 1]. `parents`: int32 (rings,),
    -1 for a shell, else the shell the hole lies in, which comes before it. `areas_px`: int64 (rings,), of what the ring
    is around. In (x, y), shells have positive orientation and holes negative (RFC 7946).
    """

    shape: tuple[int, int]
    vertices: NDArray[np.int32]
    starts: NDArray[np.int64]
    parents: NDArray[np.int32]
    areas_px: NDArray[np.int64]
    _graph: _Graph

    @cached_property
    def shells(self) -> NDArray[np.int64]:
        """The numbers of the rings that are shells, int64 (pieces,)."""
        return np.flatnonzero(self.parents < 0)

    @property
    def pieces(self) -> int:
        """Pieces of tissue."""
        return len(self.shells)

    @cached_property
    def piece_areas_px(self) -> NDArray[np.int64]:
        """Tissue of each piece, holes left out, int64 (pieces,)."""
        owner = np.where(self.parents < 0, np.arange(len(self.parents)), self.parents)
        signed = np.where(self.parents < 0, self.areas_px, -self.areas_px)
        areas_px = np.zeros(len(self.parents), np.int64)
        np.add.at(areas_px, owner, signed)
        return areas_px[self.shells]

    @property
    def tissue_px(self) -> int:
        """Pixels of tissue."""
        return int(self.piece_areas_px.sum())

    @property
    def hole_px(self) -> int:
        """Pixels in holes, with the tissue that lies in them."""
        return int(self.areas_px[self.parents >= 0].sum())

    @cached_property
    def rings_of_pieces(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All rings, piece by piece, the shell first, int64 (rings,), and where each piece starts, (pieces + 1,)."""
        owner = np.where(self.parents < 0, np.arange(len(self.parents)), self.parents)
        order = np.argsort(owner, kind="stable")
        return order, np.append(np.searchsorted(owner[order], self.shells), len(order))

    def without_small(self, min_piece_px: int, min_hole_px: int) -> "Outlines":
        """Return the outlines without pieces under `min_piece_px`, and then without holes under `min_hole_px`.

        The tissue of a piece counts without its holes. A hole is glass that a piece surrounds, glass being 8-connected;
        what counts is its glass, with pieces taken away before; islands in it become part of the piece. As
        scikit-image's `remove_small_objects(connectivity=1)` and then `remove_small_holes(connectivity=2)`, but that
        glass at the sides of the mask is no hole.
        """
        graph = self._graph
        kept, around = cleaning.without_small(graph.is_hole, graph.inside, graph.area_px, min_piece_px, min_hole_px)
        return self if kept.all() else _outlines(self.shape, graph.only(kept, around))

    def read_rows(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return the tissue of rows `start` to `stop` of the mask, bool (y, x)."""
        if not 0 <= start <= stop <= self.shape[0]:
            raise ValueError(f"rows are within 0 to {self.shape[0]}; received start={start}, stop={stop}")
        filled = np.zeros((stop - start, self.shape[1]), np.uint8)
        if filled.size:
            tracing.fill_rows(self.vertices, self.starts, start, filled)
        return filled.view(np.bool_)

    def bands(self, rows: int = _BAND_ROWS) -> Iterator[NDArray[np.bool_]]:
        """Yield the tissue of the mask from top to bottom, bool (rows or less, x)."""
        for band in split(self.shape[0], rows):
            yield self.read_rows(band.start, band.stop)

    @property
    def corners(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The vertices row by row, left to right: their y and their x, int32 (vertices,) each."""
        return self._graph.y, self._graph.x

    def polygons(self) -> Iterator[shapely.Polygon]:
        """Yield each piece as a valid polygon with its holes, corners (x, y), in the order of `shells`."""
        for start in range(0, self.pieces, _POLYGONS_AT_ONCE):
            stop = min(start + _POLYGONS_AT_ONCE, self.pieces)
            yield from polygons_of(self, self.vertices[:, ::-1], self.starts, start, stop)


def polygons_of(
    outlines: Outlines, points: NDArray[Any], starts: NDArray[np.int64], start: int, stop: int
) -> NDArray[np.object_]:
    """Return pieces `start` to `stop` as polygons, object (pieces,).

    `points` and `starts` are in the place of those of the outlines: (vertices, 2) as (x, y), (rings + 1,).
    """
    order, first = outlines.rings_of_pieces
    rings = order[first[start] : first[stop]]
    corners = np.diff(starts)[rings] + 1  # the first one again at the end
    ends = np.cumsum(corners)
    which = np.arange(ends[-1]) + np.repeat(starts[rings] - (ends - corners), corners)
    which[ends - 1] = starts[rings]
    made: Any = shapely.linearrings(points[which].astype(np.float64), indices=np.repeat(np.arange(len(rings)), corners))
    piece = np.repeat(np.arange(stop - start), np.diff(first[start : stop + 1]))
    return np.asarray(shapely.polygons(made, indices=piece), dtype=object)


def _outlines(shape: tuple[int, int], graph: _Graph) -> Outlines:
    simple = tracing.split_outlines(graph.y, graph.x, graph.partner, graph.outline)
    vertices, starts, parents, areas_px = tracing.walk_rings(
        graph.y, graph.x, simple, graph.outline, graph.is_hole, graph.inside
    )
    return Outlines(shape, vertices, starts, parents, areas_px, graph)


class OutlineTracer:
    """Finds the outlines of a mask of `width` columns that is handed over from top to bottom."""

    def __init__(self, width: int) -> None:
        """Start above the first row."""
        self._width, self._height, self._count = width, 0, 0
        # At least one column beyond the mask, in whole words.
        words = width // _WORD_BYTES + 1
        self._rows = np.zeros((_BAND_ROWS + 1, words * _WORD_BYTES), np.uint8)
        self._open_edges = np.zeros(words * _WORD_BYTES, np.int32)
        self._corners = [np.empty(0, np.int32) for _ in range(4)]

    def _scan(self, rows: int) -> None:
        """Find the corners above each of `rows` new rows, which follow the last one in `self._rows`."""
        done = 0
        while done < rows:
            part = self._rows[done : rows + 1]
            y, x, partner, left = self._corners
            scanned, self._count = tracing.scan_rows(
                part, part.view(np.uint64), self._height + done, self._open_edges, y, x, partner, left, self._count
            )
            done += scanned
            if done < rows:
                self._grow()
        self._height += rows
        self._rows[0] = self._rows[rows]

    def _grow(self) -> None:
        size = 2 * len(self._corners[0]) + 4 * self._rows.shape[1]
        if self._count + 2 * self._rows.shape[1] > _MOST_CORNERS:
            raise GigaslideError(
                f"the outlines of the mask should have at most {_MOST_CORNERS} corners; they have more by row "
                f"{self._height}: is it noise? Predict at a larger --mpp"
            )
        for number, old in enumerate(self._corners):
            self._corners[number] = np.empty(min(size, _MOST_CORNERS), np.int32)
            self._corners[number][: self._count] = old[: self._count]

    def add_rows(self, labels: NDArray[np.uint8] | NDArray[np.bool_]) -> None:
        """Take the next rows, (rows, width): bool, or uint8 labels of which 1 is tissue.

        Raises:
            GigaslideError: there are more corners than can be numbered.
        """
        if labels.ndim != 2 or labels.shape[1] != self._width:
            raise ValueError(f"rows are (rows, {self._width}); received shape={labels.shape}")
        for band in split(len(labels), _BAND_ROWS):
            below = self._rows[1 : band.size + 1, : self._width]
            np.equal(labels[band.slice], TISSUE, out=below.view(np.bool_))
            self._scan(band.size)

    def finish(self) -> Outlines:
        """Return the outlines; the tracer is of no use afterwards."""
        height = self._height
        self._rows[1] = 0
        self._scan(1)
        y, x, partner, left = (corners[: self._count] for corners in self._corners)
        graph = _Graph(y, x, partner, *tracing.label_outlines(y, x, partner, left))
        self._corners = []
        return _outlines((height, self._width), graph)


def trace(labels: NDArray[np.uint8] | NDArray[np.bool_]) -> Outlines:
    """Return the outlines of a mask in memory, (y, x): bool, or uint8 labels of which 1 is tissue."""
    tracer = OutlineTracer(labels.shape[1])
    tracer.add_rows(labels)
    return tracer.finish()
