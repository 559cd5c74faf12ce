"""The corrected mask as GeoJSON, in QuPath's dialect; `gigaslide add --annotations` takes the folder it is in."""

import json
import os
from pathlib import Path
from typing import Any

import shapely

from gigaslide.config import Labels
from gigaslide.errors import GigaslideError
from gigaslide.files import atomic_path
from gigaslide.viewer.corrected import Outlines

_TISSUE_RGB, _IGNORE_RGB = (0, 158, 115), (90, 98, 112)


def _feature(polygon: shapely.Polygon, name: str, rgb: tuple[int, int, int], offset: tuple[int, int]) -> dict[str, Any]:
    if offset != (0, 0):
        polygon = shapely.transform(polygon, lambda corners: corners + offset)
    return {
        "type": "Feature",
        "geometry": shapely.geometry.mapping(polygon),
        "properties": {"objectType": "annotation", "classification": {"name": name, "color": list(rgb)}},
    }


def _class_name(names: list[str | int], otherwise: str) -> str:
    return next((name for name in names if isinstance(name, str)), otherwise)


def write_corrected(path: Path, outlines: Outlines, labels: Labels, origin_yx_px: tuple[int, int] = (0, 0)) -> None:
    """Write the polygons to `path` atomically, feature by feature, with the class names of `labels`.

    `origin_yx_px` of level 0 becomes 0, 0, as QuPath has it on slides with borders, see slides/bounds.py.
    Corners are written in full: a pixel's centre lies on the same side of an outline as it was shown.

    Raises:
        GigaslideError: there are areas to ignore and no tissue, which annotations cannot say.
    """
    if outlines.ignore and not outlines.tissue:
        raise GigaslideError(
            "an annotation with areas to ignore should have tissue, too; none is left: erase the ignored areas (a "
            "slide without tissue is an annotation without any area), or leave a piece of tissue"
        )
    tissue_name = _class_name(labels.tissue_classes, "Tissue")
    ignore_name = _class_name(labels.ignore_classes, "Ignore")
    features = [(polygon, tissue_name, _TISSUE_RGB) for polygon in outlines.tissue]
    features += [(polygon, ignore_name, _IGNORE_RGB) for polygon in outlines.ignore]
    offset = -origin_yx_px[1], -origin_yx_px[0]
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write('{"type":"FeatureCollection","features":[\n')
        for number, feature in enumerate(features):
            file.write((",\n" if number else "") + json.dumps(_feature(*feature, offset), separators=(",", ":")))
        file.write("\n]}\n")
        file.flush()
        os.fsync(file.fileno())
