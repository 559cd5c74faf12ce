"""Where an area of a given size holds the most tissue."""

import numpy as np

from gigaslide.classes import TISSUE
from gigaslide.geometry import Window
from gigaslide.slides.arrays import Flags
from gigaslide.slides.labels import LabelSource

_OVERVIEW_PX = 4_000_000


def _centre_of_mass(tissue: Flags) -> tuple[float, float]:
    rows, columns = tissue.sum(axis=1), tissue.sum(axis=0)
    y = np.average(np.arange(len(rows)) + 0.5, weights=rows)
    return float(y), float(np.average(np.arange(len(columns)) + 0.5, weights=columns))


def densest(tissue: Flags, area: tuple[int, int]) -> tuple[int, int]:
    """Return first row and column of the area (height, width) with the most of `tissue`, bool (y, x).

    Among areas that hold equally much: the one whose centre is nearest to the centre of mass of the tissue
    (of the picture, when there is no tissue), then the first in reading order.
    """
    height, width = area
    totals = np.zeros((tissue.shape[0] + 1, tissue.shape[1] + 1), np.int64)
    totals[1:, 1:] = tissue.cumsum(axis=0, dtype=np.int64).cumsum(axis=1)
    sums = totals[height:, width:] - totals[:-height, width:] - totals[height:, :-width] + totals[:-height, :-width]
    rows, columns = np.nonzero(sums == sums.max())
    centre = _centre_of_mass(tissue) if tissue.any() else (tissue.shape[0] / 2, tissue.shape[1] / 2)
    distance = (rows + height / 2 - centre[0]) ** 2 + (columns + width / 2 - centre[1]) ** 2
    nearest = int(distance.argmin())
    return int(rows[nearest]), int(columns[nearest])


def place_area(labels: LabelSource, shape: tuple[int, int], area_px: tuple[int, int]) -> Window:
    """Place an area of `area_px` (height, width) on the most tissue of a grid of `shape` (y, x).

    The labels are looked at on a grid of about 4 million pixels; an axis shorter than the area is taken
    whole.
    """
    size = min(area_px[0], shape[0]), min(area_px[1], shape[1])
    if size == shape:
        return Window.of(0, 0, *shape)
    factor = max(1.0, (shape[0] * shape[1] / _OVERVIEW_PX) ** 0.5)
    small = max(1, round(shape[0] / factor)), max(1, round(shape[1] / factor))
    tissue = labels.at_shape(small).read(Window.of(0, 0, *small)) == TISSUE
    small_size = [
        min(few, max(1, round(part * few / full))) for part, few, full in zip(size, small, shape, strict=True)
    ]
    corner = densest(tissue, (small_size[0], small_size[1]))
    top, left = (
        min(round(at * full / few), full - part) for at, full, few, part in zip(corner, shape, small, size, strict=True)
    )
    return Window.of(top, left, *size)
