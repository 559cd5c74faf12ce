"""A picture of one channel as a pyramidal tiled TIFF, handed over row by row, in memory for a few bands of rows.

Every level is half the one above, rounded up, down to one that is at most 1024 px long. It is made from the pixels of
the level above: what becomes of 2 x 2 of them is a function of their sum, a table that the kind of picture brings.

Tiles are deflated as soon as their rows are there and wait in an unnamed file beside the target, because a TIFF that
others read well has its levels one after the other: a plain chain of directories, the smaller ones marked as reduced
(openslide#328, tifffile#159), or, in OME-TIFF, as sub-directories of the first. It is a BigTIFF where the offsets need
it. The resolution tags hold the mpp of each level.
"""

import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import imagecodecs
import numba
import numpy as np
import tifffile
from numpy.typing import NDArray

from gigaslide.files import atomic_path
from gigaslide.geometry import round_up

TILE_PX = 512
_SMALLEST_PX = 1024
_ENCODERS = 2  # threads; one encodes about as fast as a mask can be made
# Offsets of a classic TIFF have 32 bits; 32 MB are left for the directories.
_CLASSIC_BYTES = 2**32 - 2**25
_UM_PER_CM = 10_000


@dataclass(frozen=True)
class Kind:
    """What a picture shows.

    `description`: for the tag ImageDescription, or as the name of an OME image. `reduced`: uint8 (5, 1021), what
    becomes of 1, 2 or 4 pixels that have a given sum when they are one pixel of the next level. `palette`: colours of
    values, RGB uint8, other values are black; None for greys. `is_ome`: OME-TIFF. `deflate_level`: libdeflate's.
    """

    description: str
    reduced: NDArray[np.uint8]
    palette: dict[int, tuple[int, int, int]] | None = None
    is_ome: bool = False
    deflate_level: int = 6

    @property
    def colour_map(self) -> NDArray[np.uint16] | None:
        """The palette as the tag ColorMap wants it."""
        if self.palette is None:
            return None
        colours = np.zeros((3, 256), np.uint16)
        for value, colour in self.palette.items():
            colours[:, value] = np.array(colour) * 257
        return colours


def level_shapes(shape: tuple[int, int]) -> list[tuple[int, int]]:
    """Return (y, x) of each level of a picture, the largest first."""
    shapes = [shape]
    while max(shapes[-1]) > _SMALLEST_PX:
        height, width = shapes[-1]
        shapes.append((-(-height // 2), -(-width // 2)))
    return shapes


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _reduce(values: NDArray[np.uint8], reduced: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    """Write half of the values (y, x), rounded up, into `target`."""
    height, width = values.shape
    for row in range(height // 2):
        above, below = values[2 * row], values[2 * row + 1]
        for column in range(width // 2):
            left = np.uint32(above[2 * column]) + np.uint32(below[2 * column])
            right = np.uint32(above[2 * column + 1]) + np.uint32(below[2 * column + 1])
            target[row, column] = reduced[4, left + right]
        if width % 2:
            target[row, width // 2] = reduced[2, np.uint32(above[width - 1]) + np.uint32(below[width - 1])]
    if height % 2:
        last = values[height - 1]
        for column in range(width // 2):
            target[height // 2, column] = reduced[2, np.uint32(last[2 * column]) + np.uint32(last[2 * column + 1])]
        if width % 2:
            target[height // 2, width // 2] = reduced[1, last[width - 1]]


class _Level:
    """One level: rows that make no full row of tiles yet, and where its tiles lie in the spool."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.rows = 0
        self.band = np.zeros((TILE_PX, round_up(shape[1], TILE_PX)), np.uint8)
        self.tiles: list[tuple[int, int]] = []


class PyramidWriter:
    """Writes a picture of `shape` (y, x) to `path` when the block it manages ends without an error.

    Until then nothing is at `path`, or what was there; after an error too. With one thread it takes a few nanoseconds
    per pixel; memory is about 1 kB per column.
    """

    def __init__(
        self, path: Path, shape: tuple[int, int], mpp_um_per_px: tuple[float, float] | None, kind: Kind
    ) -> None:
        """Start above the first row; `mpp_um_per_px` is (y, x)."""
        if min(shape) < 1:
            raise ValueError(f"a picture has at least one pixel; received shape={shape}")
        self._path, self._mpp, self._kind = path, mpp_um_per_px, kind
        self._levels = [_Level(level_shape) for level_shape in level_shapes(shape)]
        self._rows = 0
        self._flat: dict[int, bytes] = {}

    def __enter__(self) -> "PyramidWriter":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # It has no name: a killed process leaves nothing behind.
        self._spool = tempfile.TemporaryFile(dir=self._path.parent)
        self._encoders = ThreadPoolExecutor(_ENCODERS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._spool, self._encoders:
            if error is None:
                self._finish()

    def write_rows(self, values: NDArray[np.uint8]) -> None:
        """Take the next rows, uint8 (rows, width), from the top."""
        height, width = self._levels[0].shape
        if values.ndim != 2 or values.shape[1] != width or values.dtype != np.uint8:
            raise ValueError(f"rows are uint8 (rows, {width}); received {values.dtype} {values.shape}")
        if self._rows + len(values) > height:
            raise ValueError(f"the picture has {height} rows; received {self._rows + len(values)}")
        self._rows += len(values)
        level = self._levels[0]
        while len(values):
            some = values[: TILE_PX - level.rows]
            level.band[level.rows : level.rows + len(some), :width] = some
            self._filled(0, len(some))
            values = values[len(some) :]

    def _filled(self, number: int, rows: int) -> None:
        """Go on after the next rows of a level were put into its band."""
        self._levels[number].rows += rows
        if self._levels[number].rows == TILE_PX:
            self._flush(number)

    def _flush(self, number: int) -> None:
        """Encode the rows of a level that are there, and hand them on to the next one."""
        level = self._levels[number]
        rows, level.rows = level.rows, 0
        level.band[rows:] = 0
        lefts = range(0, level.band.shape[1], TILE_PX)
        for encoded in self._encoders.map(self._encode, (level.band[:, left : left + TILE_PX] for left in lefts)):
            level.tiles.append((self._spool.tell(), len(encoded)))
            self._spool.write(encoded)
        if number + 1 < len(self._levels):
            smaller, half = self._levels[number + 1], -(-rows // 2)
            target = smaller.band[smaller.rows : smaller.rows + half, : smaller.shape[1]]
            _reduce(level.band[:rows, : level.shape[1]], self._kind.reduced, target)
            self._filled(number + 1, half)

    def _encode(self, tile: NDArray[np.uint8]) -> bytes:
        value = int(tile[0, 0])
        if (tile != value).any():
            return bytes(imagecodecs.deflate_encode(tile.tobytes(), level=self._kind.deflate_level, raw=False))
        if value not in self._flat:
            self._flat[value] = bytes(
                imagecodecs.deflate_encode(tile.tobytes(), level=self._kind.deflate_level, raw=False)
            )
        return self._flat[value]

    def _spooled(self, level: _Level) -> Iterator[bytes]:
        for start, size_bytes in level.tiles:
            self._spool.seek(start)
            yield self._spool.read(size_bytes)

    def _options(self, number: int) -> dict[str, Any]:
        """Return what tifffile is told of a level."""
        options: dict[str, Any] = {"subfiletype": int(number > 0), "metadata": None}
        if self._mpp:
            options["resolution"] = tuple(_UM_PER_CM / (mpp * 2**number) for mpp in reversed(self._mpp))
            options["resolutionunit"] = "CENTIMETER"
        if self._kind.colour_map is not None:
            options["colormap"] = self._kind.colour_map
        if number == 0 and self._kind.is_ome:
            options["subifds"] = len(self._levels) - 1
            # The same picture gives the same bytes.
            options["metadata"] = {"axes": "YX", "Name": self._kind.description, "UUID": str(uuid.UUID(int=0))}
            if self._mpp:
                y_mpp, x_mpp = self._mpp
                units = {"PhysicalSizeYUnit": "µm", "PhysicalSizeXUnit": "µm"}
                options["metadata"] |= {"PhysicalSizeY": y_mpp, "PhysicalSizeX": x_mpp, **units}
        elif number == 0:
            options["description"] = self._kind.description
        return options

    def _finish(self) -> None:
        height = self._levels[0].shape[0]
        if self._rows != height:
            raise ValueError(f"the picture has {height} rows; received {self._rows}")
        for number, level in enumerate(self._levels):
            if level.rows:
                self._flush(number)
        big = self._spool.tell() > _CLASSIC_BYTES
        with (
            atomic_path(self._path) as temporary,
            tifffile.TiffWriter(temporary, bigtiff=big, ome=self._kind.is_ome) as writer,
        ):
            for number, level in enumerate(self._levels):
                writer.write(
                    self._spooled(level),
                    shape=level.shape,
                    dtype=np.uint8,
                    tile=(TILE_PX, TILE_PX),
                    compression="zlib",
                    photometric="minisblack" if self._kind.palette is None else "palette",
                    software=False,
                    **self._options(number),
                )
