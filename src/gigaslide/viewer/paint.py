"""Planes as pictures that lie over the slide: a faint fill, and an outline that stays two pixels wide at any zoom.

Colours that the colour-blind tell apart (Okabe and Ito, 2008; orange against blue), none of them near the pink and
purple of H&E or the brown and blue of IHC.
"""

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image
from scipy import ndimage

from gigaslide.slides.arrays import Bytes, Flags

LINE_PX = 2
MARGIN_PX = LINE_PX + 1  # what a tile has to see of its neighbours
_HALF = 128


@dataclass(frozen=True)
class Style:
    """How a plane is drawn: fill and outline as (red, green, blue, alpha), and a darker rim outside the outline."""

    fill: tuple[int, int, int, int]
    line: tuple[int, int, int, int]
    rim: tuple[int, int, int, int] | None = None
    hatched: bool = False


STYLES = {
    "prediction": Style((0, 158, 115, 26), (0, 158, 115, 255)),
    "truth": Style((20, 24, 31, 14), (20, 24, 31, 255)),
    "missed": Style((230, 97, 0, 150), (230, 97, 0, 255)),
    "false": Style((0, 90, 230, 140), (0, 90, 230, 255)),
    "corrected": Style((255, 214, 10, 16), (255, 214, 10, 255), (30, 26, 0, 190)),
    "invalid": Style((70, 78, 92, 105), (70, 78, 92, 200), hatched=True),
}


def _near(flags: Flags, distance_px: int) -> Flags:
    return np.asarray(ndimage.binary_dilation(flags, iterations=distance_px), bool)


def draw(canvas: Bytes, plane: Bytes, style: Style, origin: tuple[int, int]) -> None:
    """Draw a plane, uint8 (y, x), over a canvas, uint8 (y, x, 4); `origin`: its first row and column in the level."""
    inside = plane >= _HALF
    if not plane.any():
        return
    if style.hatched:
        rows, columns = np.ogrid[origin[0] : origin[0] + plane.shape[0], origin[1] : origin[1] + plane.shape[1]]
        canvas[inside & ((rows + columns) % 12 < 3)] = (*style.fill[:3], min(255, 2 * style.fill[3]))
        canvas[inside & ((rows + columns) % 12 >= 3)] = style.fill
    else:
        some = plane > 0  # a piece smaller than a pixel stays visible
        canvas[some, :3] = style.fill[:3]
        canvas[some, 3] = (plane[some].astype(np.uint16) * style.fill[3] // 255).astype(np.uint8)
    outside = ~inside
    if inside.all() or outside.all():
        return
    if style.rim is not None:
        canvas[outside & _near(inside, 1)] = style.rim
    canvas[inside & _near(outside, LINE_PX)] = style.line


def encode_png(rgba: Bytes) -> bytes:
    """Encode uint8 (y, x, 4)."""
    buffer = io.BytesIO()
    Image.fromarray(rgba).save(buffer, "png", compress_level=1)
    return buffer.getvalue()
