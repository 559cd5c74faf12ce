"""Write a slide as OpenSlide's generic tiled TIFF, tile by tile: a pyramid of JPEG tiles, and label images beside it.

The pyramid is a plain chain of images, each four times smaller, the smaller ones marked as reduced (as readers from
libtiff to QuPath expect), with the scale in the resolution tags. Level 0 is never in memory: only the next level is
built up there, a sixteenth of the pixels.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray

from gigaslide import files

TILE_PX = 256
_REDUCTION = 4
_SMALLEST_PX = 512
_JPEG_QUALITY = 85
# Offsets of a classic TIFF have 32 bits; 32 MB are left for the directories.
_CLASSIC_BYTES = 2**32 - 2**25


def _jpeg(tile: NDArray[np.uint8]) -> bytes:
    return bytes(
        imagecodecs.jpeg8_encode(tile, level=_JPEG_QUALITY, colorspace="RGB", outcolorspace="YCBCR", subsampling="420")
    )


def _smaller(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Average blocks of 4 x 4 pixels, rounded; sizes must be multiples of 4."""
    height, width, channels = image.shape
    blocks = image.reshape(height // _REDUCTION, _REDUCTION, width // _REDUCTION, _REDUCTION, channels)
    sums = blocks.sum(axis=1, dtype=np.uint16).sum(axis=2, dtype=np.uint16)
    return np.asarray((sums + _REDUCTION**2 // 2) // _REDUCTION**2, dtype=np.uint8)


def _extend(image: NDArray[np.uint8], shape: tuple[int, int]) -> None:
    """Repeat the last row and column of `shape` (y, x) over the rest, in place: white there would ring inwards."""
    image[:, shape[1] :] = image[:, shape[1] - 1 : shape[1]]
    image[shape[0] :] = image[shape[0] - 1]


def _up(size_px: int, multiple: int) -> int:
    return -(-size_px // multiple) * multiple


def _tiles(image: NDArray[np.uint8], shape: tuple[int, int]) -> Iterator[bytes]:
    """Encode the tiles that cover `shape` (y, x); `image` is at least as large as they are."""
    for top in range(0, shape[0], TILE_PX):
        for left in range(0, shape[1], TILE_PX):
            yield _jpeg(np.ascontiguousarray(image[top : top + TILE_PX, left : left + TILE_PX]))


def write_pyramid(
    target: Path, shape: tuple[int, int], mpp_um_per_px: float, tiles: Iterable[NDArray[np.uint8]]
) -> None:
    """Write a pyramidal JPEG TIFF of `shape` (y, x), atomically.

    `tiles` are whole tiles, (256, 256, RGB) uint8, row by row; those at the right and bottom reach over the edge, and
    what they show there is seen by nobody but goes into the mean of the last pixel of the smaller levels.
    """
    smaller_shape = tuple(-(-n // _REDUCTION) for n in shape)
    step = TILE_PX // _REDUCTION
    # Room for whole tiles of the next level, and for its own reduction.
    smaller = np.empty((*(_up(n, TILE_PX) for n in smaller_shape), 3), dtype=np.uint8)

    def encoded() -> Iterator[bytes]:
        columns = -(-shape[1] // TILE_PX)
        for number, tile in enumerate(tiles):
            top, left = number // columns * step, number % columns * step
            smaller[top : top + step, left : left + step] = _smaller(tile)
            yield _jpeg(tile)

    per_cm = 1e4 / mpp_um_per_px
    big = shape[0] * shape[1] * 3 > _CLASSIC_BYTES
    with files.atomic_path(target) as temporary, tifffile.TiffWriter(temporary, bigtiff=big) as writer:

        def level(data: Iterator[bytes], shape: tuple[int, int], reduction: int) -> None:
            writer.write(
                data,
                shape=(*shape, 3),
                dtype=np.uint8,
                tile=(TILE_PX, TILE_PX),
                photometric="ycbcr",
                subsampling=(2, 2),
                compression="jpeg",
                subfiletype=int(reduction > 1),
                resolution=(per_cm / reduction, per_cm / reduction),
                resolutionunit="CENTIMETER",
                metadata=None,
            )

        level(encoded(), shape, 1)
        reduction, image = _REDUCTION, smaller
        here = (int(smaller_shape[0]), int(smaller_shape[1]))
        while True:
            _extend(image, here)
            level(_tiles(image, here), here, reduction)
            if max(here) <= _SMALLEST_PX:
                break
            here = (-(-here[0] // _REDUCTION), -(-here[1] // _REDUCTION))
            image = _smaller(image)
            padding = [(0, _up(n, TILE_PX) - n) for n in image.shape[:2]]
            image = np.pad(image, [*padding, (0, 0)])
            reduction *= _REDUCTION


def encode_labels(tile: NDArray[np.uint8]) -> bytes:
    """Compress one tile, (256, 256) uint8, of a label image."""
    return bytes(imagecodecs.zlib_encode(tile.tobytes(), level=4))


def write_labels(
    target: Path, shape: tuple[int, int], mpp_um_per_px: float, tiles: Iterable[bytes], description: str | None = None
) -> None:
    """Write a tiled, deflated label image of `shape` (y, x), atomically, from its encoded tiles, row by row."""
    per_cm = 1e4 / mpp_um_per_px
    with files.atomic_path(target) as temporary:
        tifffile.imwrite(
            temporary,
            iter(tiles),
            shape=shape,
            dtype=np.uint8,
            tile=(TILE_PX, TILE_PX),
            photometric="minisblack",
            compression="zlib",
            resolution=(per_cm, per_cm),
            resolutionunit="CENTIMETER",
            description=description,
            metadata=None,
        )
