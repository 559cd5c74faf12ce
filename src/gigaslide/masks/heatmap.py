"""Probabilities of tissue as a pyramidal OME-TIFF that QuPath, Bio-Formats and tifffile read.

A pixel is the probability in steps of 1/255, rounded to the nearest: uint8, 0 to 255, at most 0.002 off. A pixel of a
smaller level is the mean of 2 x 2 pixels of the level above, or of what of them is inside, rounded to the nearest.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from gigaslide.masks.pyramid import Kind

_ONE = 255  # the value of a probability of 1


def _reduced() -> NDArray[np.uint8]:
    """Return the mean as `Kind.reduced`."""
    table = np.zeros((5, 4 * _ONE + 1), np.uint8)
    for pixels in (1, 2, 4):
        total = np.arange(pixels * _ONE + 1)
        table[pixels, : len(total)] = (2 * total + pixels) // (2 * pixels)
    return table


# Probabilities are noise where the network is not sure: at level 6 they take five times as long, and a tenth less room.
HEATMAP = Kind("gigaslide probability of tissue, 255 is 1", _reduced(), is_ome=True, deflate_level=1)


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def quantise(probability: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return probabilities (y, x), float 0 to 1, as uint8 in steps of 1/255."""
    steps = np.empty(probability.shape, np.uint8)
    for row in range(probability.shape[0]):
        for column in range(probability.shape[1]):
            steps[row, column] = np.uint8(probability[row, column] * _ONE + np.float32(0.5))
    return steps
