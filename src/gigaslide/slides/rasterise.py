"""Polygons to pixels, window by window: a pixel is inside when its centre is.

Corners lie in the frame of pixel corners: pixel (row, column) covers row to row + 1 and column to column + 1,
its centre is at + 0.5. Scan-line fill by the even-odd rule (Foley et al., Computer Graphics, 3.6): the row of
centres is cut by the polygon's edges, and a pixel is inside when an odd number of cuts lies at or before its
centre. The cuts are computed in the frame of the whole slide, so windows fit together exactly, and an edge
shared by two polygons cuts at the same place for both.

Condition: polygons are valid (rings do not cross); then even-odd is the interior, holes left out. A centre
exactly on an edge is inside when the polygon lies to its right.
"""

from collections.abc import Sequence

import numpy as np
import shapely

from gigaslide.geometry import Interval, Window
from gigaslide.slides.arrays import Doubles, Flags, Indices


def _edges(polygon: shapely.Polygon) -> Doubles:
    """Return all edges of all rings, upper end first: float64 (edge, 4) as x, y, x, y."""
    rings = [shapely.get_coordinates(ring) for ring in (polygon.exterior, *polygon.interiors)]
    edges = np.concatenate([np.hstack([ring[:-1], ring[1:]]) for ring in rings])
    downward = edges[:, 1] <= edges[:, 3]
    return np.where(downward[:, None], edges, edges[:, [2, 3, 0, 1]])


def _first_centre(positions: Doubles) -> Indices:
    """Index of the first pixel whose centre is at or after each position."""
    return np.asarray(np.ceil(positions - 0.5), np.int64)


def _cuts(edges: Doubles, rows: Interval) -> tuple[Indices, Indices]:
    """Return row and first column at or after the cut, of each cut of an edge with a row of centres."""
    first = np.maximum(_first_centre(edges[:, 1]), rows.start)
    count = np.minimum(_first_centre(edges[:, 3]), rows.stop) - first
    edges, first, count = edges[count > 0], first[count > 0], count[count > 0]
    which = np.repeat(np.arange(len(edges)), count)
    row = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + first[which]
    x1, y1, x2, y2 = edges[which].T
    return row, _first_centre(x1 + (row + 0.5 - y1) * (x2 - x1) / (y2 - y1))


def _fill(edges: Doubles, window: Window) -> Flags:
    """Fill one polygon: bool (y, x) of the window."""
    height, width = window.shape
    row, column = _cuts(edges, window.y)
    column = np.clip(column - window.x.start, 0, width)  # a cut left of the window counts for all of its row
    cell = (row - window.y.start) * (width + 1) + column
    odd = (np.bincount(cell, minlength=height * (width + 1)) & 1).astype(bool).reshape(height, width + 1)
    return np.logical_xor.accumulate(odd[:, :width], axis=1)


class PolygonRaster:
    """Valid polygons with corners (x, y) in pixels of level 0, filled on a grid `scale` (y, x) times as fine.

    Holds the edges of the polygons and an index of them; beyond that, memory for a window is that of the
    window.
    """

    def __init__(self, polygons: Sequence[shapely.Polygon], scale: tuple[float, float] = (1.0, 1.0)) -> None:
        """Index the polygons."""
        self.polygons, self.scale = tuple(polygons), scale
        factors = np.array([scale[1], scale[0]])
        scaled = [shapely.transform(polygon, lambda corners: corners * factors) for polygon in polygons]
        self._bounds = shapely.bounds(scaled).reshape(-1, 4)
        self._edges = [_edges(polygon) for polygon in scaled]
        self._tree = shapely.STRtree(scaled)

    def read(self, window: Window) -> Flags:
        """Return bool (y, x): the pixels of the window whose centre lies in any of the polygons."""
        inside = np.zeros(window.shape, bool)
        box = shapely.box(window.x.start, window.y.start, window.x.stop, window.y.stop)
        for number in sorted(self._tree.query(box)):
            left, top, right, bottom = self._bounds[number]
            part = Window(
                Interval(int(np.floor(top)), int(np.ceil(bottom))),
                Interval(int(np.floor(left)), int(np.ceil(right))),
            ).clip(window)
            if 0 not in part.shape:
                here = part.shift(-window.y.start, -window.x.start).slices
                inside[here] |= _fill(self._edges[number], part)
        return inside
