"""The outlines of a mask, from its corners: kernels, compiled by Numba.

A corner is a point of the pixel lattice at which an outline turns. Where two pixels of tissue touch at a point only
(a checkerboard of 2 x 2 pixels), two outlines turn, and there are two corners. Row by row, left to right, corners are
numbered so that 2 k and 2 k + 1 are the ends of one horizontal edge; `partner` is the other end of the vertical edge.
An outline is a walk: along the row to `corner ^ 1`, along the column to its partner, and so on. Nothing but the corners
and one row of the mask is ever held.

At a checkerboard an outline first turns around the tissue, as tissue is 4-connected and glass 8-connected. So found,
each outline lies between one piece of tissue and one piece of glass, which makes the tree of who lies in whom; but it
passes a point twice where a piece touches itself. (If both pixels of tissue belong to one piece, it is always the same
outline: a path through the point and around in the glass would cut one pixel off from the other.) `split_outlines`
lets it turn around the glass there, and what it was falls into simple rings.
"""

import numba
import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _edge_to_the_left(row: NDArray[np.uint8], pixel: int, open_edges: Int32) -> int:
    """Return the corner above the vertical edge nearest to the left of a pixel, -1 if only the mask's side is there."""
    while pixel > 0 and row[pixel - 1] == row[pixel]:
        pixel -= 1
    return int(open_edges[pixel]) if pixel > 0 or row[pixel] else -1


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def scan_rows(
    rows: NDArray[np.uint8],
    words: NDArray[np.uint64],
    first_y: int,
    open_edges: Int32,
    y: Int32,
    x: Int32,
    partner: Int32,
    left: Int32,
    count: int,
) -> tuple[int, int]:
    """Find the corners between each row and the next; stop early when the arrays are nearly full.

    Args:
        rows: (rows + 1, columns) 0 or 1, the first the row above; the last column or more is 0 and beyond the mask.
        words: the same bytes, eight in one.
        first_y: the row of the lattice between the first two rows.
        open_edges: (columns,) the corner above the vertical edge that reaches down to here, where there is one.
        y: of the corners, filled from `count` on; so are the next three.
        x: of the corners.
        partner: of the corners.
        left: of a corner at the upper left of an outline: for one around glass, a corner of the nearest edge to its
            left; for one around tissue, -2 - that, or -1 if there is no edge.
        count: corners so far.

    Returns:
        rows done, corners so far.
    """
    for row in range(len(rows) - 1):
        if count + 2 * rows.shape[1] > len(y):
            return row, count
        above, below = rows[row], rows[row + 1]
        a, c, was_edge = np.uint8(0), np.uint8(0), np.uint8(0)
        for word in range(words.shape[1]):
            if not was_edge and words[row, word] == words[row + 1, word]:
                continue
            if word > 0:
                a, c = above[8 * word - 1], below[8 * word - 1]
            for column in range(8 * word, 8 * word + 8):
                # The four pixels around a point: a b over c d.
                b, d = above[column], below[column]
                is_edge = b ^ d
                if is_edge != was_edge:
                    y[count], x[count], left[count] = first_y + row, column, -1
                    if a != b:
                        upper = open_edges[column]
                        partner[upper], partner[count] = count, upper
                    else:
                        open_edges[column] = count
                    if column and d and not b and not c:
                        left[count] = -2 - _edge_to_the_left(below, column - 1, open_edges)
                    elif b and c and not d:
                        left[count] = _edge_to_the_left(below, column - 1, open_edges)
                    count += 1
                elif is_edge and a != b:
                    y[count], x[count], left[count] = first_y + row, column, -1
                    y[count + 1], x[count + 1], left[count + 1] = first_y + row, column, -1
                    upper = open_edges[column]
                    if a:
                        partner[upper], partner[count] = count, upper
                        open_edges[column] = count + 1
                        left[count + 1] = -2 - _edge_to_the_left(below, column - 1, open_edges)
                    else:
                        partner[upper], partner[count + 1] = count + 1, upper
                        open_edges[column] = count
                    count += 2
                a, c, was_edge = b, d, is_edge
    return len(rows) - 1, count


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def label_outlines(y: Int32, x: Int32, partner: Int32, left: Int32) -> tuple[Int32, NDArray[np.bool_], Int32, Int64]:
    """Number the outlines in the order of their first corners, and find who lies in whom.

    Returns:
        outline: (corners,) int32.
        is_hole: (outlines,) whether it is around glass.
        inside: (outlines,) int32; of one around glass, the outline of the tissue around it; of one around tissue, the
            outline of the glass around it, or -1.
        area_px: (outlines,) int64, of what it is around, all that is inside included.
    """
    outline = np.full(len(y), -1, np.int32)
    is_hole = np.empty(len(y) // 4, np.bool_)
    inside = np.empty(len(y) // 4, np.int32)
    area_px = np.empty(len(y) // 4, np.int64)
    count = 0
    for first in range(len(y)):
        if outline[first] >= 0:
            continue
        area, corner = np.int64(0), first
        while True:
            end = corner ^ 1
            outline[corner] = outline[end] = count
            area -= np.int64(x[end] - x[corner]) * y[corner]
            corner = partner[end]
            if corner == first:
                break
        is_hole[count] = left[first] >= 0
        area_px[count] = area
        # What is to the left was found before.
        if left[first] == -1:
            inside[count] = -1
        else:
            nearest = outline[left[first] if is_hole[count] else -2 - left[first]]
            inside[count] = nearest if is_hole[nearest] != is_hole[count] else inside[nearest]
        count += 1
    return outline, is_hole[:count].copy(), inside[:count].copy(), area_px[:count].copy()


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def split_outlines(y: Int32, x: Int32, partner: Int32, outline: Int32) -> Int32:
    """Return the partners that make simple rings: an outline that passes a point twice falls into two there."""
    simple = partner.copy()
    for corner in range(1, len(y) - 1, 2):
        other = corner + 1
        if x[corner] == x[other] and y[corner] == y[other] and outline[corner] == outline[other]:
            end, other_end = simple[corner], simple[other]
            simple[corner], simple[other_end] = other_end, corner
            simple[other], simple[end] = end, other
    return simple


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def walk_rings(
    y: Int32, x: Int32, simple: Int32, outline: Int32, is_hole: NDArray[np.bool_], inside: Int32
) -> tuple[Int32, Int64, Int32, Int64]:
    """Return vertices, starts, parents and areas_px of the rings, as `Outlines` has them."""
    vertices = np.empty((len(y), 2), np.int32)
    starts = np.zeros(len(y) // 4 + 1, np.int64)
    parents = np.empty(len(y) // 4, np.int32)
    areas_px = np.empty(len(y) // 4, np.int64)
    shell_of = np.full(len(is_hole), -1, np.int32)
    seen = np.zeros(len(y), np.bool_)
    rings, at = 0, 0
    for first in range(len(y)):
        if seen[first]:
            continue
        here = outline[first]
        # The first ring of an outline around tissue is its outer one; where it touches itself, the others are holes.
        hole = is_hole[here] or shell_of[here] >= 0
        if hole:
            parents[rings] = shell_of[inside[here] if is_hole[here] else here]
        else:
            parents[rings], shell_of[here] = -1, rings
        area, corner = np.int64(0), first
        while True:
            # Around tissue: x, then y, so that the signed area of (x, y) is positive; around glass: negative.
            end = simple[corner] if hole else corner ^ 1
            seen[corner] = seen[end] = True
            vertices[at, 0], vertices[at, 1] = y[corner], x[corner]
            vertices[at + 1, 0], vertices[at + 1, 1] = y[end], x[end]
            area += np.int64(x[end] - x[corner]) * y[corner]
            at += 2
            after = end ^ 1 if hole else simple[end]
            area += np.int64(x[after] - x[end]) * y[end]
            corner = after
            if corner == first:
                break
        areas_px[rings] = abs(area)
        rings += 1
        starts[rings] = at
    return vertices, starts[: rings + 1].copy(), parents[:rings].copy(), areas_px[:rings].copy()


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def fill_rows(vertices: Int32, starts: Int64, first_y: int, filled: NDArray[np.uint8]) -> None:
    """Set the pixels inside the rings, by parity, in rows from `first_y` on; `filled`, (rows, width), is 0 before.

    The first row is where an odd number of vertical edges is at or left of a pixel; every other row is the row above
    it, changed where horizontal edges are.
    """
    rows, width = filled.shape
    for ring in range(len(starts) - 1):
        before = starts[ring + 1] - 1
        for vertex in range(starts[ring], starts[ring + 1]):
            y0, x0, y1, x1 = vertices[before, 0], vertices[before, 1], vertices[vertex, 0], vertices[vertex, 1]
            if y0 == y1:
                if first_y < y0 < first_y + rows:
                    for column in range(min(x0, x1), max(x0, x1)):
                        filled[y0 - first_y, column] ^= 1
            elif min(y0, y1) <= first_y < max(y0, y1) and x0 < width:
                filled[0, x0] ^= 1
            before = vertex
    for column in range(1, width):
        filled[0, column] ^= filled[0, column - 1]
    for row in range(1, rows):
        for column in range(width):
            filled[row, column] ^= filled[row - 1, column]
