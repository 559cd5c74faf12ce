"""A mask as a pyramidal tiled TIFF, for OpenSlide, QuPath and this package: 0 glass, 1 tissue, 255 invalid.

The values are indices into a palette: programs that show pictures (OpenSlide, viewers on top of it) show glass white,
tissue orange and invalid pixels grey; those that read numbers (tifffile, `slides.mask_image`) get 0, 1 and 255.

A pixel of a smaller level stands for 2 x 2 of the level above, or for what of them is inside the mask. It is invalid
where more than half of them are; otherwise tissue where at least half of the valid ones are. So nothing that is one
pixel wide disappears in one step, and the tissue of the smaller levels is for looking at, not for measuring.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gigaslide.classes import GLASS, INVALID, TISSUE
from gigaslide.masks.pyramid import Kind, PyramidWriter

TISSUE_RGB = (213, 94, 0)
"""The colour of predictions, as in the report."""
INVALID_RGB = (140, 140, 140)
_GLASS_RGB = (255, 255, 255)


def _reduced() -> NDArray[np.uint8]:
    """Return the rule above as `Kind.reduced`: the sum of 0, 1 and 255 says how many there are of each."""
    table = np.zeros((5, 4 * INVALID + 1), np.uint8)
    for pixels in (1, 2, 4):
        for invalid in range(pixels + 1):
            for tissue in range(pixels - invalid + 1):
                glass = pixels - invalid - tissue
                label = INVALID if 2 * invalid > pixels else TISSUE if tissue and tissue >= glass else GLASS
                table[pixels, invalid * INVALID + tissue * TISSUE] = label
    return table


MASK = Kind(
    "gigaslide mask: 0 glass, 1 tissue, 255 invalid",
    _reduced(),
    {GLASS: _GLASS_RGB, TISSUE: TISSUE_RGB, INVALID: INVALID_RGB},
)


def write_mask(
    path: Path,
    bands: Iterable[NDArray[np.uint8]],
    shape: tuple[int, int],
    mpp_um_per_px: tuple[float, float] | None,
) -> None:
    """Write a mask of `shape` (y, x) atomically; `bands` are its labels from top to bottom, uint8 (rows, x)."""
    with PyramidWriter(path, shape, mpp_um_per_px, MASK) as writer:
        for band in bands:
            writer.write_rows(band)
