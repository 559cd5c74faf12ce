"""The files of a predicted slide: their names, and how they are written from its outlines.

summary.json is written last: a folder that has it is whole.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from gigaslide import files
from gigaslide.classes import INVALID
from gigaslide.geometry import Interval, split
from gigaslide.masks.geojson import tolerance_px, write_geojson
from gigaslide.masks.mask_tiff import write_mask
from gigaslide.masks.outlines import Outlines
from gigaslide.prediction import overlay
from gigaslide.prediction.request import Request
from gigaslide.prediction.survey import Validity
from gigaslide.slides.arrays import Bytes
from gigaslide.slides.reader import SlideReader

MASK, GEOJSON, OVERLAY, HEATMAP = "mask.tif", "mask.geojson", "overlay.png", "heatmap.ome.tif"
THUMBNAIL = "thumbnail.jpg"
SUMMARY = "summary.json"
_OURS = (MASK, GEOJSON, OVERLAY, THUMBNAIL, HEATMAP)
DONE, NO_TISSUE, FAILED = "done", "no_tissue", "failed"

_BAND_PX = 512
_THUMBNAIL_PX = 480


def write_outputs(reader: SlideReader, validity: Validity, outlines: Outlines, request: Request, folder: Path) -> None:
    """Write all but the heat map and the summary; each file appears when it is whole."""
    height, mpp = reader.shape[0], reader.mpp_um_per_px
    rows = (labels(outlines, validity, band) for band in split(height, _BAND_PX))
    write_mask(folder / MASK, rows, reader.shape, mpp)
    offset = reader.bounds_origin_yx_px if request.origin == "bounds" else (0, 0)
    level0_mpp = reader.resolution.mpp_um_per_px
    write_geojson(
        folder / GEOJSON,
        outlines,
        scale_yx=reader.level0_px_per_px,
        offset_yx_px=(-offset[0], -offset[1]),
        tolerance=tolerance_px(request.simplify_um, level0_mpp),
        mpp_um_per_px=level0_mpp,
    )
    picture = overlay.small(reader)
    factor = reader.shape[1] / picture.shape[1]
    um_per_px = None if mpp is None else math.sqrt(math.prod(mpp))
    overlay.write(folder / OVERLAY, overlay.outlined(picture, outlines), um_per_px, factor)
    files.write_bytes(folder / THUMBNAIL, overlay.thumbnail_jpeg(picture, outlines, _THUMBNAIL_PX))


def labels(outlines: Outlines, validity: Validity, rows: Interval) -> Bytes:
    """Return the labels of whole rows, uint8 (y, x): 0 glass, 1 tissue, 255 invalid."""
    found = outlines.read_rows(rows.start, rows.stop).view(np.uint8)  # GLASS and TISSUE are False and True
    valid = validity.rows(rows)
    if valid is not None:
        np.copyto(found, INVALID, where=np.logical_not(valid, out=valid))
    return found


def sizes_bytes(folder: Path) -> dict[str, int]:
    """Return the sizes of the outputs in a folder, by name; what else lies there, as corrections, is not ours."""
    return {name: (folder / name).stat().st_size for name in _OURS if (folder / name).is_file()}


def clear(folder: Path) -> None:
    """Remove the outputs of an earlier prediction, its summary first; what else lies in the folder stays."""
    for name in (SUMMARY, *_OURS):
        files.remove(folder / name)


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Write summary.json."""
    files.write_text(folder / SUMMARY, json.dumps(summary, indent=1) + "\n")


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return the summary of a folder; None where there is none that can be read."""
    try:
        summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) else None


def is_whole(folder: Path, summary: dict[str, Any]) -> bool:
    """Whether the slide did not fail, and every file that the summary names is there, of the size that it had."""
    sizes = summary.get("outputs_bytes", {})
    return summary.get("status") in (DONE, NO_TISSUE) and all(
        (folder / name).is_file() and (folder / name).stat().st_size == size for name, size in sizes.items()
    )
