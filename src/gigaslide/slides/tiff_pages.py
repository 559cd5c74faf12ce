"""A level of a TIFF, decoded tile by tile or strip by strip, the last used ones kept up to a limit.

A level is one page, its channels interleaved or in planes of their own, or one page for each channel. What is read of
the file is checked before it is decoded: a damaged size or offset must not make a decoder ask for memory.
Uncompressed strips are read in parts, since many writers put a whole image into one.
"""

import struct
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np

from gigaslide.geometry import Window
from gigaslide.slides.source import UnreadableError

Stored = np.ndarray[Any, np.dtype[Any]]

CACHE_BYTES = 1 << 28
SEGMENT_LIMIT_BYTES = 1 << 28
_PART_BYTES = 1 << 20  # of an uncompressed strip
_UNCOMPRESSED = 1
_JPEG, _JPEG_2000 = (6, 7), (33003, 33005, 34712)
# TIFF's numbers of the methods whose decoders return no more than they are asked for.
COMPRESSIONS = (_UNCOMPRESSED, 5, 8, 32773, 32946, 34925, 50000, *_JPEG, *_JPEG_2000)
_FRAME_MARKERS = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}


class SegmentCache:
    """Decoded segments of all levels of a file; the least used go first."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit_bytes, self._bytes = limit_bytes, 0
        self._kept: OrderedDict[tuple[int, int], Stored | None] = OrderedDict()

    def get(self, key: tuple[int, int]) -> Stored | None:
        """Return a segment, None when it holds nothing; KeyError when it is not kept."""
        self._kept.move_to_end(key)
        return self._kept[key]

    def put(self, key: tuple[int, int], segment: Stored | None) -> None:
        """Keep a segment."""
        self._kept[key] = segment
        self._bytes += 0 if segment is None else segment.nbytes
        while self._bytes > self._limit_bytes and len(self._kept) > 1:
            oldest = self._kept.popitem(last=False)[1]
            self._bytes -= 0 if oldest is None else oldest.nbytes


def _jpeg_shape(data: bytes) -> tuple[int, int] | None:
    """Return height and width in the frame header of a JPEG."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], struct.unpack_from(">H", data, at + 2)[0]
        if marker in _FRAME_MARKERS:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return height, width
        at += 1 if marker == 0xFF else 2 + length
    return None


def _jpeg_2000_shape(data: bytes) -> tuple[int, int] | None:
    """Return height and width in the SIZ marker of a JPEG 2000 codestream."""
    at = data.find(b"\xff\x4f\xff\x51", 0, 1 << 16)
    if at < 0 or at + 24 > len(data):
        return None
    right, bottom, left, top = struct.unpack_from(">4I", data, at + 8)
    return bottom - top, right - left


class TiffLevel:
    """A level of `shape` (y, x) in segments of `step` (y, x), each read as (y, x, sample) in the file's own type."""

    def __init__(self, pages: tuple[Any, ...], number: int, cache: SegmentCache) -> None:
        page = pages[0].keyframe
        self._pages, self._page, self._number, self._cache = pages, page, number, cache
        self.shape = (int(page.imagelength), int(page.imagewidth))
        self._planar = int(page.planarconfig) == 2 and page.samplesperpixel > 1
        self._contiguous = 1 if self._planar else int(page.samplesperpixel)
        self._planes = int(page.samplesperpixel) if self._planar else len(pages)
        self.samples = self._planes * self._contiguous
        if page.is_tiled:
            self.step = int(page.tilelength), int(page.tilewidth)
        else:
            self.step = max(1, min(int(page.rowsperstrip), self.shape[0])), self.shape[1]
        self._strip_rows = self.step[0]
        self._file_rows, self._columns = (
            -(-size // max(1, step)) for size, step in zip(self.shape, self.step, strict=True)
        )
        self._row_bytes = self.shape[1] * self._contiguous * (0 if page.dtype is None else page.dtype.itemsize)
        self._in_parts = not page.is_tiled and self._row_bytes > 0 and self._split_strips()

    def _split_strips(self) -> bool:
        page, rows = self._page, self.step[0]
        plain = page.compression == _UNCOMPRESSED and page.predictor == 1 and page.fillorder == 1
        if not plain or page.bitspersample != 8 * page.dtype.itemsize or rows * self._row_bytes <= _PART_BYTES:
            return False
        wanted = max(1, _PART_BYTES // self._row_bytes)
        # Parts are of one size, so that all lie on one grid.
        part = wanted if rows == self.shape[0] else max(n for n in range(1, wanted + 1) if rows % n == 0)
        self.step = part, self.shape[1]
        return True

    @property
    def trouble(self) -> str | None:
        """What keeps this level from being read, in words."""
        page = self._page
        if int(page.compression) not in COMPRESSIONS:
            return (
                f"it is compressed by a method that is not supported ({getattr(page.compression, 'name', '')}"
                f" {int(page.compression)})"
            )
        if page.imagedepth != 1 or page.tiledepth > 1:
            return "it is a stack of planes"
        if min(*self.shape, *self.step) < 1:
            return "its size, or that of its tiles, is 0"
        segment_bytes = self.step[0] * self.step[1] * self.samples * max(1, page.dtype.itemsize if page.dtype else 1)
        if segment_bytes > SEGMENT_LIMIT_BYTES:
            return f"its tiles or strips are of {segment_bytes} bytes each, at most {SEGMENT_LIMIT_BYTES} are read"
        wanted = self._file_rows * self._columns * (self._planes if self._planar else 1)
        for held in self._pages:
            found = min(len(held.dataoffsets), len(held.databytecounts))
            if found < wanted:
                return f"it should have {wanted} tiles or strips, and lists {found}"
        return None

    def _data(self, page: Any, index: int, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        """Read `size_bytes` of a segment from byte `start` of it; None when it holds nothing."""
        offset, count = int(page.dataoffsets[index]), int(page.databytecounts[index])
        if offset == 0 or count == 0:
            return None
        size_bytes = count if size_bytes is None else size_bytes
        handle = page.parent.filehandle
        if offset < 0 or start + size_bytes > count or offset + count > handle.size:
            raise UnreadableError(
                f"its data should be in bytes {offset} to {offset + count} of the file, which has {handle.size}"
            )
        handle.seek(offset + start)
        data: bytes = handle.read(size_bytes)
        return data

    def _strip_part(self, page: Any, plane: int, row: int) -> Stored | None:
        first = row * self.step[0]
        height = min(self.step[0], self.shape[0] - first)
        strip, inside = divmod(first, self._strip_rows)
        index = plane * self._file_rows + strip
        data = self._data(page, index, inside * self._row_bytes, height * self._row_bytes)
        if data is None:
            return None
        dtype = self._page.dtype.newbyteorder(self._page.parent.byteorder)
        values = np.frombuffer(data, dtype).reshape(height, self.shape[1], self._contiguous)
        return values.astype(self._page.dtype, copy=False)

    def _decoded(self, page: Any, index: int) -> Stored | None:
        data = self._data(page, index)
        if data is None:
            return None
        self._check_size(data, index)
        tables: dict[str, Any] = {}
        if int(self._page.compression) in _JPEG:
            tables = {"jpegtables": page.jpegtables, "jpegheader": self._page.jpegheader}
        segment = self._page.decode(data, index, **tables)[0]
        if segment is None:
            return None
        decoded: Stored = segment[0]
        return decoded

    def _check_size(self, data: bytes, index: int) -> None:
        """Refuse a picture that says it is larger than its tile: its decoder would believe it."""
        compression = int(self._page.compression)
        shape: tuple[int, int] | None = self.step
        if compression in _JPEG and data[:2] == b"\xff\xd8":
            shape = _jpeg_shape(data)
        elif compression in _JPEG_2000:
            shape = _jpeg_2000_shape(data)
        if shape is None or shape[0] > self.step[0] or shape[1] > self.step[1]:
            raise UnreadableError(f"its data say they are {shape} px, expected at most {self.step}")

    def _planes_of(self, row: int, column: int) -> Iterator[Stored | None]:
        for plane in range(self._planes):
            page = self._pages[0 if self._planar else plane]
            offset = plane if self._planar else 0
            if self._in_parts:
                yield self._strip_part(page, offset, row)
            else:
                yield self._decoded(page, (offset * self._file_rows + row) * self._columns + column)

    def _segment(self, row: int, column: int) -> Stored | None:
        key = self._number, row * self._columns + column
        try:
            return self._cache.get(key)
        except KeyError:
            pass
        try:
            planes = list(self._planes_of(row, column))
            held = [plane for plane in planes if plane is not None]
            segment = np.concatenate(held, axis=-1) if len(held) == len(planes) > 1 else held[0] if held else None
            if len(held) < len(planes):
                segment = None
            inside = Window.of(row * self.step[0], column * self.step[1], *self.step).clip(Window.of(0, 0, *self.shape))
            if segment is not None:
                height, width, samples = segment.shape
                if height < inside.shape[0] or width < inside.shape[1] or samples != self.samples:
                    raise UnreadableError(f"it decodes to {segment.shape}, expected {(*inside.shape, self.samples)}")
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # every codec has exceptions of its own
            raise UnreadableError(
                f"its tile or strip in row {row}, column {column} is damaged ({str(error) or type(error).__name__})"
            ) from None
        self._cache.put(key, segment)
        return segment

    def read(self, window: Window) -> tuple[Stored, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Read a window inside the level.

        Returns:
            stored: (y, x, sample), 0 where the file holds nothing.
            held: bool (y, x).

        Raises:
            UnreadableError: a segment is damaged.
        """
        stored = np.zeros((*window.shape, self.samples), self._page.dtype)
        held = np.zeros(window.shape, bool)
        if 0 in window.shape:
            return stored, held
        (y_step, x_step), everything = self.step, Window.of(0, 0, *self.shape)
        for row in range(window.y.start // y_step, -(-window.y.stop // y_step)):
            for column in range(window.x.start // x_step, -(-window.x.stop // x_step)):
                place = Window.of(row * y_step, column * x_step, y_step, x_step)
                part = place.clip(everything).clip(window)
                segment = self._segment(row, column)
                if segment is not None:
                    here = part.shift(-window.y.start, -window.x.start).slices
                    stored[here] = segment[part.shift(-place.y.start, -place.x.start).slices]
                    held[here] = True
        return stored, held
