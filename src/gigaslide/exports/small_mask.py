"""A mask as a picture small enough to be held in memory, for the tools that hold one: tissue 255, the rest 0."""

from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gigaslide.exports.patches import Cells, tissue_shares
from gigaslide.exports.request import Export
from gigaslide.files import atomic_path

# tiatoolbox makes masks at 1.25x, histolab at a 32nd of level 0: both are 8 um per px in a slide of 0.25.
_UM_PER_PX = 8.0
_REDUCTION = 16  # of the mask, where the size of its pixels is not known
_MOST_PX = 1 << 26
_HALF = 0.5


def small_mask(export: Export) -> NDArray[np.uint8]:
    """Return the mask of the whole slide, uint8 (y, x): 255 where at least half of a pixel is tissue."""
    mpp, shape = export.reader.mpp_um_per_px, export.outlines.shape
    scale = (_REDUCTION, _REDUCTION) if mpp is None else (_UM_PER_PX / mpp[0], _UM_PER_PX / mpp[1])
    more = max(1.0, (shape[0] / scale[0] * shape[1] / scale[1] / _MOST_PX) ** 0.5)
    y, x = (
        Cells(Fraction(size, count), count)
        for size, count in ((px, max(1, min(px, round(px / (by * more))))) for px, by in zip(shape, scale, strict=True))
    )
    mask = np.zeros((y.count, x.count), np.uint8)
    for row, shares in zip(mask, tissue_shares(export.outlines, y, x), strict=True):
        row[shares >= _HALF] = 255
    return mask


def write_small_mask(path: Path, export: Export) -> None:
    """Write it as PNG, atomically."""
    with atomic_path(path) as temporary:
        Image.fromarray(small_mask(export)).save(temporary, "PNG")
