"""A small made-up area, always the same: tissue on glass, with all three labels. For checks of a device."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gigaslide.classes import INVALID
from gigaslide.geometry import Window
from gigaslide.slides.density import density_table

SIDE_PX = 256
_GLASS_RGB = (243, 242, 240)
_TISSUE_RGB = (170, 95, 160)
# (y, x, radius) of round pieces of tissue, as parts of the side; one is cut by the edge.
_PIECES = ((0.3, 0.35, 0.22), (0.7, 0.6, 0.25), (0.15, 0.95, 0.2))
_INVALID_ROWS = 8


class CheckArea:
    """`Area` of 256 x 256 px with noise in the colours, as scanners have it."""

    name = "check"
    shape = (SIDE_PX, SIDE_PX)
    glass_rgb = _GLASS_RGB

    @cached_property
    def density_table(self) -> NDArray[np.float64]:
        """The optical density of every grey value, (3, 256) float64."""
        return density_table(_GLASS_RGB)

    @cached_property
    def _tissue(self) -> NDArray[np.bool_]:
        y, x = np.mgrid[:SIDE_PX, :SIDE_PX] / SIDE_PX
        pieces = [np.hypot(y - top, x - left) < radius for top, left, radius in _PIECES]
        return np.asarray(np.any(pieces, axis=0), np.bool_)

    @cached_property
    def _image(self) -> NDArray[np.uint8]:
        random = np.random.default_rng(0)
        noise = random.normal(0, 1, (SIDE_PX, SIDE_PX, 3))
        tissue = self._tissue[..., np.newaxis]
        image = np.where(tissue, _TISSUE_RGB, _GLASS_RGB) + noise * np.where(tissue, 25, 3)
        return np.asarray(np.clip(image, 0, 255), np.uint8)

    @cached_property
    def _mask(self) -> NDArray[np.uint8]:
        mask = self._tissue.astype(np.uint8)
        mask[-_INVALID_ROWS:] = INVALID
        return mask

    def read_image(self, window: Window) -> NDArray[np.uint8]:
        """Return RGB pixels, (y, x, 3) uint8."""
        return self._image[window.slices]

    def read_mask(self, window: Window) -> NDArray[np.uint8]:
        """Return labels, (y, x) uint8: 0 glass, 1 tissue, 255 invalid."""
        return self._mask[window.slices]
