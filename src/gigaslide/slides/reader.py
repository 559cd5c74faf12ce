"""Reading slides of any kind; the only file that imports OpenSlide.

A `SlideReader` is a slide seen on one pixel grid: level 0, or a coarser one. Windows are half-open, (y, x),
in pixels of that grid (`shape`); level 0 and the grid cover the same rectangle, so positions convert by the
ratio of the real sizes, per axis. Coarser grids are averaged by area from the next finer level, so nothing
aliases and no level ratio need be a whole number.

OpenSlide comes first. What it does not open, or not rightly, goes to tiff_reader.py and picture_reader.py; what it
opens and imagecodecs decodes faster to the same pixels, to jpeg_tiles.py.
OpenSlide takes positions in whole pixels of level 0. At a level whose down-scale is not a whole number it
therefore interpolates, by at most half a pixel of level 0, which depends on where the window starts.

Areas that were not scanned (alpha 0) and pixels outside the slide get the background colour and are not
valid. A part that cannot be decoded is an error, or, when the reader was told to count (`counting`), is filled the
same way.
"""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import openslide

from gigaslide.errors import SlideError
from gigaslide.geometry import Interval, Window, grid
from gigaslide.slides import resample
from gigaslide.slides.arrays import Bytes, Flags
from gigaslide.slides.bounds import bounds_origin
from gigaslide.slides.damage import Damage, read_around
from gigaslide.slides.diagnosis import cut_short, is_tiff, why_unreadable
from gigaslide.slides.jpeg_tiles import with_jpeg_tiles
from gigaslide.slides.levels import LEVEL_TOLERANCE, best_level, shape_at
from gigaslide.slides.picture_reader import SUFFIXES as PICTURE_SUFFIXES
from gigaslide.slides.picture_reader import PictureSource
from gigaslide.slides.resolution import Resolution, find_resolution
from gigaslide.slides.source import WHITE, About, Level, Source, Sources, UnreadableError, composite
from gigaslide.slides.tiff_reader import TiffSource, openslide_suffices, refuse_other_picture

# What one call of OpenSlide may return (RGBA). It fails above 2**31 bytes; this bounds our memory as well.
_PIECE_BYTES = 1 << 26
_RGBA_BYTES = 4
_TILE_PX = 256  # of formats that do not say
_TILE_LIMIT_BYTES = 1 << 30  # where there is no memory for a tile, OpenSlide ends the process
_GENERIC_TIFF, _APERIO = "generic-tiff", "aperio"


class OpenSlideSource:
    """A slide that OpenSlide opens."""

    def __init__(self, path: Path) -> None:
        """Open a slide; OpenSlide's own errors come through."""
        self._path = path
        # Not openslide.open_slide: that falls back to PIL and hides why a slide does not open.
        self._slide: openslide.OpenSlide | None = openslide.OpenSlide(path)
        slide, properties = self._slide, dict(self._slide.properties)
        self.vendor = properties.get("openslide.vendor", "")
        self._downsamples = tuple(map(float, slide.level_downsamples))

        def tile(number: int, axis: str) -> int:
            return max(1, int(properties.get(f"openslide.level[{number}].tile-{axis}", _TILE_PX)))

        levels = tuple(
            Level((height, width), (tile(number, "height"), tile(number, "width")))
            for number, (width, height) in enumerate(slide.level_dimensions)
        )
        largest = max((level.tile for level in levels), key=math.prod)
        if math.prod(largest) * _RGBA_BYTES > _TILE_LIMIT_BYTES:
            raise SlideError(f"{path} is damaged: it says its tiles are {largest} px (y, x); copy the slide again")
        self.about = About(
            f"openslide {openslide.__library_version__}",
            levels,
            _background(properties),
            tuple(sorted(properties.items())),
        )

    def read(self, number: int, window: Window) -> tuple[Bytes, Flags]:
        """Read a window inside a level, see `Source`."""
        height, width = window.shape
        down = self._downsamples[number]
        location = round(window.x.start * down), round(window.y.start * down)
        try:
            if self._slide is None:
                self._slide = openslide.OpenSlide(self._path)
            rgba = np.asarray(self._slide.read_region(location, number, (width, height)))
        except openslide.OpenSlideError as error:
            self.close()  # after an error every read of that handle fails
            raise UnreadableError(cut_short(self._path) or str(error)) from None
        return composite(rgba[..., :3], rgba[..., 3], self.about.background)

    def close(self) -> None:
        """Close the file."""
        if self._slide is not None:
            self._slide.close()
        self._slide = None


def _background(properties: dict[str, str]) -> tuple[int, int, int]:
    text = properties.get("openslide.background-color", "")
    try:
        red, green, blue = bytes.fromhex(text)
    except ValueError:
        return WHITE
    return red, green, blue


def _open_source(path: Path) -> Source:
    try:
        source = OpenSlideSource(path)
    except openslide.OpenSlideUnsupportedFormatError:
        if is_tiff(path):
            return TiffSource(path)
        # By name only: a JPEG may be the index of another format whose other files are missing (.mrxs).
        if path.suffix.lower() in PICTURE_SUFFIXES and path.is_file() and path.stat().st_size > 0:
            return PictureSource(path)
        raise SlideError(f"{path} cannot be opened as a slide: {why_unreadable(path)}") from None
    except openslide.OpenSlideError as error:
        reason = cut_short(path)
        if reason is None and openslide.OpenSlide.detect_format(path) == _GENERIC_TIFF:
            return TiffSource(path)
        raise SlideError(f"{path} is damaged: {reason or f'{error}; copy the slide again'}") from None
    try:
        if source.vendor == _APERIO:
            refuse_other_picture(path)
        levels = source.about.levels
        if source.vendor != _GENERIC_TIFF or openslide_suffices(path, levels[0].shape, len(levels)):
            return with_jpeg_tiles(path, source) if source.vendor in (_GENERIC_TIFF, _APERIO) else source
    except BaseException:
        source.close()
        raise
    source.close()
    return TiffSource(path)


_sources = Sources(_open_source)


@dataclass(frozen=True)
class SlideReader:
    """A slide on one pixel grid of `shape` (y, x); made by `open_slide`, cheap to pickle.

    `resolution` is that of level 0, `mpp_um_per_px` that of the grid. `library` and its version read it; `vendor` is
    OpenSlide's name of the format. `warnings` are what the user should know of how it is read. `bounds_origin_yx_px`:
    where at level 0 the part that was scanned begins.
    """

    path: Path
    shape: tuple[int, int]
    levels: tuple[Level, ...]
    resolution: Resolution
    background: tuple[int, int, int]
    library: str
    vendor: str = ""
    warnings: tuple[str, ...] = ()
    bounds_origin_yx_px: tuple[int, int] = (0, 0)
    damage: Damage | None = field(default=None, compare=False)
    local: Path | None = field(default=None, compare=False)  # a copy that is read instead of `path`

    @property
    def level0_shape(self) -> tuple[int, int]:
        """Size (y, x) of the slide at full resolution."""
        return self.levels[0].shape

    @property
    def level0_px_per_px(self) -> tuple[float, float]:
        """Pixels of level 0 per pixel of this grid, (y, x)."""
        return self.level0_shape[0] / self.shape[0], self.level0_shape[1] / self.shape[1]

    @property
    def mpp_um_per_px(self) -> tuple[float, float] | None:
        """Size (y, x) of a pixel of this grid in um, None when the slide does not say."""
        mpp, scale = self.resolution.mpp_um_per_px, self.level0_px_per_px
        return None if mpp is None else (mpp[0] * scale[0], mpp[1] * scale[1])

    def at_shape(self, shape: tuple[int, int]) -> "SlideReader":
        """Return the same slide on a grid of `shape` (y, x), no larger than level 0."""
        if any(not 1 <= new <= full for new, full in zip(shape, self.level0_shape, strict=True)):
            raise ValueError(f"shape is between (1, 1) and {self.level0_shape}; received {shape}")
        return replace(self, shape=shape)

    def at_mpp(self, mpp_um_per_px: float) -> "SlideReader":
        """Return the same slide with pixels of that size; a level within 1 % of it is taken as it is.

        Raises:
            SlideError: the slide's own pixel size is unknown, or coarser than what is asked for.
        """
        mpp = self.resolution.mpp_um_per_px
        if mpp is None:
            raise SlideError(
                f"{self.path} does not say how large its pixels are, so it cannot be read at "
                f"{mpp_um_per_px:g} um per px; give its value in the mpp column of the cohort table"
            )
        scale = mpp_um_per_px / mpp[0], mpp_um_per_px / mpp[1]
        if min(scale) < 1 - LEVEL_TOLERANCE:
            raise SlideError(
                f"{self.path} has {max(mpp):g} um per px at full resolution, coarser than the "
                f"{mpp_um_per_px:g} asked for; set slides.mpp_um_per_px to that or above"
            )
        return self.at_shape(shape_at(scale, [level.shape for level in self.levels]))

    def at_most(self, max_px: int) -> "SlideReader":
        """Return the same slide on a grid of about `max_px` pixels, its own grid if that is small enough."""
        factor = max(1.0, (self.shape[0] * self.shape[1] / max_px) ** 0.5)
        height, width = (max(1, round(size / factor)) for size in self.shape)
        return self.at_shape((height, width))

    def counting(self, damage: Damage) -> "SlideReader":
        """Return the same slide, read around what cannot be decoded; that is counted in `damage`."""
        return replace(self, damage=damage)

    def read(self, window: Window) -> tuple[Bytes, Flags]:
        """Read a window of this grid; it may reach over the edges.

        The memory used beyond the result is bounded: whatever the window and the levels, pieces are read
        one by one.

        Returns:
            rgb: uint8 (y, x, 3), laid over the background colour.
            valid: bool (y, x), False outside the slide and where any of the pixel was not scanned, or is lost.

        Raises:
            SlideError: the slide cannot be read there, and nothing counts that.
        """
        inside = window.clip(Window.of(0, 0, *self.shape))
        number = best_level(self.shape, [level.shape for level in self.levels])
        if inside == window and self._piece_shape(window.shape, number) == window.shape and window.y.size:
            return self._read_piece(window, number)  # the common case, without a copy
        rgb = np.full((*window.shape, 3), self.background, np.uint8)
        valid = np.zeros(window.shape, bool)
        for part in grid(inside.shape, self._piece_shape(inside.shape, number)):
            piece = part.shift(inside.y.start, inside.x.start)
            here = piece.shift(-window.y.start, -window.x.start).slices
            rgb[here], valid[here] = self._read_piece(piece, number)
        return rgb, valid

    def overview(self, max_px: int) -> tuple[Bytes, Flags]:
        """Read the whole slide, averaged by area to about `max_px` pixels at most: as `read` returns it."""
        small = self.at_most(max_px)
        return small.read(Window.of(0, 0, *small.shape))

    def close(self) -> None:
        """Close this thread's handle; the next read opens the file again."""
        close_slide(self.local or self.path)

    def _piece_shape(self, shape: tuple[int, int], number: int) -> tuple[int, int]:
        """Largest part (y, x) of `shape` whose pixels of that level fit into one piece."""
        level = self.levels[number].shape
        y_ratio, x_ratio = max(1.0, level[0] / self.shape[0]), max(1.0, level[1] / self.shape[1])
        piece_px = _PIECE_BYTES // _RGBA_BYTES
        width = max(1, min(shape[1], int(piece_px / (x_ratio * y_ratio))))
        return max(1, min(shape[0], int(piece_px / (width * x_ratio * y_ratio)))), width

    def _read_level(self, number: int, window: Window) -> tuple[Bytes, Flags]:
        """Read a window inside a level, in its pixels."""
        try:
            return _sources.get(self.local or self.path).read(number, window)
        except UnreadableError as error:
            rows, columns = window.y, window.x
            raise UnreadableError(
                f"{self.path} cannot be read at level {number}, rows {rows.start} to {rows.stop}, columns "
                f"{columns.start} to {columns.stop}: {error}"
            ) from None

    def _read_piece(self, piece: Window, number: int) -> tuple[Bytes, Flags]:
        level = self.levels[number]
        axes: list[tuple[Interval, int, int]] = [
            (piece.y, self.shape[0], level.shape[0]),
            (piece.x, self.shape[1], level.shape[1]),
        ]
        window = Window(*(resample.fine_interval(*axis) for axis in axes))
        lost = None
        if self.damage is None:
            rgb, valid = self._read_level(number, window)
        else:
            rgb, valid, lost = read_around(
                lambda part: self._read_level(number, part), number, level, window, self.background, self.damage
            )
        if level.shape != self.shape:
            y_weights, x_weights = (resample.weights(*axis) for axis in axes)
            rgb = np.rint(resample.area_average(rgb, y_weights, x_weights)).astype(np.uint8)
            valid = ~resample.touched(~valid, y_weights, x_weights)
            lost = None if lost is None else resample.touched(lost, y_weights, x_weights)
        if self.damage is not None and lost is not None:
            self.damage.lost_px += int(np.count_nonzero(lost))
        return rgb, valid


def close_slide(path: Path) -> None:
    """Close what this thread has open of a slide, if anything."""
    _sources.drop(path)


def open_slide(path: Path, table_mpp_um_per_px: float | None = None, local: Path | None = None) -> SlideReader:
    """Open any slide, at level 0; `at_mpp` and `at_shape` lead to coarser grids. `local`: a copy to read instead.

    Raises:
        SlideError: the file is missing, empty, cut short or no slide; the message says which.
    """
    read = local or path
    _sources.drop(read)  # the file may be another one than when this thread last read it
    try:
        about = _sources.get(read).about
    except SlideError as error:
        raise type(error)(str(error).replace(str(read), str(path))) from None
    properties = dict(about.properties)
    return SlideReader(
        path,
        about.levels[0].shape,
        about.levels,
        find_resolution(path, properties, table_mpp_um_per_px, about.stated),
        about.background,
        about.reader,
        properties.get("openslide.vendor", ""),
        about.warnings,
        bounds_origin(properties, about.levels[0].shape),
        local=local,
    )
