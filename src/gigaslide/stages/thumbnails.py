"""A contact sheet: every slide small, with its name, its split and its problem."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont

from gigaslide.files import atomic_path
from gigaslide.slides.arrays import Bytes
from gigaslide.stages.check import THUMBNAIL_PX

_COLUMNS = 6
_MARGIN_PX = 12
_LINE_PX = 16
_FONT_PX = 12
_PAPER = (255, 255, 255)
_FRAME = (200, 200, 200)
_INK = (30, 30, 30)
_GREY = (110, 110, 110)
_EMPTY = (245, 245, 245)
_PROBLEM = (190, 40, 0)


@dataclass(frozen=True)
class Thumbnail:
    """One slide on the sheet; without an `image` its problem is written where that would be."""

    name: str
    image: Bytes | None  # (y, x, 3), neither side above THUMBNAIL_PX
    caption: str
    problem: str | None


def write_sheet(target: Path, thumbnails: Sequence[Thumbnail]) -> None:
    """Write the sheet as PNG, in the order given."""
    columns = max(1, min(_COLUMNS, len(thumbnails)))
    rows = -(-len(thumbnails) // columns)
    cell_y, cell_x = THUMBNAIL_PX + 2 * _LINE_PX + 2 * _MARGIN_PX, THUMBNAIL_PX + 2 * _MARGIN_PX
    sheet = Image.new("RGB", (columns * cell_x, max(1, rows) * cell_y), _PAPER)
    draw = ImageDraw.Draw(sheet)
    regular, bold = _font("DejaVuSans.ttf"), _font("DejaVuSans-Bold.ttf")
    for number, thumbnail in enumerate(thumbnails):
        top = number // columns * cell_y + _MARGIN_PX
        left = number % columns * cell_x + _MARGIN_PX
        colour = _FRAME if thumbnail.problem is None else _PROBLEM
        if thumbnail.image is not None:
            height, width = thumbnail.image.shape[:2]
            y, x = top + (THUMBNAIL_PX - height) // 2, left + (THUMBNAIL_PX - width) // 2
            sheet.paste(Image.fromarray(np.ascontiguousarray(thumbnail.image)), (x, y))
            draw.rectangle((x - 1, y - 1, x + width, y + height), outline=colour)
        else:
            box = (left, top, left + THUMBNAIL_PX - 1, top + THUMBNAIL_PX - 1)
            draw.rectangle(box, fill=_EMPTY, outline=colour)
        if thumbnail.problem is not None:
            _write_problem(draw, thumbnail, (top, left), regular)
        below = top + THUMBNAIL_PX + 3
        draw.text((left, below), _shortened(thumbnail.name, bold), _INK, bold)
        second = _GREY if thumbnail.problem is None else _PROBLEM
        draw.text((left, below + _LINE_PX), _shortened(thumbnail.caption, regular), second, regular)
    with atomic_path(target) as temporary:
        sheet.save(temporary)


def _font(file: str) -> ImageFont.FreeTypeFont:
    # Matplotlib's own copy: a font of the system may be missing, and Pillow's knows Latin letters only.
    return ImageFont.truetype(Path(get_data_path()) / "fonts" / "ttf" / file, _FONT_PX)


def _write_problem(
    draw: ImageDraw.ImageDraw, thumbnail: Thumbnail, corner: tuple[int, int], font: ImageFont.FreeTypeFont
) -> None:
    """Write the problem into the slide's place, over its picture if there is one."""
    top, left = corner
    room = THUMBNAIL_PX // _LINE_PX - 1
    lines = _wrapped(thumbnail.problem or "", font)
    if len(lines) > room:
        lines = [*lines[: room - 1], "..."]
    if thumbnail.image is not None:
        height = len(lines) * _LINE_PX + 8
        draw.rectangle((left, top, left + THUMBNAIL_PX - 1, top + height), fill=_EMPTY, outline=_PROBLEM)
    for number, line in enumerate(lines):
        draw.text((left + 6, top + 4 + number * _LINE_PX), line, _PROBLEM, font)


def _wrapped(text: str, font: ImageFont.FreeTypeFont) -> list[str]:
    """Break at spaces, and inside of words that are longer than a line."""
    width = THUMBNAIL_PX - 12
    lines = [""]
    for word in text.split():
        if lines[-1] and font.getlength(f"{lines[-1]} {word}") > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
        while font.getlength(lines[-1]) > width:
            fits = next(n for n in range(len(lines[-1]), 0, -1) if font.getlength(lines[-1][:n]) <= width or n == 1)
            lines[-1:] = [lines[-1][:fits], lines[-1][fits:]]
    return lines


def _shortened(text: str, font: ImageFont.FreeTypeFont) -> str:
    """Take letters out of the middle until it fits: names of a collection differ at their end."""
    if font.getlength(text) <= THUMBNAIL_PX:
        return text
    for kept in range(len(text) - 1, 1, -1):
        shorter = f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"
        if font.getlength(shorter) <= THUMBNAIL_PX:
            return shorter
    return text[:1]
