"""Masks and tiles for histolab.

    masks/<slide>.png     for a `BinaryMask`: its `_mask(slide)` returns `np.array(Image.open(...)) > 0`
    tiles/<slide>.csv     filename, x_ul, y_ul, x_br, y_br, level, tile_size, tissue_percent

Read in github.com/histolab/histolab, version 0.7.0 at commit 202a8bc (2026-04-20): `BinaryMask` (histolab/masks.py),
`GridTiler` (histolab/tiler.py), `Slide.extract_tile` and `Slide._has_valid_coords` (histolab/slide.py). histolab has no
file for a mask or for tiles that it would read: a tiler takes an object that returns a mask of the whole slide, of any
size, and `Slide.extract_tile(CoordinatePair(x_ul, y_ul, x_br, y_br), (tile_size, tile_size), level)` takes places at
level 0, in OpenSlide's frame. So the mask is a picture, and the tiles are rows with just these numbers; `filename` is
the one that a tiler would give. histolab refuses a tile that ends with the slide's last row or column, so those are
left out. A level is read as it is: a tile is of the level that is next finer than asked for, and larger.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from gigaslide import files
from gigaslide.exports.level_patch import level_patches
from gigaslide.exports.request import Export
from gigaslide.exports.small_mask import write_small_mask

_COLUMNS = ("filename", "x_ul", "y_ul", "x_br", "y_br", "level", "tile_size", "tissue_percent")


def slide_id(slide: Path) -> str:
    """Return histolab's name of a slide."""
    return slide.stem


def paths(folder: Path, slide: str) -> Iterator[Path]:
    """Yield the files of a slide."""
    yield folder / "masks" / f"{slide}.png"
    yield folder / "tiles" / f"{slide}.csv"


def write(export: Export, folder: Path, thumbnail: Path) -> int:
    """Write mask and tiles of a slide into a folder for histolab; return how many tiles there are.

    Raises:
        SlideError: OpenSlide does not read the slide.
    """
    patch, found = level_patches(export, "histolab")
    starts = found.cells * patch.level0_px
    stops = starts + patch.level0_px
    inside = np.all(stops < export.reader.level0_shape, axis=1)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_COLUMNS)
    kept = zip(starts[inside].tolist(), stops[inside].tolist(), found.tissue[inside].tolist(), strict=True)
    for number, ((top, left), (bottom, right), share) in enumerate(kept):
        name = f"tile_{number}_level{patch.level}_{left}-{top}-{right}-{bottom}.png"
        writer.writerow([name, left, top, right, bottom, patch.level, patch.size_px, f"{100 * share:.2f}"])
    mask, tiles = paths(folder, export.slide_id)
    write_small_mask(mask, export)
    files.write_text(tiles, stream.getvalue())
    return int(np.count_nonzero(inside))


def finish(folder: Path, slides: Iterable[Path]) -> None:
    """Leave all as it is: histolab is told each file."""
