"""Mask images: one channel of whole numbers, TIFF or PNG, at any whole down-scale of level 0.

A mask pixel of a mask k times smaller than level 0 covers k x k pixels of level 0. Any grid of the slide is
read by nearest neighbour: a pixel gets the value under its centre.

A mask that gigaslide predicted (its ImageDescription says so) may have any size: then its grid covers the same
rectangle as level 0, like that of a `SlideReader` at some mpp. Such a size of another's mask says that it is of another
slide.

A TIFF is read segment by segment (tile or strip), and the last used ones are kept up to a limit; a PNG is
held whole.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile
from PIL import Image

from gigaslide.errors import SlideError
from gigaslide.geometry import Interval, Window, grid, split
from gigaslide.slides.arrays import Indices

Values = npt.NDArray[np.integer[Any]]

PREDICTED = "gigaslide mask"  # how the ImageDescription of masks/mask_tiff.py begins
_ASPECT_TOLERANCE = Fraction(1, 50)
_CACHE_BYTES = 1 << 28
_SEGMENT_LIMIT_BYTES = 1 << 30
_ROWS = 512  # of whole width, at a time
# Most tiles of a mask are of one value, and so few bytes that all of the same bytes are decoded once.
_ALIKE_BYTES, _MOST_ALIKE = 512, 64
_MOST_COMPARED = 8


def down_scale(mask_shape: tuple[int, int], level0_shape: tuple[int, int]) -> int | None:
    """Return the whole number that divides level 0 into the mask, rounded up or down on each axis, or None."""

    def fits(k: int) -> bool:
        sizes = zip(mask_shape, level0_shape, strict=True)
        return all(mask_px in (level0_px // k, -(-level0_px // k)) for mask_px, level0_px in sizes)

    mask_px, level0_px = max(zip(mask_shape, level0_shape, strict=True))
    candidates = range(max(1, level0_px // (mask_px + 1)), level0_px // max(1, mask_px - 1) + 2)
    ratio = level0_px / mask_px
    # Several fit when the mask has few pixels: then a power of two, as in a pyramid, is the likely one.
    return min(filter(fits, candidates), key=lambda k: (k & (k - 1) != 0, abs(k - ratio)), default=None)


def _read_png(path: Path) -> Values:
    limit = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = _SEGMENT_LIMIT_BYTES  # PIL's own limit is smaller than a mask may be
    try:
        with Image.open(path) as image:
            if image.mode not in ("1", "L", "P", "I", "I;16"):
                raise SlideError(
                    f"the mask {path} should have one channel; its mode is {image.mode}: save it as greyscale"
                )
            return np.asarray(image if image.mode != "1" else image.convert("L"))
    finally:
        Image.MAX_IMAGE_PIXELS = limit


class _TiffPage:
    """The first page of a TIFF, decoded segment by segment."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, tifffile.TiffFile(path)
        page = self._file.pages.first
        self._page = page
        self.shape = (int(page.imagelength), int(page.imagewidth))
        self.description = str(page.description)
        if page.samplesperpixel != 1 or page.dtype is None or page.dtype.kind not in "bui":
            raise SlideError(
                f"the mask {path} should have one channel of whole numbers; it has {page.samplesperpixel} of "
                f"{page.dtype}"
            )
        self._step = (
            (int(page.tilelength), int(page.tilewidth))
            if page.is_tiled
            else (int(min(page.rowsperstrip, self.shape[0])), self.shape[1])
        )
        self._segment_bytes = self._step[0] * self._step[1] * page.dtype.itemsize
        if self._segment_bytes > _SEGMENT_LIMIT_BYTES:
            raise SlideError(f"the mask {path} is one piece of {self._segment_bytes} bytes: save it as a tiled TIFF")
        self.dtype = np.dtype(np.uint8) if page.dtype.kind == "b" else page.dtype
        self._columns = -(-self.shape[1] // self._step[1])
        self._cache: OrderedDict[int, Values] = OrderedDict()
        self._alike: dict[bytes, Values] = {}
        self._of_alike: dict[int, Values] = {}  # by number, those of bytes that are in `_alike`
        self._lock = threading.Lock()  # of file and what is kept: windows are read side by side

    def _segment(self, index: int) -> Values:
        with self._lock:
            if index in self._of_alike:
                return self._of_alike[index]
            if index in self._cache:
                self._cache.move_to_end(index)
                return self._cache[index]
            handle, size_bytes = self._file.filehandle, self._page.databytecounts[index]
            data = None
            if size_bytes:
                handle.seek(self._page.dataoffsets[index])
                data = handle.read(size_bytes)
            key = data if self._page.is_tiled and data is not None and len(data) <= _ALIKE_BYTES else None
            if key in self._alike:
                return self._of_alike.setdefault(index, self._alike[key])
        segment = self._decoded(data, index)
        with self._lock:
            if key is not None and len(self._alike) < _MOST_ALIKE:
                return self._of_alike.setdefault(index, self._alike.setdefault(key, segment))
            self._cache[index] = segment
            while len(self._cache) * self._segment_bytes > _CACHE_BYTES and len(self._cache) > 1:
                self._cache.popitem(last=False)
        return segment

    def _decoded(self, data: bytes | None, index: int) -> Values:
        try:
            decoded = self._page.decode(data, index)[0]
        except Exception as error:  # every codec has exceptions of its own
            raise SlideError(f"the mask {self._path} is damaged in its tile or strip {index}: {error}") from None
        # An empty segment stands for zeros.
        return (
            np.zeros(self._step, self.dtype) if decoded is None else decoded[0, :, :, 0].astype(self.dtype, copy=False)
        )

    def read(self, window: Window) -> Values:
        """Read a window inside the page."""
        values = np.empty(window.shape, self.dtype)
        # One axis at a time, outside of the loop over segments: there are thousands.
        rows, columns = (_parts(*axis) for axis in zip((window.y, window.x), self._step, self.shape, strict=True))
        for row, y_here, y_there in rows:
            for column, x_here, x_there in columns:
                values[y_here, x_here] = self._segment(row * self._columns + column)[y_there, x_there]
        return values

    def parts(self) -> Iterator[Values]:
        """Yield what the page holds, segment by segment; those that are known to be alike only once."""
        seen = set()
        whole = Window.of(0, 0, *self.shape)
        rows, columns = (_parts(*axis) for axis in zip((whole.y, whole.x), self._step, self.shape, strict=True))
        for row, _, y_there in rows:
            for column, _, x_there in columns:
                index = row * self._columns + column
                segment = self._segment(index)
                part = segment[y_there, x_there]  # a segment may go on beyond the edge
                if part.shape != segment.shape:
                    yield part
                elif id(segment) not in seen:
                    if index in self._of_alike:
                        seen.add(id(segment))
                    yield segment


class _Picture:
    """A PNG, held whole."""

    description = ""

    def __init__(self, path: Path) -> None:
        self._values = _read_png(path)
        self.shape = (self._values.shape[0], self._values.shape[1])

    def read(self, window: Window) -> Values:
        """Read a window inside the picture."""
        return self._values[window.slices]

    def parts(self) -> Iterator[Values]:
        """Yield what the picture holds, some rows at a time."""
        for rows in split(self.shape[0], _ROWS):
            yield self._values[rows.slice]


def _parts(pixels: Interval, step: int, size: int) -> list[tuple[int, slice, slice]]:
    """Return, of one axis, the segments that are in `pixels`: number, where in `pixels`, and where in the segment."""
    found = []
    for number in range(pixels.start // step, -(-pixels.stop // step)):
        part = Interval(number * step, min((number + 1) * step, size)).clip(pixels)
        found.append((number, part.shift(-pixels.start).slice, part.shift(-number * step).slice))
    return found


def _under_centre(pixels: Interval, grid_px: int, level0_px: int, covered_px: Fraction, mask_px: int) -> Indices:
    """Mask pixel under the centre of each pixel of a grid, along one axis; each covers so many px of level 0."""
    twice_centre = (2 * np.arange(pixels.start, pixels.stop, dtype=np.int64) + 1) * level0_px
    index = twice_centre * covered_px.denominator // (2 * grid_px * covered_px.numerator)
    return np.clip(index, 0, mask_px - 1)


@dataclass(frozen=True)
class MaskImage:
    """A mask of a slide of `level0_shape` (y, x), seen on a grid of `shape` (y, x). Opened on first use."""

    path: Path
    level0_shape: tuple[int, int]
    shape: tuple[int, int]

    @cached_property
    def _source(self) -> "_TiffPage | _Picture":
        try:
            return _Picture(self.path) if self.path.suffix.lower() == ".png" else _TiffPage(self.path)
        except (OSError, tifffile.TiffFileError, Image.DecompressionBombError) as error:
            raise SlideError(f"the mask {self.path} cannot be read: {error}") from None

    def at_shape(self, shape: tuple[int, int]) -> "MaskImage":
        """Return the same mask on another grid; the open file and what is held of it are shared."""
        other = replace(self, shape=shape)
        other.__dict__["_source"] = self._source
        return other

    @cached_property
    def down_scale(self) -> int:
        """Pixels of level 0 per pixel of the mask, along either axis.

        Raises:
            SlideError: the mask cannot be read, or its size is no whole down-scale of the slide's.
        """
        k = down_scale(self._source.shape, self.level0_shape)
        if k is None:
            (height, width), (full_height, full_width) = self._source.shape, self.level0_shape
            raise SlideError(
                f"the mask {self.path} is {height} x {width} px (height x width), the slide {full_height} x "
                f"{full_width}: expected the slide's size, or that divided by one whole number"
            )
        return k

    @cached_property
    def level0_px_per_px(self) -> tuple[Fraction, Fraction]:
        """Pixels of level 0 that a pixel of the mask covers, (y, x).

        Raises:
            SlideError: the mask cannot be read, or its size is not that of a mask of this slide.
        """
        if self.description.startswith(PREDICTED) and down_scale(self._source.shape, self.level0_shape) is None:
            y, x = (Fraction(full, size) for full, size in zip(self.level0_shape, self._source.shape, strict=True))
            # Sizes are rounded, and pixels may be a little higher than wide.
            if min(y, x) >= 1 and abs(y - x) <= max(y, x) * (_ASPECT_TOLERANCE + Fraction(1, min(self._source.shape))):
                return y, x
        return Fraction(self.down_scale), Fraction(self.down_scale)

    @property
    def description(self) -> str:
        """The ImageDescription of a TIFF, else an empty text."""
        return self._source.description

    def read(self, window: Window) -> Values:
        """Return the values (y, x) of a window of the grid, in the file's own whole-number type."""
        mask_shape, covered = self._source.shape, self.level0_px_per_px
        rows, columns = (
            _under_centre(*axis)
            for axis in zip((window.y, window.x), self.shape, self.level0_shape, covered, mask_shape, strict=True)
        )
        box = Window(Interval(rows[0], rows[-1] + 1), Interval(columns[0], columns[-1] + 1))
        values = self._source.read(box)
        if all(np.array_equal(found, np.arange(found[0], found[-1] + 1)) for found in (rows, columns)):
            return values  # every mask pixel once: no copy
        return values[np.ix_(rows - rows[0], columns - columns[0])]

    def values(self) -> set[int]:
        """Return the values that occur anywhere in the mask."""
        found: set[int] = set()
        for values in self._source.parts():
            # Nearly always they are known, which lowest and highest tell. To count them takes ten times as long, and to
            # sort all a hundred times as long as that.
            if not values.size or all(value in found for value in range(int(values.min()), int(values.max()) + 1)):
                continue
            known = (
                sum(int(np.count_nonzero(values == value)) for value in found) if len(found) <= _MOST_COMPARED else 0
            )
            if known < values.size:
                found.update(np.unique(values).tolist())
        return found

    def rows(self) -> Iterator[Values]:
        """Yield the mask's own pixels from top to bottom, some whole rows at a time."""
        height, width = self._source.shape
        for window in grid((height, width), (_ROWS, width)):
            yield self._source.read(window)
