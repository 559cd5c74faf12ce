"""Areas of any size to measure a step on: a small one repeated, which takes no memory, or part of a prepared store."""

import numpy as np
from numpy.typing import NDArray

from gigaslide.errors import UsageError
from gigaslide.geometry import Window, grid
from gigaslide.streaming.check_area import CheckArea
from gigaslide.streaming.engine import Area


class Repeated:
    """`Area` of any `shape` (y, x): a small area of tissue on glass, side by side as often as needed."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._block = CheckArea()
        self.name = "synthetic"
        self.shape = shape
        self.glass_rgb = self._block.glass_rgb
        self.density_table = self._block.density_table
        whole = Window.of(0, 0, *self._block.shape)
        self._image, self._mask = self._block.read_image(whole), self._block.read_mask(whole)

    def read_image(self, window: Window) -> NDArray[np.uint8]:
        """Return RGB pixels, (y, x, 3) uint8."""
        return _repeated(self._image, window)

    def read_mask(self, window: Window) -> NDArray[np.uint8]:
        """Return labels, (y, x) uint8: 0 glass, 1 tissue, 255 invalid."""
        return _repeated(self._mask, window)


class Middle:
    """`Area` of `shape` (y, x) in the middle of a larger one."""

    def __init__(self, area: Area, shape: tuple[int, int]) -> None:
        """Place the area.

        Raises:
            UsageError: `area` is smaller than `shape`.
        """
        if any(wanted > there for wanted, there in zip(shape, area.shape, strict=True)):
            raise UsageError(
                f"{area.name} has {area.shape[0]} x {area.shape[1]} px, and {shape[0]} x {shape[1]} px are asked for"
            )
        self._area = area
        self._top, self._left = ((there - wanted) // 2 for there, wanted in zip(area.shape, shape, strict=True))
        self.name = area.name
        self.shape = shape
        self.glass_rgb = area.glass_rgb
        self.density_table = area.density_table

    def read_image(self, window: Window) -> NDArray[np.uint8]:
        """Return RGB pixels, (y, x, 3) uint8."""
        return self._area.read_image(window.shift(self._top, self._left))

    def read_mask(self, window: Window) -> NDArray[np.uint8]:
        """Return labels, (y, x) uint8: 0 glass, 1 tissue, 255 invalid."""
        return self._area.read_mask(window.shift(self._top, self._left))


def _repeated(block: NDArray[np.uint8], window: Window) -> NDArray[np.uint8]:
    """Return the window of an endless repetition of `block`."""
    turned = np.roll(block, (-window.y.start, -window.x.start), (0, 1))
    values = np.empty((*window.shape, *block.shape[2:]), np.uint8)
    for part in grid(window.shape, (block.shape[0], block.shape[1])):
        values[part.slices] = turned[: part.y.size, : part.x.size]
    return values
