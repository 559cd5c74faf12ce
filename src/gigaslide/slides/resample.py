"""Area averaging: every pixel of a coarse grid is the mean of the part of the fine grid that it covers.

Both grids cover the same rectangle, so along one axis coarse pixel i of `coarse` covers the fine pixels i *
fine / coarse to (i + 1) * fine / coarse, and the two axes are averaged one after the other. The overlaps
are counted in whole numbers (units of 1 / coarse of a fine pixel), so a pixel gets the same weights
whichever window it is read in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gigaslide.geometry import Interval
from gigaslide.slides.arrays import Bytes, Flags, Floats

if TYPE_CHECKING:
    import scipy.sparse


def fine_interval(coarse: Interval, coarse_px: int, fine_px: int) -> Interval:
    """Return the fine pixels that the `coarse` pixels touch, on axes of `coarse_px` and `fine_px` pixels."""
    return Interval(coarse.start * fine_px // coarse_px, -(-coarse.stop * fine_px // coarse_px))


def weights(coarse: Interval, coarse_px: int, fine_px: int) -> scipy.sparse.csr_array:
    """Share of each fine pixel in each coarse one: float32 (coarse.size, size of `fine_interval`)."""
    import scipy.sparse  # a fifth of a worker's start, and most slides are read at one of their levels

    fine = fine_interval(coarse, coarse_px, fine_px)
    rows = np.arange(coarse.start, coarse.stop, dtype=np.int64)
    first = rows * fine_px // coarse_px
    data, columns, indices = [], [], []
    for step in range(-(-fine_px // coarse_px) + 1):
        column = first + step
        start = np.maximum(rows * fine_px, column * coarse_px)
        stop = np.minimum((rows + 1) * fine_px, (column + 1) * coarse_px)
        overlap = stop - start
        kept = overlap > 0
        data.append(overlap[kept] / fine_px)
        columns.append(column[kept] - fine.start)
        indices.append(rows[kept] - coarse.start)
    values = np.concatenate(data).astype(np.float32)
    where = np.concatenate(indices), np.concatenate(columns)
    return scipy.sparse.csr_array((values, where), shape=(coarse.size, fine.size))


def area_average(fine: Bytes | Flags, y_weights: scipy.sparse.csr_array, x_weights: scipy.sparse.csr_array) -> Floats:
    """Average `fine` (y, x, channel) down to float32 (rows of y_weights, rows of x_weights, channel)."""
    height, width, channels = fine.shape
    rows = y_weights @ fine.reshape(height, width * channels).astype(np.float32)
    turned = np.ascontiguousarray(rows.reshape(-1, width, channels).transpose(1, 0, 2))
    columns = x_weights @ turned.reshape(width, -1)
    return np.asarray(columns.reshape(-1, rows.shape[0], channels).transpose(1, 0, 2))


def touched(flags: Flags, y_weights: scipy.sparse.csr_array, x_weights: scipy.sparse.csr_array) -> Flags:
    """Return which coarse pixels hold any of `flags`, bool (y, x): bool (rows of y_weights, rows of x_weights)."""
    if not flags.any():
        return np.zeros((y_weights.shape[0], x_weights.shape[0]), bool)
    return np.asarray(area_average(flags[..., None], y_weights, x_weights)[..., 0] > 0)
