"""Patches for CLAM, as its `create_patches_fp.py` leaves them for `extract_features_fp.py`.

    patches/<slide>.h5           data set `coords`, int64 (patches, 2), (x, y) of level 0
    process_list_autogen.csv     a row for each slide with patches

Read in github.com/mahmoodlab/CLAM at commit 53e2409 (2025-04-14): the attributes are those of
`WholeSlideImage.process_contour` (wsi_core/WholeSlideImage.py) and `save_hdf5` (utils/file_utils.py); readers are
`Whole_Slide_Bag_FP` and `Dataset_All_Bags` (dataset_modules/dataset_h5.py), which take `patch_level`, `patch_size`,
the coordinates and the column `slide_id`. CLAM opens slides with OpenSlide, so coordinates are in the frame of all of
level 0, whatever part of it was scanned.

What differs: CLAM takes a patch when one of four points near its centre lies in a contour, and starts a grid at each
contour; here a patch has a share of tissue, on one grid. CLAM reads a level as it is, so a patch is of the level that
is next finer than asked for, and larger; `extract_features_fp.py --target_patch_size` scales it. As with CLAM, a slide
without patches has no file; it is not in the list either, as the extraction would stop at it.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from gigaslide import files
from gigaslide.exports.coordinates import write_coordinates
from gigaslide.exports.level_patch import level_patches
from gigaslide.exports.request import Export

_LIST = "process_list_autogen.csv"


def slide_id(slide: Path) -> str:
    """Return CLAM's name of a slide."""
    return slide.stem


def paths(folder: Path, slide: str) -> Iterator[Path]:
    """Yield the files of a slide."""
    yield folder / "patches" / f"{slide}.h5"


def write(export: Export, folder: Path, thumbnail: Path) -> int:
    """Write the patches of a slide into CLAM's folder; return how many there are."""
    patch, found = level_patches(export, "CLAM")
    if len(found):
        height, width = export.reader.levels[patch.level].shape
        full_height, full_width = export.reader.level0_shape
        (target,) = paths(folder, export.slide_id)
        attributes = {
            "patch_size": patch.size_px,
            "patch_level": patch.level,
            "downsample": (full_width / width, full_height / height),
            "downsampled_level_dim": (width, height),
            "level_dim": (width, height),
            "name": export.slide_id,
            "save_path": str(target.parent),
        }
        write_coordinates(target, found.cells * patch.level0_px, attributes)
    return len(found)


def finish(folder: Path, slides: Iterable[Path]) -> None:
    """Write the list of the slides that have patches."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["slide_id", "process", "status"])
    writer.writerows([slide.name, 0, "processed"] for slide in slides)
    files.write_text(folder / _LIST, stream.getvalue())
