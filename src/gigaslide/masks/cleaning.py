"""Which outlines are left when small pieces are taken away and small holes are filled; compiled by Numba."""

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def without_small(
    is_hole: NDArray[np.bool_],
    inside: NDArray[np.int32],
    area_px: NDArray[np.int64],
    min_piece_px: int,
    min_hole_px: int,
) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Return which outlines are kept, (outlines,) bool, and in which outline each then lies, (outlines,) int32.

    First pieces whose own tissue, without holes, is under `min_piece_px` become glass; then glass within a piece, with
    what became glass, is filled where it is under `min_hole_px`. The tissue in a filled hole is part of the piece.
    The arguments are those of `tracing.label_outlines`: who contains comes before what is contained.
    """
    count = len(is_hole)
    own_px = area_px.copy()
    for outline in range(count):
        if is_hole[outline]:
            own_px[inside[outline]] -= area_px[outline]
    kept = np.zeros(count, np.bool_)
    around = inside.copy()
    for outline in range(count):
        if is_hole[outline]:
            kept[outline] = kept[inside[outline]]
        else:
            kept[outline] = own_px[outline] >= min_piece_px
            hole = inside[outline]
            if hole >= 0 and not kept[hole]:
                around[outline] = around[inside[hole]]
            if kept[outline] and around[outline] >= 0:
                own_px[around[outline]] -= area_px[outline]
    part_of = np.arange(count).astype(np.int32)
    for outline in range(count):
        if not kept[outline]:
            continue
        if is_hole[outline]:
            around[outline] = part_of[inside[outline]]
            kept[outline] = own_px[outline] >= min_hole_px
        elif around[outline] >= 0 and not kept[around[outline]]:
            part_of[outline] = around[around[outline]]
    for outline in range(count):
        kept[outline] = kept[outline] and part_of[outline] == outline
    return kept, around
