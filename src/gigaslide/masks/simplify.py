"""Fewer corners for outlines, without one that crosses another or jumps over it; kernels, compiled by Numba.

Douglas and Peucker's algorithm (Cartographica 10, 1973), ring by ring: a chain of corners becomes one edge when no
corner of it is farther from the edge than the tolerance, else it is cut at the farthest corner. With Saalfeld's
condition (Cartography and Geographic Information Science 26, 1999): between the chain and the edge there lies no corner
of any other chain. Then what is inside of what stays as it was, whatever the other chains become: to cross the edge,
another chain would have to come out between the two again, which needs a corner there. Points where two rings touch are
kept, so both still have them.

A small or thin ring would lose its shape, so its tolerance is at most a quarter of its area over its length: an eighth
of the width of a strip, a sixteenth of the side of a square. A ring of one pixel stays as it is.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from gigaslide.masks.outlines import Outlines

_OF_AREA_OVER_LENGTH = 0.25


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _is_between(vertices: NDArray[np.int32], chain: NDArray[np.int64], y: int, x: int) -> bool:
    """Tell whether a point that is no corner of a chain lies between it and the edge that joins its ends, or on it."""
    for vertex in chain:
        if vertices[vertex, 0] == y and vertices[vertex, 1] == x:
            return False
    inside = False
    before = len(chain) - 1
    for at in range(len(chain)):
        y0, x0 = np.int64(vertices[chain[before], 0]), np.int64(vertices[chain[before], 1])
        y1, x1 = np.int64(vertices[chain[at], 0]), np.int64(vertices[chain[at], 1])
        side = (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0)
        if side == 0 and min(y0, y1) <= y <= max(y0, y1) and min(x0, x1) <= x <= max(x0, x1):
            return True
        # A ray to the right crosses the boundary an odd number of times.
        if (y0 <= y) != (y1 <= y) and (side > 0) == (y1 > y0):
            inside = not inside
        before = at
    return inside


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _is_free(
    vertices: NDArray[np.int32], chain: NDArray[np.int64], row_starts: NDArray[np.int64], all_x: NDArray[np.int32]
) -> bool:
    """Tell whether no corner of another chain lies between a chain and the edge that joins its ends."""
    top = bottom = vertices[chain[0], 0]
    first = last = vertices[chain[0], 1]
    for vertex in chain:
        top, bottom = min(top, vertices[vertex, 0]), max(bottom, vertices[vertex, 0])
        first, last = min(first, vertices[vertex, 1]), max(last, vertices[vertex, 1])
    for y in range(top, bottom + 1):
        row = all_x[row_starts[y] : row_starts[y + 1]]
        for at in range(np.searchsorted(row, first), len(row)):
            if row[at] > last:
                break
            if _is_between(vertices, chain, y, row[at]):
                return False
    return True


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _is_shared(row: NDArray[np.int32], x: int) -> bool:
    at = np.searchsorted(row, x)
    return bool(at + 1 < len(row) and row[at + 1] == x)


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _kept(
    vertices: NDArray[np.int32],
    starts: NDArray[np.int64],
    tolerances: NDArray[np.float64],
    scale_yx: tuple[float, float],
    row_starts: NDArray[np.int64],
    all_x: NDArray[np.int32],
) -> NDArray[np.bool_]:
    kept = np.zeros(len(vertices), np.bool_)
    y_scale, x_scale = scale_yx
    longest = 0
    for ring in range(len(starts) - 1):
        longest = max(longest, starts[ring + 1] - starts[ring])
    stack = np.empty((longest + 2, 2), np.int64)
    for ring in range(len(starts) - 1):
        start, size = starts[ring], starts[ring + 1] - starts[ring]
        tolerance = tolerances[ring]
        # The corners to begin with: the first, the farthest from it, those that another ring has too.
        kept[start] = True
        farthest, distance = start, 0.0
        for vertex in range(start, start + size):
            y, x = vertices[vertex]
            if _is_shared(all_x[row_starts[y] : row_starts[y + 1]], x):
                kept[vertex] = True
            away = ((y - vertices[start, 0]) * y_scale) ** 2 + ((x - vertices[start, 1]) * x_scale) ** 2
            if away > distance:
                farthest, distance = vertex, away
        kept[farthest] = True
        depth, before = 0, start
        for vertex in range(start + 1, start + size + 1):
            if vertex == start + size or kept[vertex]:
                stack[depth, 0], stack[depth, 1] = before, vertex
                depth, before = depth + 1, vertex
        while depth:
            depth -= 1
            low, high = stack[depth]
            if high - low < 2:
                continue
            end = high if high < start + size else start
            y0, x0 = vertices[low, 0] * y_scale, vertices[low, 1] * x_scale
            y_step, x_step = vertices[end, 0] * y_scale - y0, vertices[end, 1] * x_scale - x0
            square = y_step**2 + x_step**2
            cut, worst = low + 1, -1.0
            for vertex in range(low + 1, high):
                y, x = vertices[vertex, 0] * y_scale - y0, vertices[vertex, 1] * x_scale - x0
                along = min(max((y * y_step + x * x_step) / square, 0.0), 1.0) if square else 0.0
                away = (y - along * y_step) ** 2 + (x - along * x_step) ** 2
                if away > worst:
                    cut, worst = vertex, away
            if worst <= tolerance**2:
                chain = np.arange(low, high + 1)
                chain[-1] = end
                if _is_free(vertices, chain, row_starts, all_x):
                    continue
            kept[cut] = True
            stack[depth, 0], stack[depth, 1] = low, cut
            stack[depth + 1, 0], stack[depth + 1, 1] = cut, high
            depth += 2
    return kept


def corners_kept(outlines: Outlines, tolerance_px: float, scale_yx: tuple[float, float]) -> NDArray[np.bool_]:
    """Return which vertices of the outlines simplified ones have, (vertices,) bool.

    `tolerance_px`: how far a simplified outline may be from the exact one, in px of level 0. `scale_yx`: px of level 0
    per px of the mask.
    """
    y, x = outlines.corners
    steps = outlines.vertices - np.roll(outlines.vertices, 1, axis=0)
    steps[outlines.starts[:-1]] = outlines.vertices[outlines.starts[:-1]] - outlines.vertices[outlines.starts[1:] - 1]
    lengths_px = (
        np.add.reduceat(np.abs(steps) @ np.array(scale_yx), outlines.starts[:-1]) if len(steps) else steps[:, 0]
    )
    areas_px = outlines.areas_px * (scale_yx[0] * scale_yx[1])
    tolerances = np.minimum(tolerance_px, _OF_AREA_OVER_LENGTH * areas_px / lengths_px)
    row_starts = np.searchsorted(y, np.arange(outlines.shape[0] + 2))
    return np.asarray(_kept(outlines.vertices, outlines.starts, tolerances, scale_yx, row_starts, x))
