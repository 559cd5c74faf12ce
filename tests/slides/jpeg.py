"""Tiled JPEG TIFFs as scanners write them: shared tables, no JFIF, empty tiles, tiles over the edges."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import tifffile

from gigaslide.geometry import grid

APERIO = "Aperio Image Library v10.0.50\r\n{width}x{height} [0,0 {width}x{height}] ({tile}x{tile}) JPEG|MPP = 0.5"
_TABLES = (0xDB, 0xC4)  # quantisation, Huffman
_NAMES = (0xE0, 0xEE)  # JFIF, Adobe


def blobs(shape: tuple[int, int], seed: int = 0, grain: int = 8) -> np.ndarray:
    """Coloured detail of `grain` px with noise on it: neighbouring pixels differ, and so do their colours."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (shape[0] // grain + 2, shape[1] // grain + 2, 3))
    image = coarse.repeat(grain, 0).repeat(grain, 1)[: shape[0], : shape[1]] + random.integers(-20, 21, (*shape, 3))
    return image.clip(0, 255).astype(np.uint8)


def shared_tables(tile: bytes) -> tuple[bytes, bytes]:
    """Take the tables and the names of the colour space out of a JPEG; return it, and the tables as a JPEG of them."""
    kept, tables, at = b"\xff\xd8", b"\xff\xd8", 2
    while tile[at + 1] != 0xDA:
        marker, end = tile[at + 1], at + 2 + struct.unpack_from(">H", tile, at + 2)[0]
        if marker in _TABLES:
            tables += tile[at:end]
        elif marker not in _NAMES:
            kept += tile[at:end]
        at = end
    return kept + tile[at:], tables + b"\xff\xd9"


def write_jpeg_slide(
    path: Path,
    *levels: np.ndarray,
    tile_px: int = 64,
    quality: int = 80,
    subsampling: str = "420",
    ycbcr: bool = True,
    aperio: bool = False,
    shared: bool = False,
    missing: Sequence[int] = (),
    **more: Any,
) -> Path:
    """Write a tiled JPEG pyramid that OpenSlide opens; tiles number `missing` of every level are empty.

    `ycbcr`: the colours are stored as YCbCr, else as RGB, which is never subsampled. `shared`: the tables are in the
    tag JPEGTables, and tiles say nothing of their colours.
    """
    with tifffile.TiffWriter(path) as writer:
        for number, level in enumerate(levels):
            tiles, tables = [], b""
            for index, window in enumerate(grid(level.shape[:2], (tile_px, tile_px))):
                part = level[window.slices]
                padding = [(0, tile_px - part.shape[0]), (0, tile_px - part.shape[1]), (0, 0)]
                encoded = imagecodecs.jpeg8_encode(
                    np.ascontiguousarray(np.pad(part, padding, "edge")),
                    level=quality,
                    colorspace="RGB",
                    outcolorspace="YCBCR" if ycbcr else "RGB",
                    subsampling=subsampling if ycbcr else "444",
                )
                if shared:
                    encoded, tables = shared_tables(bytes(encoded))
                tiles.append(b"" if index in missing else bytes(encoded))
            height, width = level.shape[:2]
            how = {"subsampling": (int(subsampling[0]) // int(subsampling[1]), 1 + (subsampling[2] == "0"))}
            writer.write(
                iter(tiles),
                shape=level.shape,
                dtype=np.uint8,
                tile=(tile_px, tile_px),
                photometric="ycbcr" if ycbcr else "rgb",
                compression="jpeg",
                subfiletype=1 if number else 0,
                metadata=None,
                description=APERIO.format(height=height, width=width, tile=tile_px) if aperio else None,
                extratags=[(347, 7, len(tables), tables, True)] if shared else [],
                resolution=(20000, 20000),
                resolutionunit="CENTIMETER",
                **(how if ycbcr else {}),
                **more,
            )
    return path
