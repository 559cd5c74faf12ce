"""Where prediction and truth differ, or the pieces of a mask: connected areas, the largest first.

They are found on the grid that `Shares` samples: every pixel of a slide of up to 25 megapixels, every n-th of a larger
one, where an area of less than n x n pixels may be overlooked and sizes are counts of n x n. Pixels that touch at a
corner are connected.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from gigaslide.slides.arrays import Bytes

MOST = 500


@dataclass(frozen=True)
class Region:
    """A connected area: its box (top, left, bottom, right) and a point deep inside (y, x), in pixels of level 0."""

    kind: str
    area_px: float
    box: tuple[float, float, float, float]
    point: tuple[float, float]


@dataclass(frozen=True)
class Regions:
    """The largest areas, and number and size of those that are not among them."""

    largest: tuple[Region, ...]
    more_count: int
    more_area_px: float


def _deepest(inside: Bytes) -> tuple[int, int]:
    """Return row and column of a pixel of an area, bool (y, x), that is farthest from its edge."""
    padded = np.pad(inside, 1)
    step = max(1, math.isqrt(padded.size // 1_000_000))  # a box as large as the slide is looked at coarsely
    depth = ndimage.distance_transform_cdt(padded[::step, ::step])
    if not depth.any():
        row, column = np.argwhere(inside)[0]
        return int(row), int(column)
    row, column = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(row) * step - 1, int(column) * step - 1


def find_regions(planes: Sequence[tuple[str, Bytes]], level0_shape: tuple[int, int], most: int = MOST) -> Regions:
    """Return the connected areas of planes, (kind, uint8 (y, x)), that cover the slide of `level0_shape` (y, x)."""
    sizes: list[tuple[float, str, int]] = []
    labelled = {}
    for kind, plane in planes:
        numbers, _ = ndimage.label(plane >= 128, structure=np.ones((3, 3), int), output=np.int32)
        counts = np.bincount(numbers.ravel())
        labelled[kind] = numbers, ndimage.find_objects(numbers)
        sizes += [(float(counts[number]), kind, number) for number in range(1, len(counts))]
    sizes.sort(key=lambda item: (-item[0], item[1], item[2]))
    found = []
    scale_y = scale_x = 1.0
    for _, plane in planes:
        scale_y, scale_x = level0_shape[0] / plane.shape[0], level0_shape[1] / plane.shape[1]
    for count, kind, number in sizes[:most]:
        numbers, boxes = labelled[kind]
        rows, columns = boxes[number - 1]
        row, column = _deepest(numbers[rows, columns] == number)
        found.append(
            Region(
                kind,
                count * scale_y * scale_x,
                (rows.start * scale_y, columns.start * scale_x, rows.stop * scale_y, columns.stop * scale_x),
                ((rows.start + row + 0.5) * scale_y, (columns.start + column + 0.5) * scale_x),
            )
        )
    rest = sizes[most:]
    return Regions(tuple(found), len(rest), sum(count for count, _, _ in rest) * scale_y * scale_x)
