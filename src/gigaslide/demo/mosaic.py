"""Endless tissue from the atlases: jittered cells, each a random shift and turn of an atlas.

A cell's score falls to zero at the end of its reach and rises with the matter at the pixel; the best score wins whole,
nothing is averaged. So cells meet along fibres and round nuclei instead of along a straight, blurred line.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gigaslide.demo.noise import Axis, Field, hash_unit, noise, slow, upsample
from gigaslide.demo.texture import ATLAS_PX
from gigaslide.geometry import Window

Packed = NDArray[np.uint32]
"""Red, green, blue transmittance and height (how much matter), 8 bits each, from the lowest."""

_CELL_PX = 380
_JITTER = 0.25
# A pixel's own cell has its site within half a cell plus the jitter on each axis: every pixel is reached.
_REACH_PX = int(_CELL_PX * (0.5 + _JITTER)) + 24
_WRAP = ATLAS_PX - 1
_SHIFT = ATLAS_PX.bit_length() - 1
# Score at the site: base, plus noise of about this size, plus this share of the matter.
_BASE, _SWAY, _MATTER = 1.0, 0.45, 0.3


def pack(transmittance: NDArray[np.float32], height: NDArray[np.float32]) -> Packed:
    """Pack colours, (y, x, 3), and height, (y, x), all 0..1, into one flat array for fast look-up."""
    levels = [np.rint(np.clip(c, 0, 1) * 255).astype(np.uint32) for c in (*np.moveaxis(transmittance, 2, 0), height)]
    packed: Packed = (levels[0] | levels[1] << 8 | levels[2] << 16 | levels[3] << 24).ravel()
    return packed


def height(packed: Packed) -> Field:
    """Return the height of packed texture, 0..1."""
    return (packed >> 24).astype(np.float32) * np.float32(1 / 255)


@dataclass(frozen=True, slots=True)
class _Cell:
    """One cell: its site, its atlas, and how the atlas is laid: shifted by whole px, mirrored, transposed."""

    y: int
    x: int
    atlas: str
    shift_y: int
    shift_x: int
    mirror_y: bool
    mirror_x: bool
    transposed: bool
    sway_y: float
    sway_x: float


def _direction(draw: float) -> tuple[float, float]:
    """Return a unit vector, uniform over directions for a uniform draw in 0..1."""
    return float(np.cos(2 * np.pi * draw)), float(np.sin(2 * np.pi * draw))


@lru_cache(maxsize=4096)
def _cell(kind: str, seed: int, row: int, column: int, um: float) -> _Cell:
    """Hash everything about a cell from its row and column."""
    draws = [float(hash_unit(seed + k, row, column)) for k in range(8)]
    y = round((row + 0.5 + _JITTER * (2 * draws[0] - 1)) * _CELL_PX)
    x = round((column + 0.5 + _JITTER * (2 * draws[1] - 1)) * _CELL_PX)
    here = np.array([float(y)]), np.array([float(x)])
    mood = float(noise(seed + 11, *here, 620 * um)[0, 0])
    mirror_y, mirror_x, transposed = (draw < 0.5 for draw in draws[4:7])
    if kind == "stroma":
        # Fibres keep a direction over some cells, one of four an eighth of a turn apart: mirrored both ways or not.
        step = int(np.floor(float(noise(seed + 12, *here, 1300 * um)[0, 0]) * 1.6 + 2)) % 4
        atlas = ("coarse" if mood < 0.1 else "fine") + ("_45" if step % 2 else "")
        transposed, mirror_x = step == 2, mirror_y != (step == 3)
        if mood > 1.15:
            atlas, transposed = "cellular", False
    else:
        atlas = "dark_epithelium" if kind == "epithelium" and mood > 0.8 else kind
        transposed = transposed and kind == "epithelium"
    shift_y, shift_x = (int(draw * ATLAS_PX) for draw in draws[2:4])
    return _Cell(y, x, atlas, shift_y, shift_x, mirror_y, mirror_x, transposed, *_direction(draws[7]))


def _lay(cell: _Cell, atlas: Packed, warp_y: NDArray[np.int32], warp_x: NDArray[np.int32]) -> Packed:
    """Look an atlas up at the bent coordinates, (y, x)."""
    v = np.subtract(cell.shift_y, warp_y) if cell.mirror_y else warp_y + cell.shift_y
    u = np.subtract(cell.shift_x, warp_x) if cell.mirror_x else warp_x + cell.shift_x
    if cell.transposed:
        v, u = u, v
    v &= _WRAP
    v <<= _SHIFT
    u &= _WRAP
    v |= u
    return atlas.take(v)


def _hill(start: int, stop: int, site: int) -> Field:
    """Return 1 at the site, falling to 0 at the end of its reach, for pixels `start <= i < stop`."""
    return (1 - ((np.arange(start, stop) - site) / _REACH_PX) ** 2).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Textures:
    """Texture of any kind at the pixels of one window.

    `warp_y`, `warp_x` (y, x) are the pixels' own coordinates, gently bent; `sway` makes the cells' borders wander.
    """

    palette: dict[str, Packed]
    seed: int
    um: float
    window: Window
    warp_y: NDArray[np.int32]
    warp_x: NDArray[np.int32]
    sway: tuple[Field, Field]

    @classmethod
    def at(cls, palette: dict[str, Packed], seed: int, um: float, window: Window, y: Axis, x: Axis) -> "Textures":
        """Bend the coordinates of `window`, whose lattice is `y`, `x`; `um` is px per um."""
        rows = np.arange(window.y.start, window.y.stop, dtype=np.float32)[:, None]
        columns = np.arange(window.x.start, window.x.stop, dtype=np.float32)[None, :]
        bend_y, bend_x = (slow(seed + k, y, x, 300 * um) * np.float32(11 * um) for k in (60, 61))
        sway = [slow(seed + k, y, x, 110 * um, 3, 0.6) * np.float32(_SWAY) for k in (64, 67)]
        return cls(
            palette, seed, um, window,
            warp_y=np.rint(upsample(bend_y) + rows).astype(np.int32),
            warp_x=np.rint(upsample(bend_x) + columns).astype(np.int32),
            # A score must stay positive, or a pixel could be left without a winner.
            sway=(upsample(np.clip(sway[0], -0.6, 0.6)), upsample(np.clip(sway[1], -0.6, 0.6))),
        )  # fmt: skip

    def sample(self, kind: str, layer: int) -> Packed:
        """Return packed texture of a kind (stroma, fat, epithelium, keratin), (y, x); other layers show other parts."""
        if kind == "fat":
            # A cell's border would cut vacuoles open: fat repeats every 1024 px, bent.
            return self.palette["fat"].take((self.warp_y & _WRAP) << _SHIFT | self.warp_x & _WRAP)
        window, seed = self.window, self.seed + layer
        best = np.zeros(window.shape, dtype=np.uint32)
        best_score = np.zeros(window.shape, dtype=np.float32)
        for row in range((window.y.start - _REACH_PX) // _CELL_PX - 1, (window.y.stop + _REACH_PX) // _CELL_PX + 2):
            for column in range(
                (window.x.start - _REACH_PX) // _CELL_PX - 1, (window.x.stop + _REACH_PX) // _CELL_PX + 2
            ):
                cell = _cell(kind, seed, row, column, self.um)
                reach = Window.of(cell.y - _REACH_PX, cell.x - _REACH_PX, 2 * _REACH_PX, 2 * _REACH_PX).clip(window)
                if 0 in reach.shape:
                    continue
                part = reach.shift(-window.y.start, -window.x.start).slices
                value = _lay(cell, self.palette[cell.atlas], self.warp_y[part], self.warp_x[part])
                score = (value >> 24).astype(np.float32)
                score *= np.float32(_MATTER / 255)
                # Each cell mixes the two noises in its own way, so that neighbours part along their contours.
                score += self.sway[0][part] * np.float32(cell.sway_y)
                score += self.sway[1][part] * np.float32(cell.sway_x)
                score += np.float32(_BASE)
                score *= _hill(reach.y.start, reach.y.stop, cell.y)[:, None]
                score *= _hill(reach.x.start, reach.x.stop, cell.x)[None, :]
                better = score > best_score[part]
                np.copyto(best_score[part], score, where=better)
                np.copyto(best[part], value, where=better)
        return best
