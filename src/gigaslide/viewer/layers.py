"""Tiles of what lies over the slide: prediction, truth, disagreement, corrections; transparent PNG.

Their pyramid has levels finer than the slide, where a pixel of the slide is 2, 4 and 8 pixels wide: an outline is as
thin there as elsewhere, and follows the edges of the slide's pixels.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from gigaslide.geometry import Interval, Window
from gigaslide.slides.arrays import Bytes
from gigaslide.viewer import paint
from gigaslide.viewer.corrected import paint as paint_strokes
from gigaslide.viewer.deep_zoom import DeepZoom
from gigaslide.viewer.shares import TILE_PX, Shares
from gigaslide.viewer.strokes import Stroke

_FINER_LEVELS = 3
# Plane, style; later ones lie over earlier ones.
_DRAWN = {
    "prediction": (("prediction_invalid", "invalid"), ("prediction", "prediction")),
    "truth": (("truth_invalid", "invalid"), ("truth", "truth")),
    "disagreement": (("missed", "missed"), ("false", "false")),
}
CORRECTIONS = "corrections"


@lru_cache(maxsize=64)
def _empty(shape: tuple[int, int]) -> bytes:
    return paint.encode_png(np.zeros((*shape, 4), np.uint8))


def _grown(window: Window, shape: tuple[int, int]) -> Window:
    """Add what the outlines need to see around a tile."""
    margin = paint.MARGIN_PX
    y, x = (Interval(axis.start - margin, axis.stop + margin) for axis in (window.y, window.x))
    return Window(y, x).clip(Window.of(0, 0, *shape))


class LayerTiles:
    """The Deep Zoom tiles of the layers over `shares`; `start` is the mask that corrections begin with, if any."""

    def __init__(self, shares: Shares, start: str | None) -> None:
        height, width = shares.zoom.shape
        self.zoom = DeepZoom((height << _FINER_LEVELS, width << _FINER_LEVELS), TILE_PX)
        self._shares, self._start = shares, start

    def read(self, layer: str, strokes: Sequence[Stroke], level: int, column: int, row: int) -> bytes | None:
        """Return a tile as PNG, None where there is none; `strokes` are for the layer of corrections."""
        window = self.zoom.window(level, column, row)
        if window is None:
            return None
        seen = _grown(window, self.zoom.level_shape(level))
        # Level 0 of the slide, or coarser, and how many of our pixels are one of its.
        stored = min(level, self._shares.zoom.level_count - 1)
        width = 1 << (level - stored)
        pixels = Window(*(Interval(axis.start // width, -(-axis.stop // width)) for axis in (seen.y, seen.x)))
        planes = dict(self._shares.read(stored, pixels))
        drawn = _DRAWN.get(layer, ())
        if layer == CORRECTIONS:
            drawn = (("corrected_invalid", "invalid"), ("corrected", "corrected"))
            shape = self._shares.zoom.level_shape(stored)
            planes["corrected"], planes["corrected_invalid"] = self._corrected(planes, strokes, pixels, shape)
        inside = seen.shift(-pixels.y.start * width, -pixels.x.start * width).slices
        canvas: Bytes | None = None
        for name, style in drawn:
            plane = planes.get(name)
            if plane is not None and plane.any():
                canvas = np.zeros((*seen.shape, 4), np.uint8) if canvas is None else canvas
                if width > 1:
                    plane = plane.repeat(width, axis=0).repeat(width, axis=1)[inside]
                paint.draw(canvas, plane, paint.STYLES[style], (seen.y.start, seen.x.start))
        if canvas is None:
            return _empty(window.shape)
        tile = window.shift(-seen.y.start, -seen.x.start).slices
        return paint.encode_png(np.ascontiguousarray(canvas[tile]))

    def _corrected(
        self, planes: dict[str, Bytes], strokes: Sequence[Stroke], window: Window, shape: tuple[int, int]
    ) -> tuple[Bytes, Bytes]:
        nothing = np.zeros(window.shape, np.uint8)
        tissue = planes.get(self._start or "", nothing)
        invalid = planes.get(f"{self._start}_invalid", nothing)
        height, width = self._shares.zoom.shape
        scale = shape[0] / height, shape[1] / width
        return paint_strokes(tissue, invalid, strokes, window, scale)
