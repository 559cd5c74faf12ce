"""Which patches of a slide have enough tissue: exact, in memory bounded by a band of rows and the outlines.

Patches lie on a grid that starts at the slide's first pixel; they are half-open, do not overlap, and none reaches
beyond the slide. Patch edges lie anywhere between pixels of the mask: shares of pixels count. All of it is in whole
numbers, in units of a fraction of a pixel, so that a patch with just the share asked for is in.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gigaslide.geometry import split
from gigaslide.masks.outlines import Outlines

_BAND_ROWS = 255  # tissue in a column of a band fits a byte
_INT64_LIMIT = 2**63
_FLOAT64_EXACT = 2**53


@dataclass(frozen=True)
class Cells:
    """Equal cells along one axis of a mask: `count` of them from 0 on, each `step` px of the mask long."""

    step: Fraction
    count: int


@dataclass(frozen=True)
class Patches:
    """The patches of a slide, row by row: `cells` int64 (patches, 2), which row and column of the grid they are.

    `tissue`: float64 (patches,), the share of each that is tissue.
    """

    cells: NDArray[np.int64]
    tissue: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.cells)


class _Columns:
    """Counts tissue down the columns of a mask, over stretches of rows that come from top to bottom."""

    def __init__(self, outlines: Outlines) -> None:
        self._outlines = outlines
        self._bands = split(outlines.shape[0], _BAND_ROWS)
        self._number, self._rows = -1, np.zeros((0, outlines.shape[1]), np.bool_)

    def _band(self, number: int) -> NDArray[np.bool_]:
        if number != self._number:
            band = self._bands[number]
            self._number, self._rows = number, self._outlines.read_rows(band.start, band.stop)
        return self._rows

    def tissue(self, start: int, stop: int, unit: int) -> NDArray[np.int64]:
        """Return the tissue of each column between two places, int64 (x,), in 1/unit px; so are the places."""
        found = np.zeros(self._outlines.shape[1], np.int64)
        first_whole, last_whole = -(-start // unit), stop // unit
        row = start // unit
        while row * unit < stop:
            band = self._bands[row // _BAND_ROWS]
            end = min(last_whole, band.stop) if first_whole <= row < last_whole else row + 1
            tissue = self._band(row // _BAND_ROWS)[row - band.start : end - band.start]
            counts = np.add.reduce(tissue.view(np.uint8), axis=0, dtype=np.uint8)
            inside = min(stop, (row + 1) * unit) - max(start, row * unit)  # of each of these rows
            found += counts * np.int64(inside)
            row = end
        return found


def tissue_shares(outlines: Outlines, y: Cells, x: Cells) -> Iterator[NDArray[np.float64]]:
    """Yield the share of each cell that is tissue, row of cells by row of cells, float64 (x.count,).

    Args:
        outlines: of a mask.
        y: the cells' rows, which end within the mask.
        x: the cells' columns, which end within the mask.
    """
    for axis, size_px in zip((y, x), outlines.shape, strict=True):
        if axis.step <= 0 or axis.step * axis.count > size_px:
            raise ValueError(f"cells lie within {size_px} px; received {axis}")
    height, y_unit = y.step.as_integer_ratio()
    width, x_unit = x.step.as_integer_ratio()
    area = height * width
    number: Any = np.int64 if max(height, y_unit) * max(width, x_unit) < _INT64_LIMIT else object
    edges: NDArray[Any] = np.arange(x.count + 1).astype(number) * width
    pixels, parts = (edges // x_unit).astype(np.int64), edges % x_unit
    columns = _Columns(outlines)
    for row in range(y.count):
        tissue = columns.tissue(row * height, (row + 1) * height, y_unit)
        before = np.append(0, np.cumsum(tissue))
        tissue = np.append(tissue, 0)  # an edge at the end of the mask
        found: NDArray[Any] = np.diff(before[pixels]).astype(number) * x_unit + np.diff(
            tissue[pixels].astype(number) * parts
        )
        if area < _FLOAT64_EXACT:
            yield found / area
        else:
            yield (found.astype(object) / area).astype(np.float64)  # rounded once, as Python divides whole numbers


def find_patches(
    outlines: Outlines,
    level0_shape: tuple[int, int],
    patch_level0_px: tuple[Fraction | int, Fraction | int],
    min_tissue: float,
) -> Patches:
    """Return the patches of a slide that have at least `min_tissue` tissue, and some.

    Args:
        outlines: of a mask of the whole slide, at any scale.
        level0_shape: (y, x) of the slide in px.
        patch_level0_px: height and width of a patch in px of level 0.
        min_tissue: share of a patch, 0 to 1.
    """
    if min(patch_level0_px) <= 0 or not 0 <= min_tissue <= 1:
        raise ValueError(f"a patch has a size, a share is 0 to 1; received {patch_level0_px=}, {min_tissue=}")
    y, x = (
        Cells(Fraction(mask_px, full_px) * patch, int(full_px // patch))
        for mask_px, full_px, patch in zip(outlines.shape, level0_shape, patch_level0_px, strict=True)
    )
    cells, tissue = [np.empty((0, 2), np.int64)], [np.empty(0)]
    if x.count:
        for row, shares in enumerate(tissue_shares(outlines, y, x)):
            kept = np.flatnonzero((shares >= min_tissue) & (shares > 0))
            cells.append(np.stack([np.full(len(kept), row), kept], axis=1))
            tissue.append(shares[kept])
    return Patches(np.concatenate(cells), np.concatenate(tissue))
