"""A label mask as a tiled TIFF, written and read window by window.

One level, uint8, tiles of 512 px, deflate; the resolution tags carry the mpp, so QuPath and OpenSlide put
it at its size.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
import tifffile
from numpy.typing import NDArray

from gigaslide.errors import GigaslideError
from gigaslide.files import atomic_path
from gigaslide.geometry import Window, grid

_TILE_PX = 512
_CLASSIC_BYTES = 1 << 31
_UM_PER_CM = 10_000


def write_mask(
    path: Path,
    read: Callable[[Window], NDArray[np.uint8]],
    shape: tuple[int, int],
    mpp_um_per_px: float | None,
) -> None:
    """Write a mask of `shape` (y, x), whose windows `read` returns as uint8 (y, x), to `path` atomically."""

    def tiles() -> Iterator[NDArray[np.uint8]]:
        for window in grid(shape, (_TILE_PX, _TILE_PX)):
            tile = np.zeros((_TILE_PX, _TILE_PX), np.uint8)
            tile[: window.y.size, : window.x.size] = read(window)
            yield tile

    resolution = (_UM_PER_CM / mpp_um_per_px,) * 2 if mpp_um_per_px else None
    with (
        atomic_path(path) as temporary,
        tifffile.TiffWriter(temporary, bigtiff=shape[0] * shape[1] > _CLASSIC_BYTES) as writer,
    ):
        writer.write(
            tiles(),
            shape=shape,
            dtype=np.uint8,
            tile=(_TILE_PX, _TILE_PX),
            compression="zlib",
            photometric="minisblack",
            resolution=resolution,
            resolutionunit="CENTIMETER" if resolution else None,
            description="gigaslide mask: 0 glass, 1 tissue, 255 invalid",
            metadata=None,
            software=False,
        )


class MaskFile:
    """A mask that `write_mask` wrote, open for reading windows; a context manager."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            GigaslideError: it is missing or no such mask.
        """
        try:
            self._file = tifffile.TiffFile(path)
        except (OSError, tifffile.TiffFileError) as error:
            raise GigaslideError(
                f"{path} should be a mask that `evaluate` wrote, but cannot be read: {error}"
            ) from None
        self._page = self._file.pages[0]
        if not self._page.is_tiled or self._page.dtype != np.uint8 or self._page.ndim != 2:
            self._file.close()
            raise GigaslideError(f"{path} should be a tiled uint8 TIFF that `evaluate` wrote: run that stage again")

    def __enter__(self) -> "MaskFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def shape(self) -> tuple[int, int]:
        """(y, x) in px."""
        height, width = self._page.shape
        return int(height), int(width)

    def read(self, window: Window) -> NDArray[np.uint8]:
        """Return the labels of a window inside the mask, uint8 (y, x)."""
        labels = np.zeros(window.shape, np.uint8)
        height, width = self._page.tilelength, self._page.tilewidth
        across = -(-self.shape[1] // width)
        for row in range(window.y.start // height, -(-window.y.stop // height)):
            for column in range(window.x.start // width, -(-window.x.stop // width)):
                tile = Window.of(row * height, column * width, height, width)
                part = tile.clip(window)
                pixels = self._tile(row * across + column)
                inside = part.shift(-tile.y.start, -tile.x.start)
                labels[part.shift(-window.y.start, -window.x.start).slices] = pixels[inside.slices]
        return labels

    def _tile(self, index: int) -> NDArray[np.uint8]:
        handle = self._file.filehandle
        handle.seek(self._page.dataoffsets[index])
        data, _, _ = self._page.decode(handle.read(self._page.databytecounts[index]), index)
        tile: NDArray[np.uint8] = data.reshape(data.shape[-3:-1])
        return tile
