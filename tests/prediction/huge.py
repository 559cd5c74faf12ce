"""A slide of any size that there is no file of: unscanned, but for one block of glass with a disc of tissue on it."""

from dataclasses import dataclass

import numpy as np

from gigaslide.geometry import Window
from gigaslide.slides.reader import SlideReader
from gigaslide.slides.resolution import Resolution
from gigaslide.slides.source import Level

GLASS, TISSUE = (244, 243, 242), (200, 110, 160)
BLOCK_PX, RADIUS_PX = 3000, 700


@dataclass(frozen=True)
class HugeSlide(SlideReader):
    """`block` is the corner (y, x) of what was scanned. Arrays of one value take no memory."""

    block: tuple[int, int] = (0, 0)

    def read(self, window):
        scanned = Window.of(*self.block, BLOCK_PX, BLOCK_PX)
        part = window.clip(scanned)
        if self.shape != self.level0_shape or not (part.y.size and part.x.size):
            return np.broadcast_to(np.uint8(255), (*window.shape, 3)), np.broadcast_to(np.False_, window.shape)
        rgb, valid = np.full((*window.shape, 3), 255, np.uint8), np.zeros(window.shape, bool)
        here = part.shift(-window.y.start, -window.x.start).slices
        y, x = np.ogrid[part.y.slice, part.x.slice]
        middle = [corner + BLOCK_PX // 2 for corner in self.block]
        inside = (y - middle[0]) ** 2 + (x - middle[1]) ** 2 < RADIUS_PX**2
        rgb[here], valid[here] = np.where(inside[..., None], TISSUE, GLASS), True
        return rgb, valid


def huge_slide(path, shape, block):
    return HugeSlide(
        path, shape, (Level(shape, (256, 256)),), Resolution((0.5, 0.5), "table"), (255, 255, 255), "double", block=block
    )
