"""Reading slides; the only file that imports OpenSlide.

A `SlideReader` is a slide seen on one pixel grid: level 0, or a coarser one. Windows are half-open, (y, x),
in pixels of that grid (`shape`); level 0 and the grid cover the same rectangle, so positions convert by the
ratio of the real sizes, per axis. Coarser grids are averaged by area from the next finer level, so nothing
aliases and no level ratio need be a whole number.

OpenSlide takes positions in whole pixels of level 0. At a level whose down-scale is not a whole number it
therefore interpolates, by at most half a pixel of level 0, which depends on where the window starts.

Areas that were not scanned (alpha 0) and pixels outside the slide get the background colour and are not
valid.
"""

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import openslide

from gigaslide.errors import SlideError
from gigaslide.geometry import Interval, Window, grid
from gigaslide.slides import resample
from gigaslide.slides.arrays import Bytes, Flags
from gigaslide.slides.diagnosis import cut_short, why_unreadable
from gigaslide.slides.resolution import Resolution, find_resolution

# What one call of OpenSlide may return (RGBA). It fails above 2**31 bytes; this bounds our memory as well.
_PIECE_BYTES = 1 << 26
_RGBA_BYTES = 4
# Levels whose size is this near to the wanted one are used as they are.
_LEVEL_TOLERANCE = 0.01
_OPEN_SLIDES = 4
_WHITE = (255, 255, 255)


@dataclass(frozen=True)
class Level:
    """A level of the pyramid: its shape (y, x), and the one number OpenSlide divides positions by for it."""

    shape: tuple[int, int]
    openslide_downsample: float


class _Handles(threading.local):
    """The last used slides of this thread; a handle is never shared between threads or processes."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[int, Path], openslide.OpenSlide] = OrderedDict()

    def get(self, path: Path) -> openslide.OpenSlide:
        key = (os.getpid(), path)
        if key not in self._open:
            try:
                # Not openslide.open_slide: that falls back to PIL and hides why a slide does not open.
                self._open[key] = openslide.OpenSlide(path)
            except openslide.OpenSlideUnsupportedFormatError:
                raise SlideError(f"{path} cannot be opened as a slide: {why_unreadable(path)}") from None
            except openslide.OpenSlideError as error:
                reason = cut_short(path) or f"{error}; copy the slide again"
                raise SlideError(f"{path} is damaged: {reason}") from None
            while len(self._open) > _OPEN_SLIDES:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(key)
        return self._open[key]

    def drop(self, path: Path) -> None:
        handle = self._open.pop((os.getpid(), path), None)
        if handle is not None:
            handle.close()


_handles = _Handles()


def _composite(rgba: Bytes, background: tuple[int, int, int]) -> tuple[Bytes, Flags]:
    """Lay uint8 (y, x, 4) over the background: rgb uint8 (y, x, 3), and valid bool (y, x), alpha above 0."""
    alpha = rgba[..., 3]
    rgb = np.ascontiguousarray(rgba[..., :3])
    if alpha.min(initial=255) == 255:
        return rgb, np.ones(alpha.shape, bool)
    partly = alpha < 255
    share = alpha[partly, None].astype(np.uint16)
    over = rgb[partly] * share + np.array(background, np.uint16) * (255 - share)
    rgb[partly] = (over + 127) // 255
    return rgb, alpha > 0


def _read_level(path: Path, number: int, level: Level, level_window: Window) -> Bytes:
    """Read RGBA uint8 (y, x, 4); the window is in pixels of that level."""
    height, width = level_window.shape
    location = (
        round(level_window.x.start * level.openslide_downsample),
        round(level_window.y.start * level.openslide_downsample),
    )
    try:
        return np.asarray(_handles.get(path).read_region(location, number, (width, height)))
    except openslide.OpenSlideError as error:
        _handles.drop(path)  # after an error every read of that handle fails
        reason = cut_short(path) or error
        rows, columns = level_window.y, level_window.x
        raise SlideError(
            f"{path} cannot be read at level {number}, rows {rows.start} to {rows.stop}, columns "
            f"{columns.start} to {columns.stop}: {reason}"
        ) from None


@dataclass(frozen=True)
class SlideReader:
    """A slide on one pixel grid of `shape` (y, x); made by `open_slide`, cheap to pickle.

    `resolution` is that of level 0, `mpp_um_per_px` that of the grid; `vendor` is the scanner's, if known.
    """

    path: Path
    shape: tuple[int, int]
    levels: tuple[Level, ...]
    resolution: Resolution
    background: tuple[int, int, int]
    vendor: str = ""

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
        if min(scale) < 1 - _LEVEL_TOLERANCE:
            raise SlideError(
                f"{self.path} has {max(mpp):g} um per px at full resolution, coarser than the "
                f"{mpp_um_per_px:g} asked for; set slides.mpp_um_per_px to that or above"
            )
        for level in self.levels:
            ratios = [
                full / size / factor for full, size, factor in zip(self.level0_shape, level.shape, scale, strict=True)
            ]
            if all(abs(ratio - 1) <= _LEVEL_TOLERANCE for ratio in ratios):
                return self.at_shape(level.shape)
        height, width = (
            max(1, min(full, round(full / factor))) for full, factor in zip(self.level0_shape, scale, strict=True)
        )
        return self.at_shape((height, width))

    def at_most(self, max_px: int) -> "SlideReader":
        """Return the same slide on a grid of about `max_px` pixels, its own grid if that is small enough."""
        factor = max(1.0, (self.shape[0] * self.shape[1] / max_px) ** 0.5)
        height, width = (max(1, round(size / factor)) for size in self.shape)
        return self.at_shape((height, width))

    def read(self, window: Window) -> tuple[Bytes, Flags]:
        """Read a window of this grid; it may reach over the edges.

        The memory used beyond the result is bounded: whatever the window and the levels, pieces are read
        one by one.

        Returns:
            rgb: uint8 (y, x, 3), laid over the background colour.
            valid: bool (y, x), False outside the slide and where any of the pixel was not scanned.

        Raises:
            SlideError: the slide cannot be read there.
        """
        rgb = np.full((*window.shape, 3), self.background, np.uint8)
        valid = np.zeros(window.shape, bool)
        inside = window.clip(Window.of(0, 0, *self.shape))
        number = self._best_level()
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
        _handles.drop(self.path)

    def _best_level(self) -> int:
        """Number of the coarsest level that is not coarser than this grid."""
        fitting = [
            number
            for number, level in enumerate(self.levels)
            if all(
                size >= wanted * (1 - _LEVEL_TOLERANCE) for size, wanted in zip(level.shape, self.shape, strict=True)
            )
        ]
        return min(fitting, key=lambda number: self.levels[number].shape, default=0)

    def _piece_shape(self, shape: tuple[int, int], number: int) -> tuple[int, int]:
        """Largest part (y, x) of `shape` whose pixels of that level fit into one piece."""
        level = self.levels[number].shape
        y_ratio, x_ratio = max(1.0, level[0] / self.shape[0]), max(1.0, level[1] / self.shape[1])
        piece_px = _PIECE_BYTES // _RGBA_BYTES
        width = max(1, min(shape[1], int(piece_px / (x_ratio * y_ratio))))
        return max(1, min(shape[0], int(piece_px / (width * x_ratio * y_ratio)))), width

    def _read_piece(self, piece: Window, number: int) -> tuple[Bytes, Flags]:
        level = self.levels[number]
        axes: list[tuple[Interval, int, int]] = [
            (piece.y, self.shape[0], level.shape[0]),
            (piece.x, self.shape[1], level.shape[1]),
        ]
        level_window = Window(*(resample.fine_interval(*axis) for axis in axes))
        rgb, valid = _composite(_read_level(self.path, number, level, level_window), self.background)
        if level.shape == self.shape:
            return rgb, valid
        y_weights, x_weights = (resample.weights(*axis) for axis in axes)
        mean = np.rint(resample.area_average(rgb, y_weights, x_weights)).astype(np.uint8)
        if valid.all():
            return mean, np.ones(piece.shape, bool)
        missing = resample.area_average(~valid[..., None], y_weights, x_weights)[..., 0]
        return mean, missing == 0


def _background(properties: dict[str, str]) -> tuple[int, int, int]:
    text = properties.get("openslide.background-color", "")
    try:
        red, green, blue = bytes.fromhex(text)
    except ValueError:
        return _WHITE
    return red, green, blue


def open_slide(path: Path, table_mpp_um_per_px: float | None = None) -> SlideReader:
    """Open any slide that OpenSlide reads, at level 0; `at_mpp` and `at_shape` lead to coarser grids.

    Raises:
        SlideError: the file is missing, empty, cut short or no slide; the message says which.
    """
    _handles.drop(path)  # the file may be another one than when this thread last read it
    handle = _handles.get(path)
    properties = dict(handle.properties)
    levels = tuple(
        Level((height, width), float(downsample))
        for (width, height), downsample in zip(handle.level_dimensions, handle.level_downsamples, strict=True)
    )
    resolution = find_resolution(path, properties, table_mpp_um_per_px)
    vendor = properties.get("openslide.vendor", "")
    return SlideReader(path, levels[0].shape, levels, resolution, _background(properties), vendor)
