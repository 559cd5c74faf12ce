"""The same slide, turned and lit a little differently: an area that wraps an area.

Flips are moves of the window that is read, stain and light are a change of the table of densities, so any window
of the augmented slide is read at the cost of the plain one and every plan sees the same pixels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gigaslide.geometry import Interval, Window
from gigaslide.slides.density import density_table
from gigaslide.streaming.engine import Area

# Optical density -log(rgb / 255) of each channel is multiplied by 1 +- this much: scanners and stainers differ by more,
# but the cohort already brings most of the variety.
_DENSITY_SPREAD = 0.15
# The light behind the slide: glass of 255 becomes 255 * (1 - this much) at the darkest, channel by channel.
_LIGHT_LOSS = 0.04


@dataclass(frozen=True)
class AugmentedArea:
    """`area` with its rows or columns reversed and its grey values seen as those of another stain and light."""

    area: Area
    flip_y: bool
    flip_x: bool
    density_table: NDArray[np.float64]  # (3, 256)

    @property
    def name(self) -> str:
        """The slide's name."""
        return self.area.name

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) in pixels, those of the plain area."""
        return self.area.shape

    @property
    def glass_rgb(self) -> tuple[int, int, int]:
        """The colour of the plain slide's glass."""
        return self.area.glass_rgb

    def read_image(self, window: Window) -> NDArray[np.uint8]:
        """Return RGB pixels of the turned slide, (y, x, 3) uint8; `density_table` has the other stain and light."""
        return self._flipped(self.area.read_image(self._source(window)))

    def read_mask(self, window: Window) -> NDArray[np.uint8]:
        """Return labels of the augmented slide, (y, x) uint8."""
        return self._flipped(self.area.read_mask(self._source(window)))

    def _source(self, window: Window) -> Window:
        return Window(
            _reverse(window.y, self.shape[0]) if self.flip_y else window.y,
            _reverse(window.x, self.shape[1]) if self.flip_x else window.x,
        )

    def _flipped(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return pixels[:: -1 if self.flip_y else 1, :: -1 if self.flip_x else 1]


def augment(area: Area, random: np.random.Generator) -> AugmentedArea:
    """Draw flips, stain and light for one visit of `area`."""
    flip_y, flip_x = (bool(flip) for flip in random.integers(2, size=2))
    density = random.uniform(1 - _DENSITY_SPREAD, 1 + _DENSITY_SPREAD, size=3)
    light = 1 - random.uniform(0, _LIGHT_LOSS, size=3)
    transmission = np.arange(256) / 255
    tone = np.rint(255 * light[:, np.newaxis] * transmission ** density[:, np.newaxis]).astype(np.uint8)
    return AugmentedArea(area, flip_y, flip_x, density_table(area.glass_rgb, tone))


def _reverse(interval: Interval, size: int) -> Interval:
    return Interval(size - interval.stop, size - interval.start)
