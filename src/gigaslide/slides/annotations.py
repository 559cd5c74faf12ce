"""GeoJSON annotations, in the dialects QuPath and its relatives write: classes and polygons.

Read are a FeatureCollection, one Feature, a bare list of features and a bare geometry. The class of a
feature is `properties.classification.name` (QuPath), `classification.names` joined by ": ", a text in
`properties.classification` (older QuPath), or `properties.class`. A "*" at the end of a class name,
QuPath's mark for classes it does not measure, and the case of letters play no part in comparing names.

Corners are (x, y) in pixels of level 0, the frame of pixel corners. Polygons that are not valid (rings that
cross or touch) are made valid and their polygonal part is kept.
"""

import json
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import shapely

from gigaslide.errors import GigaslideWarning, SlideError

_NO_CLASS = "(no class)"


@dataclass(frozen=True)
class Annotation:
    """The polygons of the tissue and of the areas to ignore, valid, corners (x, y) in pixels of level 0."""

    tissue: tuple[shapely.Polygon, ...]
    ignore: tuple[shapely.Polygon, ...]


def _features(document: Any) -> list[dict[str, Any]]:
    if isinstance(document, dict) and document.get("type") == "FeatureCollection":
        document = document.get("features")
    elif isinstance(document, dict) and "coordinates" in document:
        document = [{"geometry": document}]
    elif isinstance(document, dict):
        document = [document]
    if not isinstance(document, list) or not all(
        isinstance(feature, dict) and isinstance(feature.get("geometry"), dict) for feature in document
    ):
        raise ValueError("expected a FeatureCollection, a Feature or a list of features with a geometry each")
    return document


def _class_name(feature: dict[str, Any]) -> str:
    properties = feature.get("properties") or {}
    value = properties.get("classification") or properties.get("class")
    if isinstance(value, dict):
        value = value.get("name") or ": ".join(map(str, value.get("names") or []))
    return str(value) if value else _NO_CLASS


def _key(name: str | int) -> str:
    return str(name).strip().removesuffix("*").casefold()


def _ring(positions: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    corners = np.array([position[:2] for position in positions], dtype=np.float64).reshape(-1, 2)
    if not np.isfinite(corners).all():
        raise ValueError("a corner is not a finite number")
    if len(corners) and (corners[0] != corners[-1]).any():
        corners = np.vstack([corners, corners[:1]])  # some writers leave rings open
    return corners


def _polygon(rings: Any) -> shapely.Geometry:
    outer, *holes = [_ring(positions) for positions in rings]
    if len(outer) < 4:
        return shapely.Polygon()
    return shapely.make_valid(shapely.Polygon(outer, [hole for hole in holes if len(hole) >= 4]))


def _polygonal(geometry: shapely.Geometry) -> Iterator[shapely.Polygon]:
    """Yield the polygons in any geometry; what is left of points and lines has no area."""
    for part in shapely.get_parts(shapely.get_parts(geometry)):
        if isinstance(part, shapely.Polygon):
            if not part.is_empty:
                yield part
        elif part.geom_type in ("MultiPolygon", "GeometryCollection"):
            yield from _polygonal(part)


def _polygons(geometry: dict[str, Any]) -> list[shapely.Polygon] | None:
    """Return the valid polygons of a GeoJSON geometry; None when it is a point or a line."""
    kind = geometry.get("type")
    if kind == "GeometryCollection":
        parts = [_polygons(part) for part in geometry["geometries"]]
        return None if all(part is None for part in parts) else [p for part in parts for p in part or []]
    if kind == "Polygon":
        return list(_polygonal(_polygon(geometry["coordinates"])))
    if kind == "MultiPolygon":
        return [p for rings in geometry["coordinates"] for p in _polygonal(_polygon(rings))]
    if kind in ("Point", "MultiPoint", "LineString", "MultiLineString"):
        return None
    raise ValueError(f"the geometry type {kind!r} is unknown")


def _names(names: Sequence[str | int]) -> str:
    return ", ".join(map(str, names)) or "none"


def read_annotation(path: Path, tissue_classes: Sequence[str | int], ignore_classes: Sequence[str | int]) -> Annotation:
    """Read the polygons of the named classes from a GeoJSON file.

    A file without any feature says that the slide has no tissue.

    Raises:
        SlideError: the file is missing or not such GeoJSON, or has features but none of a tissue class.

    Warns:
        GigaslideWarning: features were left out: of other classes, or points and lines.
    """
    tissue_keys, ignore_keys = set(map(_key, tissue_classes)), set(map(_key, ignore_classes))
    try:
        features = _features(json.loads(path.read_text(encoding="utf-8-sig")))
    except (ValueError, OSError) as error:
        raise SlideError(f"the annotation {path} cannot be read as GeoJSON: {error}") from None
    tissue: list[shapely.Polygon] = []
    ignore: list[shapely.Polygon] = []
    found: Counter[str] = Counter()
    without_area: Counter[str] = Counter()
    for number, feature in enumerate(features, start=1):
        try:
            polygons = _polygons(feature["geometry"])
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise SlideError(f"feature {number} of the annotation {path} is malformed: {error!r}") from None
        if polygons is None:
            without_area[str(feature["geometry"]["type"])] += 1
            continue
        name = _class_name(feature)
        found[name] += 1
        if _key(name) in ignore_keys:
            ignore += polygons
        elif _key(name) in tissue_keys:
            tissue += polygons
    if features and not tissue_keys & set(map(_key, found)):
        raise SlideError(
            f"the annotation {path} has no class {_names(tissue_classes)} (labels.tissue_classes); "
            f"its classes are: {_names(sorted(found))}"
        )
    unknown = sorted(name for name in found if _key(name) not in tissue_keys | ignore_keys)
    left_out = [f"{found[name]} of class {name}" for name in unknown]
    left_out += [f"{count} {kind}(s), which have no area" for kind, count in sorted(without_area.items())]
    if left_out:
        warnings.warn(f"left out of the annotation {path.name}: {', '.join(left_out)}", GigaslideWarning, stacklevel=2)
    return Annotation(tuple(tissue), tuple(ignore))
