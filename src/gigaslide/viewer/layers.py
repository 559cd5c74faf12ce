"""Tiles of what lies over the slide: prediction, truth, disagreement, corrections; transparent PNG."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from gigaslide.geometry import Interval, Window
from gigaslide.slides.arrays import Bytes
from gigaslide.viewer import paint
from gigaslide.viewer.corrected import paint as paint_strokes
from gigaslide.viewer.shares import Shares
from gigaslide.viewer.strokes import Stroke

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
        self.zoom = shares.zoom
        self._shares, self._start = shares, start

    def read(self, layer: str, strokes: Sequence[Stroke], level: int, column: int, row: int) -> bytes | None:
        """Return a tile as PNG, None where there is none; `strokes` are for the layer of corrections."""
        window = self.zoom.window(level, column, row)
        if window is None:
            return None
        shape = self.zoom.level_shape(level)
        seen = _grown(window, shape)
        planes = dict(self._shares.read(level, seen))
        drawn = _DRAWN.get(layer, ())
        if layer == CORRECTIONS:
            drawn = (("corrected_invalid", "invalid"), ("corrected", "corrected"))
            planes["corrected"], planes["corrected_invalid"] = self._corrected(planes, strokes, seen, shape)
        canvas: Bytes | None = None
        for name, style in drawn:
            plane = planes.get(name)
            if plane is not None and plane.any():
                canvas = np.zeros((*seen.shape, 4), np.uint8) if canvas is None else canvas
                paint.draw(canvas, plane, paint.STYLES[style], (seen.y.start, seen.x.start))
        if canvas is None:
            return _empty(window.shape)
        inside = window.shift(-seen.y.start, -seen.x.start)
        return paint.encode_png(np.ascontiguousarray(canvas[inside.slices]))

    def _corrected(
        self, planes: dict[str, Bytes], strokes: Sequence[Stroke], window: Window, shape: tuple[int, int]
    ) -> tuple[Bytes, Bytes]:
        nothing = np.zeros(window.shape, np.uint8)
        tissue = planes.get(self._start or "", nothing)
        invalid = planes.get(f"{self._start}_invalid", nothing)
        scale = shape[0] / self.zoom.shape[0], shape[1] / self.zoom.shape[1]
        return paint_strokes(tissue, invalid, strokes, window, scale)
