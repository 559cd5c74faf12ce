"""Tiles of the slide itself, as JPEG.

A level that the file's own pyramid serves is read tile by tile. Below that a tile would need many pixels for few (a
slide of a single level has no small picture of itself), so there all levels come from one overview, which is read
once, in bands, beside the tiles; the part that is not there yet has the background colour.
"""

import io
import math
import threading

import numpy as np
from PIL import Image

from gigaslide.geometry import Window, split
from gigaslide.slides.arrays import Bytes
from gigaslide.slides.damage import Damage
from gigaslide.slides.levels import best_level
from gigaslide.slides.reader import SlideReader
from gigaslide.viewer.deep_zoom import DeepZoom
from gigaslide.viewer.halving import pyramid

TILE_PX, OVERLAP_PX = 254, 1
OVERVIEW_PX = 40_000_000
_BAND_PX = 4_000_000  # of the overview, at a time
# What one tile may cost. A file's levels are 4 times apart as a rule: 16 of their pixels for one of ours, and rounding.
_MOST_READ_PX = 17 * (TILE_PX + 2 * OVERLAP_PX) ** 2
_JPEG_QUALITY = 88


def encode_jpeg(rgb: Bytes) -> bytes:
    """Encode uint8 (y, x, 3)."""
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "jpeg", quality=_JPEG_QUALITY)
    return buffer.getvalue()


class SlideTiles:
    """The Deep Zoom tiles of a slide; `read` may be called from any thread."""

    def __init__(self, reader: SlideReader) -> None:
        self.zoom = DeepZoom(reader.level0_shape, TILE_PX, OVERLAP_PX)
        self._damage = Damage()
        self._reader = reader.counting(self._damage)
        slow = [level for level in range(self.zoom.level_count) if self._tile_cost_px(level) > _MOST_READ_PX]
        top = self.zoom.finest_level(OVERVIEW_PX)
        # Levels up to this one come from the overview, -1: none.
        self._overview_level = min(max(slow), top) if slow else -1
        self._levels: list[Bytes] = []
        self._lock, self._stop = threading.Lock(), threading.Event()
        self.overview_share = 0.0 if slow else 1.0

    def _tile_cost_px(self, level: int) -> float:
        """Return how many pixels of the file a tile of a level needs."""
        shape = self.zoom.level_shape(level)
        stored = self._reader.levels[best_level(shape, [held.shape for held in self._reader.levels])].shape
        return min(1.0, (TILE_PX + 2 * OVERLAP_PX) ** 2 / math.prod(shape)) * math.prod(stored)

    def make_overview(self) -> None:
        """Read the overview where one is needed; blocks until it is there, or `close` was called."""
        if self._overview_level < 0:
            return
        shape = self.zoom.level_shape(self._overview_level)
        reader = self._reader.at_shape(shape)
        canvas = np.full((*shape, 3), self._reader.background, np.uint8)
        for band in split(shape[0], max(1, _BAND_PX // shape[1])):
            if self._stop.is_set():
                return
            canvas[band.slice] = reader.read(Window(band, Window.of(0, 0, *shape).x))[0]
            levels = pyramid(canvas, self._overview_level + 1)
            with self._lock:
                self._levels = levels
            self.overview_share = band.stop / shape[0]

    def read(self, level: int, column: int, row: int) -> bytes | None:
        """Return a tile as JPEG, None where there is none."""
        window = self.zoom.window(level, column, row)
        if window is None:
            return None
        if level <= self._overview_level:
            with self._lock:
                levels = self._levels
            if not levels:
                return encode_jpeg(np.full((*window.shape, 3), self._reader.background, np.uint8))
            return encode_jpeg(np.ascontiguousarray(levels[level][window.slices]))
        return encode_jpeg(self._reader.at_shape(self.zoom.level_shape(level)).read(window)[0])

    @property
    def problem(self) -> str:
        """Why a part of the slide could not be shown, empty if all could."""
        return self._damage.first

    def is_final(self, level: int) -> bool:
        """Whether tiles of that level will not change any more."""
        return level > self._overview_level or self.overview_share >= 1.0

    def close(self) -> None:
        """Let `make_overview` end."""
        self._stop.set()
