"""A whole slide at a lower resolution, by area averaging, window by window.

Each pixel of the overview is the mean of a square block of `factor` x `factor` pixels; blocks at the far
edges are cut off by the image and are the mean of what is there.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gigaslide.geometry import Window, grid

_WINDOW_PX = 2048


def _block_means(pixels: NDArray[Any], factor: int) -> NDArray[np.float32]:
    height, width = pixels.shape[:2]
    down, across = -(-height // factor), -(-width // factor)
    rows = np.zeros((down, *pixels.shape[1:]), np.uint32)
    sums = np.zeros((down, across, *pixels.shape[2:]), np.uint32)
    for offset in range(min(factor, height)):
        part = pixels[offset::factor]
        rows[: len(part)] += part
    for offset in range(min(factor, width)):
        part = rows[:, offset::factor]
        sums[:, : part.shape[1]] += part
    heights = np.minimum(factor, height - factor * np.arange(down))
    widths = np.minimum(factor, width - factor * np.arange(across))
    area = np.multiply.outer(heights, widths).reshape(down, across, *[1] * (pixels.ndim - 2))
    means: NDArray[np.float32] = (sums / area).astype(np.float32)
    return means


def area_average(
    read: Callable[[Window], NDArray[Any]],
    shape: tuple[int, int],
    factor: int,
    dtype: type[np.float32] | type[np.uint8] = np.float32,
) -> NDArray[Any]:
    """Return the means of all blocks, `dtype` (ceil(y / factor), ceil(x / factor), ...).

    Args:
        read: the pixels of a window, bool or uint8 (y, x, ...); windows never overlap.
        shape: (y, x) of the slide.
        factor: side of a block in px, 1 to 4096 (sums are 32-bit).
        dtype: float32, or uint8 for means rounded to whole numbers.
    """
    if not 1 <= factor <= 4096:
        raise ValueError(f"factor is 1 to 4096; received {factor}")
    if min(shape) < 1:
        raise ValueError(f"a slide has at least one pixel; received shape={shape}")
    step = factor * max(1, _WINDOW_PX // factor)
    down, across = -(-shape[0] // factor), -(-shape[1] // factor)
    overview: NDArray[Any] = np.zeros((0, 0), dtype)
    for window in grid(shape, (step, step)):
        means = _block_means(read(window), factor)
        if not overview.size:
            overview = np.zeros((down, across, *means.shape[2:]), dtype)
        top, left = window.y.start // factor, window.x.start // factor
        target = overview[top : top + means.shape[0], left : left + means.shape[1]]
        target[:] = np.rint(means) if dtype is np.uint8 else means
    return overview


def factor_for(shape: tuple[int, int], longest_px: int) -> int:
    """Return the smallest whole factor that brings the longer side of `shape` to at most `longest_px`."""
    return max(1, -(-max(shape) // longest_px))
