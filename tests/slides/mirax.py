"""A small MIRAX (.mrxs) slide: what OpenSlide's reader of the format needs, without camera positions or overlaps.

The format as that reader (openslide-vendor-mirax.c) reads it: `Slidedat.ini` names the files and the levels,
`Index.dat` the place of every tile. A photo that was not taken is in no table: that part of the slide is transparent,
and the slide's bounds are those of the photos there are.
"""

import struct
from collections.abc import Callable, Collection
from pathlib import Path

import imagecodecs
import numpy as np

_IDENTIFIER = "0123456789abcdef0123456789abcdef"
# What `encode` writes, by the name of it in Slidedat.ini.
Encoder = Callable[[np.ndarray], bytes]


def _settings(levels: int, tiles: tuple[int, int], tile_px: int, kind: str, mpp_um_per_px: float) -> str:
    sections = [f"HIER_0_VAL_{number}_SECTION = LEVEL_{number}" for number in range(levels)]
    general = ["[GENERAL]", f"SLIDE_ID = {_IDENTIFIER}", f"IMAGENUMBER_X = {tiles[1]}", f"IMAGENUMBER_Y = {tiles[0]}"]
    general += ["OBJECTIVE_MAGNIFICATION = 20", "CameraImageDivisionsPerSide = 1"]
    general += ["[HIERARCHICAL]", "HIER_COUNT = 1", "NONHIER_COUNT = 0", "INDEXFILE = Index.dat"]
    general += ["HIER_0_NAME = Slide zoom level", f"HIER_0_COUNT = {levels}", *sections]
    general += ["[DATAFILE]", "FILE_COUNT = 1", "FILE_0 = Data0000.dat"]
    for number in range(levels):
        mpp = mpp_um_per_px * 2**number
        general += [f"[LEVEL_{number}]", f"IMAGE_CONCAT_FACTOR = {min(number, 1)}", "OVERLAP_X = 0", "OVERLAP_Y = 0"]
        general += [f"MICROMETER_PER_PIXEL_X = {mpp}", f"MICROMETER_PER_PIXEL_Y = {mpp}", f"IMAGE_FORMAT = {kind}"]
        general += ["IMAGE_FILL_COLOR_BGR = 16777215", f"DIGITIZER_WIDTH = {tile_px}", f"DIGITIZER_HEIGHT = {tile_px}"]
    return "\ufeff" + "\n".join(general) + "\n"


def write_mrxs(
    path: Path,
    levels: list[np.ndarray],
    tile_px: int,
    missing: Collection[tuple[int, int]],
    encode: Encoder,
    kind: str,
    mpp_um_per_px: float = 0.5,
) -> Path:
    """Write the file, and the folder of its name.

    `levels`: uint8 (y, x, 3), each half as large as the one before; level 0 is whole tiles, in a number that the last
    level's scale divides. `missing`: row and column of the tiles of level 0 that there are not; in the other levels a
    tile is missing when all that it covers is. `kind` names what `encode` writes: JPEG or PNG.
    """
    folder = path.with_suffix("")
    folder.mkdir(parents=True)
    tiles = levels[0].shape[0] // tile_px, levels[0].shape[1] // tile_px
    data, pages = b"", []
    for number, level in enumerate(levels):
        step, entries = 2**number, []
        for row in range(0, tiles[0], step):
            for column in range(0, tiles[1], step):
                covered = {(row + y, column + x) for y in range(step) for x in range(step)}
                if covered <= set(missing):
                    continue
                top, left = row // step * tile_px, column // step * tile_px
                tile = encode(np.ascontiguousarray(level[top : top + tile_px, left : left + tile_px]))
                entries.append(struct.pack("<4i", row * tiles[1] + column, len(data), len(tile), 0))
                data += tile
        pages.append(entries)
    head = b"01.02" + _IDENTIFIER.encode()
    table = len(head) + 8
    index = head + struct.pack("<2i", table, 0) + bytes(4 * len(levels))
    starts = []
    for entries in pages:
        starts.append(len(index))
        index += struct.pack("<2i", 0, len(index) + 8)
        index += struct.pack("<2i", len(entries), 0) + b"".join(entries)
    index = index[:table] + struct.pack(f"<{len(starts)}i", *starts) + index[table + 4 * len(starts) :]
    (folder / "Slidedat.ini").write_text(_settings(len(levels), tiles, tile_px, kind, mpp_um_per_px), "utf-8")
    (folder / "Index.dat").write_bytes(index)
    (folder / "Data0000.dat").write_bytes(data)
    path.write_bytes(imagecodecs.jpeg8_encode(np.ascontiguousarray(levels[-1])))  # a picture for the file manager
    return path
