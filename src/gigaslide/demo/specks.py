"""Dust and debris: soot, dirt, lint, torn-off cells; a few on every slide, many and fibres on a dusty one.

Each cell of a grid holds at most one, hashed from the seed and the cell, so that a window needs only its own cells and
their neighbours. Debris on glass is glass in the mask, as a pathologist would draw it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gigaslide.demo.noise import Axis, Field, fractal, hash_unit
from gigaslide.demo.shapes import Piece

_GRID_UM = 250.0
_CHANCE, _CHANCE_DUSTY = 0.12, 0.6
_FIBRES = 0.2  # of the specks on a dusty slide
# Optical density in red, green, blue: soot, brown dirt, nuclei, collagen, teal surgical ink, blue lint.
_COLOURS = np.array(
    [[1.9, 1.9, 1.8], [0.9, 1.2, 1.6], [1.3, 1.6, 0.9], [0.2, 0.9, 0.5], [1.5, 0.6, 0.7], [0.9, 0.6, 0.3]]
)


@dataclass(frozen=True, slots=True)
class Speck:
    """One speck in a window: the pixels `where`, how much of each it covers, 0..1, and its density per channel."""

    where: tuple[slice, slice]
    coverage: Field
    density: NDArray[np.float64]

    def transmittance(self) -> NDArray[np.float32]:
        """Return the share of light that passes, (y, x, 3)."""
        return 1 - self.coverage[..., None] * (1 - np.exp(-self.density)).astype(np.float32)


def _shape(seed: int, row: int, column: int, um: float, dusty: bool) -> tuple[Piece, float, int] | None:
    """Return outline, sharpness 0..1 and colour of the speck of a cell, or None if it has none."""
    draws = [float(hash_unit(seed + k, row, column)) for k in range(8)]
    there, cy, cx, size, turn, colour, shape, sharp = draws
    if there > (_CHANCE_DUSTY if dusty else _CHANCE):
        return None
    y, x, angle = (row + cy) * _GRID_UM * um, (column + cx) * _GRID_UM * um, 2 * np.pi * turn
    if dusty and shape < _FIBRES:
        half_length, half_width = (30 + 75 * size) * um, (1 + 1.6 * size) * um
        bend, wave = (turn - 0.5) * half_length, half_length * 2.3
        fibre = Piece(y, x, angle, half_length, half_width, bend, wave, half_width * 0.1)
        return fibre, sharp, int(colour * len(_COLOURS))
    half_length, half_width = (1 + 3 * shape) * um, (0.8 + 7 * size**3) * um
    grain = Piece(y, x, angle, half_length, half_width, 0.0, 1.0, half_width * 0.55)
    return grain, sharp, int(colour * len(_COLOURS))


def specks(seed: int, mpp_um_per_px: float, dusty: bool, y: Axis, x: Axis) -> Iterator[Speck]:
    """Yield the specks that touch the pixels of rows `y` and columns `x` (ascending)."""
    um = 1 / mpp_um_per_px
    grid_px = _GRID_UM * um
    for row in range(int(y[0] // grid_px) - 1, int(y[-1] // grid_px) + 2):
        for column in range(int(x[0] // grid_px) - 1, int(x[-1] // grid_px) + 2):
            found = _shape(seed + 30, row, column, um, dusty)
            if found is None:
                continue
            piece, sharp, colour = found
            reach = piece.half_length_px + abs(piece.bend_px) + piece.half_width_px + 3 * piece.rough_px + 8
            top, bottom = (int(n) for n in np.searchsorted(y, (piece.y - reach, piece.y + reach)))
            left, right = (int(n) for n in np.searchsorted(x, (piece.x - reach, piece.x + reach)))
            if top == bottom or left == right:
                continue
            rows, columns = y[top:bottom], x[left:right]
            distance = piece.distance(rows, columns, fractal(seed + 40, rows, columns, 7 * um, 2))
            # From 1 px when in focus to 6 px.
            slope = np.float32(1 / (1.2 + 5 * (1 - sharp) ** 3))
            coverage = np.clip(distance * slope + np.float32(0.5), 0, 1)
            density = _COLOURS[colour] * (0.35 + 0.65 * sharp)
            yield Speck((slice(top, bottom), slice(left, right)), coverage, density)
