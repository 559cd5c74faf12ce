"""Outlines as GeoJSON that QuPath 0.4 and later, and `slides.geojson`, read: one annotation per piece of tissue.

The file is a FeatureCollection without `crs`, as `qupath.lib.io.GsonTools` writes it. A feature has an `id` (a UUID
made from its corners: the same piece gets the same one), `objectType`, `classification` with a name and a colour, and,
where the mpp is known, its area as a measurement: that of its pixels, before simplification. A polygon's first ring is
its shell, the others are holes; rings are closed.

Corners are (x, y) in pixels of level 0, in the frame of pixel corners: scaled, moved and rounded before anything else,
to whole numbers where scale and offset are such and to 1/100 px otherwise. Rounding moves whole grid lines, which stay
in their order, so polygons stay valid while grid lines lie over 1/100 px apart. Simplification (simplify.py) then
leaves corners out, so no outline is farther from the exact one than the tolerance and the rounding. What is written is
checked as it is written: a polygon that is not valid is written with all its corners, and if it is not valid even so,
it is made valid and its polygonal part is written.
"""

import json
import math
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import shapely
from numpy.typing import NDArray

from gigaslide.files import atomic_path
from gigaslide.masks.mask_tiff import TISSUE_RGB
from gigaslide.masks.outlines import Outlines, polygons_of
from gigaslide.masks.simplify import corners_kept

DEFAULT_TOLERANCE_UM = 1.0
_DEFAULT_TOLERANCE_PX = 2.0  # that at 0.5 um per px, the usual level 0
_DECIMALS = 2
_CORNERS_AT_ONCE = 100_000
_IDS = uuid.UUID("6f1c6c56-9b0b-5a0e-8f0e-2a4c9d1f7b3e")
_AREA_UM2 = "Area µm^2"


@dataclass(frozen=True)
class Written:
    """What is in a GeoJSON file: features, corners, and the area of the polygons in px of level 0."""

    features: int
    corners: int
    area_px: float


def tolerance_px(tolerance_um: float, mpp_um_per_px: tuple[float, float] | None) -> float:
    """Return a tolerance in px of level 0, along the axis where it is fewer; without mpp, as at 0.5 um per px."""
    if mpp_um_per_px is None:
        return tolerance_um / DEFAULT_TOLERANCE_UM * _DEFAULT_TOLERANCE_PX
    return tolerance_um / max(mpp_um_per_px)


def _polygonal(geometry: Any) -> Any:
    """Return a valid Polygon or MultiPolygon, corners rounded; it may be empty."""
    valid = shapely.set_precision(shapely.make_valid(geometry), 10.0**-_DECIMALS)
    parts = [part for part in shapely.get_parts(shapely.get_parts(valid)) if part.geom_type == "Polygon" and part.area]
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def _chunks(outlines: Outlines) -> Iterator[tuple[int, int]]:
    """Cut the pieces into runs of about equally many corners."""
    order, first = outlines.rings_of_pieces
    corners = np.append(0, np.cumsum(np.diff(outlines.starts)[order]))[first]
    start = 0
    while start < outlines.pieces:
        stop = int(np.searchsorted(corners, corners[start] + _CORNERS_AT_ONCE, side="right")) - 1
        yield start, max(stop, start + 1)
        start = max(stop, start + 1)


def _polygons(
    outlines: Outlines, points: NDArray[np.float64], tolerance: float, scale_yx: tuple[float, float]
) -> Iterator[Any]:
    """Yield a valid polygon for each piece; `points` are the vertices on the slide, (vertices, 2) as (x, y)."""
    kept = corners_kept(outlines, tolerance, scale_yx) if tolerance > 0 else np.ones(len(points), bool)
    fewer, starts = points[kept], np.append(0, np.cumsum(kept))[outlines.starts]
    for start, stop in _chunks(outlines):
        found = polygons_of(outlines, fewer, starts, start, stop)
        for number in np.flatnonzero(~shapely.is_valid(found)) if len(found) else ():
            found[number] = polygons_of(outlines, points, outlines.starts, start + number, start + number + 1)[0]
            if not found[number].is_valid:
                found[number] = _polygonal(found[number])
        yield from found


def _coordinates(geometry: Any, is_whole: bool) -> list[Any]:
    """Return the member `coordinates` of a Polygon or MultiPolygon."""
    if geometry.geom_type != "Polygon":
        return [_coordinates(part, is_whole) for part in shapely.get_parts(geometry)]
    points, ring = shapely.get_coordinates(shapely.get_rings(geometry), return_index=True)
    # set_precision leaves numbers that are off by their last bit.
    points = points.astype(np.int64) if is_whole else np.round(points, _DECIMALS)
    return [part.tolist() for part in np.split(points, np.flatnonzero(np.diff(ring)) + 1)]


def _feature(geometry: Any, is_whole: bool, properties: Mapping[str, Any]) -> str:
    coordinates = json.dumps(_coordinates(geometry, is_whole), separators=(",", ":"))
    identity = uuid.uuid5(_IDS, coordinates)
    said = json.dumps(properties, separators=(",", ":"), allow_nan=False)
    return (
        f'{{"type":"Feature","id":"{identity}","geometry":{{"type":"{geometry.geom_type}","coordinates":{coordinates}}},'
        f'"properties":{said}}}'
    )


def _write(file: TextIO, geometries: Iterator[tuple[Any, dict[str, Any]]], is_whole: bool) -> Written:
    features, corners, area_px = 0, 0, 0.0
    file.write('{"type":"FeatureCollection","features":[')
    for geometry, properties in geometries:
        if not geometry.is_empty:
            file.write(("," if features else "") + "\n" + _feature(geometry, is_whole, properties))
            features += 1
            corners += int(shapely.get_num_coordinates(geometry))
            area_px += geometry.area
    file.write("\n]}\n")
    return Written(features, corners, area_px)


def write_geojson(
    path: Path,
    outlines: Outlines,
    *,
    scale_yx: tuple[float, float] = (1.0, 1.0),
    offset_yx_px: tuple[float, float] = (0.0, 0.0),
    tolerance: float = 0.0,
    mpp_um_per_px: tuple[float, float] | None = None,
    class_name: str = "Tissue",
    colour: tuple[int, int, int] = TISSUE_RGB,
    properties: Mapping[str, Any] | None = None,
) -> Written:
    """Write the outlines to `path`, piece by piece and atomically; without tissue it is an empty FeatureCollection.

    Args:
        path: the file, UTF-8.
        outlines: of a mask.
        scale_yx: px of level 0 per px of the mask.
        offset_yx_px: where the mask begins, in px of level 0.
        tolerance: how far simplified outlines may be from the exact ones, in px of level 0; 0 keeps every corner.
        mpp_um_per_px: (y, x) of level 0, for the area.
        class_name: of the classification.
        colour: of the classification, RGB.
        properties: more properties of every feature.
    """
    if tolerance < 0 or min(scale_yx) <= 0:
        raise ValueError(f"tolerance is at least 0 and scale above 0; received {tolerance=}, {scale_yx=}")
    is_whole = all(float(number).is_integer() for number in (*scale_yx, *offset_yx_px))
    common: dict[str, Any] = {
        "objectType": "annotation",
        "classification": {"name": class_name, "color": list(colour)},
        "isLocked": False,
        **(properties or {}),
    }
    um2_per_px = math.prod((*scale_yx, *mpp_um_per_px)) if mpp_um_per_px else 0.0

    def geometries() -> Iterator[tuple[Any, dict[str, Any]]]:
        scaled = outlines.vertices[:, ::-1] * np.array(scale_yx[::-1]) + np.array(offset_yx_px[::-1])
        points = np.round(scaled, 0 if is_whole else _DECIMALS)
        for number, polygon in enumerate(_polygons(outlines, points, tolerance, scale_yx)):
            area_um2 = outlines.piece_areas_px[number] * um2_per_px
            yield polygon, common | ({"measurements": {_AREA_UM2: round(float(area_um2), 3)}} if um2_per_px else {})

    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        return _write(file, geometries(), is_whole)
