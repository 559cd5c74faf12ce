"""The slide with the outline of its tissue, small enough to look at: `overlay.png`, and thumbnails for a sheet.

Outlines are drawn from the rings themselves, so that a piece smaller than a pixel of the picture is still a dot.
"""

import io
import itertools
from pathlib import Path

import numpy as np
from matplotlib import get_data_path
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from gigaslide.files import atomic_path
from gigaslide.geometry import Window
from gigaslide.masks.outlines import Outlines
from gigaslide.reporting.pictures import scale_bar
from gigaslide.slides.arrays import Bytes
from gigaslide.slides.reader import SlideReader

LONGEST_PX = 2000
# Okabe and Ito's bluish green: far from eosin, haematoxylin and DAB, for every kind of colour vision.
_OUTLINE = (0, 158, 115)
_HALO = (255, 255, 255)
_FINER = 2  # lines are drawn on a picture so many times larger, then averaged
_LINE_PX, _HALO_PX = 2, 4
_FONT_PX = 20
_MARGIN_PX = 16


def small(reader: SlideReader, longest_px: int = LONGEST_PX) -> Bytes:
    """Return the slide averaged by area until its longer side has at most `longest_px`, uint8 (y, x, 3)."""
    factor = max(1.0, max(reader.shape) / longest_px)
    height, width = (max(1, round(size / factor)) for size in reader.shape)
    return reader.at_shape((height, width)).read(Window.of(0, 0, height, width))[0]


def outlined(picture: Bytes, outlines: Outlines) -> Bytes:
    """Return the picture of a slide, uint8 (y, x, 3), with the outlines of its tissue drawn over it."""
    height, width = picture.shape[:2]
    finer = Image.fromarray(picture).resize((width * _FINER, height * _FINER), Image.Resampling.NEAREST)
    pen = ImageDraw.Draw(finer)
    rings = [
        _on_picture(outlines.vertices[start:stop], outlines.shape, finer.size)
        for start, stop in itertools.pairwise(outlines.starts)
    ]
    for colour, line_px in ((_HALO, _HALO_PX), (_OUTLINE, _LINE_PX)):
        for ring in rings:
            pen.line(ring, colour, line_px * _FINER, joint="curve")
    return np.asarray(finer.resize((width, height), Image.Resampling.BOX))


def _on_picture(ring: NDArray[np.int32], shape: tuple[int, int], size: tuple[int, int]) -> list[tuple[float, float]]:
    """Return a closed ring, int32 (n, 2) as (y, x), in the picture's (x, y), without points that fall together."""
    scale = np.array([size[1] / shape[0], size[0] / shape[1]])
    points = np.rint(np.concatenate([ring, ring[:1]]) * scale).astype(np.int64)
    moved = np.ones(len(points), bool)
    moved[1:] = (points[1:] != points[:-1]).any(axis=1)
    kept = points[moved]
    if len(kept) == 1:
        kept = np.concatenate([kept, kept + 1])
    return [(float(x), float(y)) for y, x in kept]


def write(path: Path, picture: Bytes, mpp_um_per_px: float | None, factor: float) -> None:
    """Write a picture with a scale bar as PNG.

    Args:
        path: of the PNG.
        picture: uint8 (y, x, 3).
        mpp_um_per_px: of the slide's grid; None: the bar is in pixels of it.
        factor: pixels of the grid per pixel of the picture.
    """
    image = Image.fromarray(picture)
    _draw_scale_bar(image, mpp_um_per_px, factor)
    with atomic_path(path) as temporary:
        image.save(temporary, optimize=True)


def thumbnail_jpeg(picture: Bytes, outlines: Outlines, longest_px: int) -> bytes:
    """Return a picture, uint8 (y, x, 3), as a JPEG of at most `longest_px` along its longer side, outlined there."""
    image = Image.fromarray(picture)
    image.thumbnail((longest_px, longest_px), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    Image.fromarray(outlined(np.asarray(image), outlines)).save(stream, "JPEG", quality=88)
    return stream.getvalue()


def _draw_scale_bar(image: Image.Image, mpp_um_per_px: float | None, factor: float) -> None:
    length, label = scale_bar(mpp_um_per_px, factor, image.width)
    font = ImageFont.truetype(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", _FONT_PX)
    pen = ImageDraw.Draw(image, "RGBA")
    right, bottom = image.width - _MARGIN_PX, image.height - _MARGIN_PX
    text_px = pen.textlength(label, font)
    left = right - max(length, text_px)
    pen.rounded_rectangle((left - 10, bottom - _FONT_PX - 18, right + 10, bottom + 8), 6, (255, 255, 255, 225))
    pen.rectangle((right - length, bottom - 5, right, bottom), (20, 20, 20, 255))
    pen.text((right - max(length, text_px) / 2, bottom - 10), label, (20, 20, 20, 255), font, anchor="ms")
