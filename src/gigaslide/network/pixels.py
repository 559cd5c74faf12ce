"""From the grey values of a slide to what the network sees: stain over glass, whatever its strength.

Three planes are made of the optical density over the slide's own glass (slides/density.py):

    mean density          stain, but also ink, shadow, dust, the edge of a bubble
    green minus red       0 for everything grey, above 0 for eosin, haematoxylin and DAB, below for blue and green ink
    green minus blue      0 for everything grey, above 0 for eosin and haematoxylin, below for DAB

The last two see tissue through grey ink, and no grey artefact at all; a network of 4492 parameters would otherwise have
to spend its filters on that. Each plane goes through `x / (|x| + 0.02)`: pale tissue of density 0.03 becomes 0.6 and
dark tissue of 1 becomes 0.98, so one threshold finds the edge of both. Glass is 0 in all planes, and so is the zero
padding of a convolution: what lies beyond the image is glass, not a black frame.

One pass over the pixels, compiled by Numba: as a chain of TensorFlow operations it takes nine times as long, more than
the network's own first layer.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

_HALF_AT = 0.02  # density that becomes one half; a few times the sensor's noise
_MEAN_WEIGHT = 0.3  # grey matters least: what goes wrong on slides is mostly grey


def network_input(
    image: NDArray[np.uint8],
    table: NDArray[np.float64],
    dtype: str = "float32",
    shape: tuple[int, int] | None = None,
) -> NDArray[Any]:
    """Return what the network takes: (1, y, x, 3) of `dtype`, each value in -1..1, 0 on glass.

    Args:
        image: (y, x, 3) uint8, RGB.
        table: (3, 256) float64, of `slides.density.density_table`.
        dtype: float32 or float64, what to compute in.
        shape: (height, width) of the result if that is larger than the image: the rest is glass.
    """
    planes = np.empty((1, *(shape or image.shape[:2]), 3), dtype)
    write_network_input(image, table, planes)
    return planes


def write_network_input(image: NDArray[np.uint8], table: NDArray[np.float64], planes: NDArray[Any]) -> None:
    """Write what `network_input` returns into `planes`, (1, y, x, 3); where that is larger than the image is glass."""
    height, width = image.shape[:2]
    planes[0, height:] = 0
    planes[0, :height, width:] = 0
    _planes(np.ascontiguousarray(image), table.astype(planes.dtype), planes[0, :height, :width])


# No fastmath: a pixel's value must not depend on where in a window it lies.
@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator, unused-ignore]
def _planes(image: NDArray[np.uint8], table: NDArray[Any], planes: NDArray[Any]) -> None:
    # Constants of the table's own type, or float32 would be computed in float64.
    third, half_at, weight = table.dtype.type(1 / 3), table.dtype.type(_HALF_AT), table.dtype.type(_MEAN_WEIGHT)
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            red, green, blue = table[0, image[y, x, 0]], table[1, image[y, x, 1]], table[2, image[y, x, 2]]
            mean = (red + green + blue) * third
            planes[y, x, 0] = weight * mean / (abs(mean) + half_at)
            planes[y, x, 1] = (green - red) / (abs(green - red) + half_at)
            planes[y, x, 2] = (green - blue) / (abs(green - blue) + half_at)
