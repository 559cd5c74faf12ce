"""Shares of pixels, halved from level to level as Deep Zoom counts them."""

import numpy as np

from gigaslide.slides.arrays import Bytes


def halve(pixels: Bytes) -> Bytes:
    """Return the means of 2 x 2 blocks, uint8 (ceil(y / 2), ceil(x / 2), ...); at an odd edge, of what is there."""
    height, width = pixels.shape[:2]
    edges = [(0, height % 2), (0, width % 2), *[(0, 0)] * (pixels.ndim - 2)]
    even = np.pad(pixels, edges, mode="edge") if height % 2 or width % 2 else pixels
    sums = even[0::2, 0::2].astype(np.uint16)
    for part in (even[1::2, 0::2], even[0::2, 1::2], even[1::2, 1::2]):
        sums += part
    return ((sums + 2) >> 2).astype(np.uint8)


def pyramid(finest: Bytes, levels: int) -> list[Bytes]:
    """Return `levels` levels, the smallest first, `finest` last."""
    found = [finest]
    while len(found) < levels:
        found.append(halve(found[-1]))
    return found[::-1]
