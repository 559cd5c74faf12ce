"""GeoJSON annotations, in the dialects QuPath and its relatives write.

Read are a FeatureCollection, one Feature, a bare list of features and a bare geometry (RFC 7946; QuPath's
`GsonTools`). The class of a feature is `properties.classification.name` (QuPath), `classification.names` joined
by ": ", a text in `properties.classification` (older QuPath), or `properties.class`.

An ellipse of QuPath is a polygon with many corners, as QuPath writes it. Features are decoded one after the other,
so that beside the text and the polygons only one feature is held.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import shapely

from gigaslide.slides.drawing import Drawing, MalformedError, polygons, shown

_EXPECTED = "expected a FeatureCollection, a Feature or a list of features with a geometry each"
_WITHOUT_AREA = ("Point", "MultiPoint", "LineString", "MultiLineString")
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class _Text:
    """A JSON text and the place up to which it was read."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def peek(self) -> str:
        """Return the next character that is not white space, "" at the end."""
        space = _SPACE.match(self._text, self._at)
        self._at = self._at if space is None else space.end()
        return self._text[self._at : self._at + 1]

    def take(self, *expected: str) -> str:
        """Read one of the `expected` characters."""
        found = self.peek()
        if found not in expected:
            raise json.JSONDecodeError(f"Expecting one of {' '.join(expected)}", self._text, self._at)
        self._at += 1
        return found

    def value(self) -> Any:
        """Read one value of any kind."""
        self.peek()
        value, self._at = _DECODER.raw_decode(self._text, self._at)
        return value

    def items(self) -> Iterator[Any]:
        """Read a list, item by item."""
        self.take("[")
        if self.peek() == "]":
            self.take("]")
            return
        yield self.value()
        while self.take(",", "]") == ",":
            yield self.value()


def _members(text: _Text) -> Iterator[Any]:
    """Yield the features of a collection, or else the one Feature that an object is."""
    members: dict[str, Any] = {}
    text.take("{")
    separator = text.take("}") if text.peek() == "}" else ","
    while separator == ",":
        key = text.value()
        text.take(":")
        if key == "features" and text.peek() == "[":
            members[key] = None
            yield from text.items()
        else:
            members[str(key)] = text.value()
        separator = text.take(",", "}")
    if "features" in members or members.get("type") == "FeatureCollection":
        if members.get("features", 0) is not None:
            raise MalformedError(f"{_EXPECTED}; found a collection without a list of features")
        return
    yield {"geometry": members} if "coordinates" in members or "geometries" in members else members


def _features(text: _Text) -> Iterator[Any]:
    kind = text.peek()
    if kind not in ("[", "{"):
        found = text.value()
        raise MalformedError(f"{_EXPECTED}; found {shown(found)}")
    for item in text.items() if kind == "[" else _members(text):
        # Some programs write a list of collections, one per class.
        if isinstance(item, dict) and isinstance(item.get("features"), list):
            yield from item["features"]
        else:
            yield item
    if text.peek():
        raise MalformedError(f"expected nothing after the last feature; found {text.peek()!r}")


def _class_names(feature: dict[str, Any]) -> tuple[str, ...]:
    properties = feature.get("properties")
    if not isinstance(properties, dict):
        return ()
    value = properties.get("classification") or properties.get("class")
    if isinstance(value, dict):
        names = value.get("names")
        value = value.get("name") or ": ".join(map(str, names if isinstance(names, list) else []))
    return (str(value),) if value else ()


def _rings(rings: Any) -> tuple[shapely.Polygon, ...]:
    if not isinstance(rings, list) or not rings:
        raise MalformedError(f"expected a list of rings of corners; found {shown(rings)}")
    return polygons(rings[0], rings[1:])


def _polygons(geometry: Any) -> tuple[shapely.Polygon, ...] | None:
    """Return the valid polygons of a GeoJSON geometry; None when it is a point or a line."""
    if not isinstance(geometry, dict):
        raise MalformedError(f"{_EXPECTED}; found the geometry {shown(geometry)}")
    kind = geometry.get("type")
    parts = geometry.get("geometries" if kind == "GeometryCollection" else "coordinates")
    if kind == "Polygon":
        return _rings(parts)
    if kind in ("MultiPolygon", "GeometryCollection"):
        if not isinstance(parts, list):
            raise MalformedError(f"expected a list of parts in a {kind}; found {shown(parts)}")
        found = [_rings(part) if kind == "MultiPolygon" else _polygons(part) for part in parts]
        without_area = bool(found) and all(part is None for part in found)
        return None if without_area else tuple(polygon for part in found for polygon in part or ())
    if kind in _WITHOUT_AREA:
        return None
    raise MalformedError(
        f"the geometry type {shown(repr(kind))} is unknown; expected Polygon, MultiPolygon or GeometryCollection"
    )


def _drawing(feature: Any) -> Drawing:
    if not isinstance(feature, dict) or not isinstance(feature.get("geometry"), dict):
        raise MalformedError(f"{_EXPECTED}; found {shown(feature)}")
    found = _polygons(feature["geometry"])
    if found is None:
        return Drawing(_class_names(feature), left_out=str(feature["geometry"]["type"]))
    return Drawing(_class_names(feature), found)


def read_geojson(data: bytes) -> Iterator[Drawing]:
    """Yield what is drawn in a GeoJSON file, in the order of the file; the text is UTF-8, UTF-16 or UTF-32.

    Raises:
        MalformedError: this is not such GeoJSON; the text names the feature, counted from 1.
    """
    number = 0
    try:
        for number, feature in enumerate(_features(_Text(data.decode(json.detect_encoding(data)))), start=1):
            try:
                yield _drawing(feature)
            except MalformedError as error:
                raise MalformedError(f"feature {number} is malformed: {error}") from None
    except (ValueError, RecursionError) as error:
        after = f" after feature {number}" if number else ""
        raise MalformedError(f"this is no GeoJSON: {shown(str(error))}{after}") from None
