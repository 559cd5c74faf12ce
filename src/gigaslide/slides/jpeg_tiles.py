"""The fast path for tiled JPEG TIFFs that OpenSlide reads (Aperio's SVS, generic TIFF): `with_jpeg_tiles`.

OpenSlide decodes such tiles into RGBA through two libraries; imagecodecs, the same libjpeg-turbo, decodes them into RGB
at six to ten times the speed. It is another way to the same pixels, so it is taken only for a level of which sample
tiles came out equal to OpenSlide's, difference 0: those at the corners, edges and middle, and those of most bytes,
whose detail shows every other way of decoding. Whatever it does not know (tiles that are empty, damaged, of another
size than the level's) is left to OpenSlide, tile by tile, and so are all other levels.

Known shortfall: of tiles whose coded pixels were overwritten in the middle OpenSlide shows nearly all, garbled, and
refuses those whose decoder comes to a wrong end. Of 1000 with 512 bytes overwritten, imagecodecs showed 3 that
OpenSlide refuses. What both show is the same.

Condition: a level's down-scale is a whole number; at others OpenSlide interpolates (reader.py), so that it has no
pixels to be equal to. Compression 6, old-style JPEG, is left to OpenSlide.
"""

import os
import threading
from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import tifffile

from gigaslide.geometry import Interval, Window
from gigaslide.slides.arrays import Bytes, Flags, Indices, Memory, all_true
from gigaslide.slides.samples import RGB, YCBCR
from gigaslide.slides.source import About, Level, Source, UnreadableError
from gigaslide.slides.tile_cache import TileCache

# Of the tiles that a window's border cuts, which the next window needs again: 340 of 256 px, a row of a large slide.
CACHE_BYTES = 1 << 26
_JPEG = 7
_TIMES_RAW = 2  # a tile of more bytes than so many times its pixels is damaged
# libjpeg fills what it has no data for with grey. It only warns then, which imagecodecs does not pass on and OpenSlide
# takes for an error. With restart markers the grey may be anywhere in the tile.
_MARK, _END, _RESTART = 0xFF, b"\xff\xd9", b"\xff\xdd"
_WITHOUT_DATA, _BLOCK_PX = 128, 8
_LARGEST_TILES = 3  # samples beside those at corners, edges and middle
_LIMIT_BYTES = 1 << 26  # of a decoded tile


class _Verdicts:
    """Of which levels the samples were equal; asked once in a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Hashable, bool] = {}

    def get(self, key: Hashable, ask: Any) -> bool:
        with self._lock:
            if key not in self._known:
                self._known[key] = ask()
            return self._known[key]


_cache = TileCache(CACHE_BYTES)
_verdicts = _Verdicts()


@dataclass(frozen=True, eq=False)
class _JpegLevel:
    """Where the tiles of a level of `shape` (y, x) are in the file; 0 bytes where there is none."""

    shape: tuple[int, int]
    tile: tuple[int, int]
    offsets: Indices
    counts: Indices
    tables: bytes | None
    colours: str

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        return -(-self.shape[0] // self.tile[0]), -(-self.shape[1] // self.tile[1])

    def place(self, index: int) -> Window:
        """Return where a tile lies, over the edges of the level, too."""
        row, column = divmod(index, self.grid[1])
        return Window.of(row * self.tile[0], column * self.tile[1], *self.tile)

    def inside(self, index: int) -> Window:
        """Return the part of a tile that shows something."""
        return self.place(index).clip(Window.of(0, 0, *self.shape))


def _part(number: int, step: int, pixels: Interval, size: int) -> tuple[Interval, bool]:
    """Return what of tile `number` of an axis is in `pixels`, and whether that is only a part of what it shows."""
    tile = Interval(number * step, min((number + 1) * step, size))
    part = tile.clip(pixels)
    return part, part != tile


def _is_whole(level0: Level, level: Level) -> bool:
    scale = level0.shape[0] // max(1, level.shape[0])
    return (level.shape[0] * scale, level.shape[1] * scale) == level0.shape


def _jpeg_level(page: Any, level: Level) -> _JpegLevel | None:
    """Return a page as a level; None if it is none that can be decoded here."""
    if not (
        page.is_tiled
        and (page.imagelength, page.imagewidth) == level.shape
        and (page.tilelength, page.tilewidth) == level.tile
        and page.compression == _JPEG
        and (page.samplesperpixel, page.bitspersample, page.planarconfig) == (3, 8, 1)
        and page.photometric in (RGB, YCBCR)
        and page.imagedepth == 1
    ):
        return None
    offsets, counts = (np.asarray(values, np.int64) for values in (page.dataoffsets, page.databytecounts))
    found = _JpegLevel(
        level.shape, level.tile, offsets, counts, page.jpegtables, "RGB" if page.photometric == RGB else "YCBCR"
    )
    tiles = found.grid[0] * found.grid[1]
    raw_bytes = level.tile[0] * level.tile[1] * 3
    return found if len(offsets) == len(counts) == tiles and raw_bytes <= _LIMIT_BYTES else None


def _jpeg_levels(path: Path, levels: tuple[Level, ...]) -> tuple[_JpegLevel | None, ...]:
    """Return the levels that can be decoded here, None for the others."""
    try:
        with tifffile.TiffFile(path, _multifile=False) as tiff:
            pages = [page for page in tiff.pages if page.is_tiled]
            return tuple(
                next(filter(None, (_jpeg_level(page, level) for page in pages)), None)
                if _is_whole(levels[0], level)
                else None
                for level in levels
            )
    except Exception:  # tifffile makes nothing of it; OpenSlide did
        return (None,) * len(levels)


def _samples(level: _JpegLevel) -> list[int]:
    """Return the numbers of the tiles that are compared: corners, edges, middle, and those of most bytes."""
    rows, columns = ({0, size // 2, size - 1} for size in level.grid)
    spread = {row * level.grid[1] + column for row in rows for column in columns}
    return sorted({*spread, *np.argsort(level.counts)[-_LARGEST_TILES:].tolist()})


class JpegTiles:
    """A slide that OpenSlide opened, its JPEG tiles decoded by imagecodecs where that gives the same pixels."""

    def __init__(self, path: Path, openslide: Source, levels: tuple[_JpegLevel | None, ...]) -> None:
        """Take over an open slide; `levels` are those that can be decoded here, None for the others."""
        self._openslide, self._levels = openslide, levels
        self._file = path.open("rb", buffering=0)
        stat = os.fstat(self._file.fileno())
        self._identity = stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
        self._memory = Memory()
        self._scratch = {level.tile: _blank(level) for level in levels if level is not None}

    @property
    def about(self) -> About:
        """What the file says of itself."""
        about = self._openslide.about
        version = imagecodecs.__version__
        return replace(about, reader=f"{about.reader}, tiles by imagecodecs {version}") if self.trusted(0) else about

    def trusted(self, number: int) -> bool:
        """Tell whether tiles of a level are decoded here: their samples came out as OpenSlide's."""
        level = self._levels[number]
        return level is not None and _verdicts.get((self._identity, number), lambda: self._equal(number, level))

    def read(self, number: int, window: Window) -> tuple[Bytes, Flags]:
        """Read a window inside a level, see `Source`."""
        level = self._levels[number]
        if level is None or not self.trusted(number):
            return self._openslide.read(number, window)
        rgb, valid = self._memory.array((*window.shape, 3)), all_true(window.shape)
        if rgb.size == 0:
            return rgb, valid
        rows, columns = (
            range(pixels.start // step, -(-pixels.stop // step))
            for pixels, step in zip((window.y, window.x), level.tile, strict=True)
        )
        # One axis at a time, outside of the loop over tiles: there are thousands.
        y_parts, x_parts = (
            [_part(tile, step, pixels, size) for tile in numbers]
            for numbers, pixels, step, size in zip(
                (rows, columns), (window.y, window.x), level.tile, level.shape, strict=True
            )
        )
        for row, (y, is_cut_y) in zip(rows, y_parts, strict=True):
            for column, (x, is_cut_x) in zip(columns, x_parts, strict=True):
                tile = self._tile(number, level, row * level.grid[1] + column, is_cut_y or is_cut_x)
                here = y.shift(-window.y.start).slice, x.shift(-window.x.start).slice
                if tile is None:
                    valid = valid if valid.flags.writeable else valid.copy()
                    rgb[here], valid[here] = self._openslide.read(number, Window(y, x))
                else:
                    top, left = row * level.tile[0], column * level.tile[1]
                    rgb[here] = tile[y.start - top : y.stop - top, x.start - left : x.stop - left]
        return rgb, valid

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._openslide.close()

    def _tile(self, number: int, level: _JpegLevel, index: int, is_cut: bool) -> Bytes | None:
        """Return a tile, which may be overwritten by the next call; None for what is left to OpenSlide."""
        if not is_cut:
            return self._decoded(level, index, self._scratch[level.tile])
        key = self._identity, number, index
        tile = _cache.get(key)
        if tile is None:
            tile = self._decoded(level, index, _blank(level))
            if tile is not None:
                _cache.put(key, tile)
        return tile

    def _decoded(self, level: _JpegLevel, index: int, out: Bytes) -> Bytes | None:
        """Decode a tile into `out`; None for one that is empty, damaged or of another size."""
        offset, size_bytes = int(level.offsets[index]), int(level.counts[index])
        if not (0 < size_bytes <= _TIMES_RAW * out.nbytes and offset > 0):
            return None
        data = os.pread(self._file.fileno(), size_bytes, offset)
        if len(data) < size_bytes or not _ends_well(data):
            return None
        try:
            imagecodecs.jpeg8_decode(data, tables=level.tables, colorspace=level.colours, outcolorspace="RGB", out=out)
        except (imagecodecs.Jpeg8Error, ValueError):
            return None
        # The last pixel nearly always tells.
        is_grey = out[-1, -1, 0] == _WITHOUT_DATA and (out[-_BLOCK_PX:, -_BLOCK_PX:] == _WITHOUT_DATA).all()
        return None if is_grey else out

    def _equal(self, number: int, level: _JpegLevel) -> bool:
        """Compare sample tiles with OpenSlide's; it has to have shown some, and each of them the same."""
        compared = 0
        for index in _samples(level):
            tile = self._decoded(level, index, _blank(level))
            if tile is None:
                continue
            inside = level.inside(index)
            try:
                rgb, valid = self._openslide.read(number, inside)
            except UnreadableError:
                return False  # it is stricter than imagecodecs
            if not (valid.all() and np.array_equal(rgb, tile[: inside.y.size, : inside.x.size])):
                return False
            compared += 1
        return compared > 0


def _ends_well(data: bytes) -> bool:
    """Tell whether a JPEG has its end, and nothing that makes a decoder stop before it."""
    data = data.rstrip(b"\0")  # up to an even size
    return data.endswith(_END) and data[-3] != _MARK and _RESTART not in data


def _blank(level: _JpegLevel) -> Bytes:
    return np.empty((*level.tile, 3), np.uint8)


def _above_empty(levels: tuple[_JpegLevel | None, ...]) -> tuple[_JpegLevel | None, ...]:
    """Return the levels down to the first that has an empty tile, or is not known to have none; None for the others.

    Of an Aperio slide OpenSlide takes the tiles below an empty one for empty, too, whatever they hold, and draws them
    from the level above (propagate_missing_tile in openslide-vendor-aperio.c).
    """
    found: list[_JpegLevel | None] = []
    for level in levels:
        whole = all(above is not None and (above.counts > 0).all() for above in found)
        found.append(level if whole else None)
    return tuple(found)


def with_jpeg_tiles(path: Path, openslide: Source) -> Source:
    """Return the slide at `path`, read the fast way where that is possible; `openslide` is taken over."""
    levels = _above_empty(_jpeg_levels(path, openslide.about.levels))
    return openslide if levels == (None,) * len(levels) else JpegTiles(path, openslide, levels)
