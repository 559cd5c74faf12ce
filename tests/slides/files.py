"""Small slides, written by the tests themselves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from gigaslide.geometry import grid

TILE_PX = 64
HALF_UM = {"resolution": (20000, 20000), "resolutionunit": "CENTIMETER"}  # 0.5 um per px


def noise(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    """Pixels of which no two neighbours are alike, so that every misplaced one shows."""
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3), np.uint8)


def write_slide(path: Path, *levels: np.ndarray, missing: Sequence[int] = (), **tags: Any) -> Path:
    """Write a tiled lossless TIFF that OpenSlide opens; tiles number `missing` of level 0 were not scanned.

    `tags`: resolution, resolutionunit, description; 0.5 um per px if none is given.
    """
    with tifffile.TiffWriter(path) as writer:
        for number, level in enumerate(levels):
            tiles = (
                None if number == 0 and index in missing else np.ascontiguousarray(level[window.slices])
                for index, window in enumerate(grid(level.shape[:2], (TILE_PX, TILE_PX)))
            )
            padded = (
                tile
                if tile is None
                else np.pad(tile, [(0, TILE_PX - tile.shape[0]), (0, TILE_PX - tile.shape[1]), (0, 0)])
                for tile in tiles
            )
            writer.write(
                padded,
                shape=level.shape,
                dtype=np.uint8,
                tile=(TILE_PX, TILE_PX),
                photometric="rgb",
                compression="deflate",
                subfiletype=1 if number else 0,
                metadata=None,
                **(tags or HALF_UM),
            )
    return path


def damage_tile(path: Path, index: int, page: int = 0) -> Path:
    """Overwrite one tile or strip of a TIFF with zeros."""
    with tifffile.TiffFile(path) as tiff:
        held = tiff.pages[page]
        offset, count = held.dataoffsets[index], held.databytecounts[index]
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(count))
    return path
