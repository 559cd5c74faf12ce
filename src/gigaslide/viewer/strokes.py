"""What the person draws: strokes of a brush, and polygons.

A stroke gives the pixels whose centre it covers a label: tissue, glass (the eraser, a polygon that is cut out) or
invalid (areas to ignore). Later strokes lie over earlier ones. Corners are (x, y) in pixels of level 0.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import shapely

from gigaslide.classes import GLASS, INVALID, TISSUE
from gigaslide.errors import UsageError
from gigaslide.slides.drawing import polygonal

LABELS = {"tissue": TISSUE, "glass": GLASS, "ignore": INVALID}
_KINDS = {"brush": 1, "polygon": 3}  # and how many points each needs
_MOST_POINTS = 100_000
# A quarter of a circle in 16 chords: they leave 0.5 % of the radius out at most.
_QUARTER_CHORDS = 16


@dataclass(frozen=True, eq=False)
class Stroke:
    """A brush of `radius_px` along `points`, or the polygon with those corners (then the radius is 0)."""

    kind: str
    label: str
    points: tuple[tuple[float, float], ...]
    radius_px: float = 0.0

    @cached_property
    def area(self) -> shapely.Geometry:
        """The area it covers: valid, a polygon or several."""
        if self.kind == "brush":
            path = shapely.Point(self.points[0]) if len(set(self.points)) == 1 else shapely.LineString(self.points)
            return path.buffer(self.radius_px, quad_segs=_QUARTER_CHORDS)
        # A line that crosses itself encloses what lies on either side: the person sees one filled shape.
        drawn = shapely.make_valid(shapely.Polygon(self.points))
        return shapely.union_all(list(polygonal(drawn)))

    @property
    def polygons(self) -> list[shapely.Polygon]:
        """The parts of the area."""
        return list(polygonal(self.area))

    def as_json(self) -> dict[str, Any]:
        """Return what `parse_stroke` reads."""
        points = [list(point) for point in self.points]
        return {"kind": self.kind, "label": self.label, "points": points, "radius_px": self.radius_px}


def _number(value: Any, limit: float) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= limit else None  # neither NaN nor infinity is


def _points(value: Any, limit: float) -> tuple[tuple[float, float], ...] | None:
    if not isinstance(value, list) or not 1 <= len(value) <= _MOST_POINTS:
        return None
    found = []
    for point in value:
        if not isinstance(point, list) or len(point) != 2:
            return None
        x, y = _number(point[0], limit), _number(point[1], limit)
        if x is None or y is None:
            return None
        found.append((x, y))
    return tuple(found)


def parse_stroke(value: Any, level0_shape: tuple[int, int]) -> Stroke:
    """Return the stroke that a JSON value says.

    Raises:
        UsageError: it is none, or lies farther from the slide than its own size.
    """
    limit = 2.0 * max(level0_shape)
    if isinstance(value, dict):
        kind, label = value.get("kind"), value.get("label")
        points, radius_px = _points(value.get("points"), limit), _number(value.get("radius_px", 0.0), limit)
        is_brush = kind == "brush"
        if (
            isinstance(kind, str)
            and isinstance(label, str)
            and kind in _KINDS
            and label in LABELS
            and points is not None
            and radius_px is not None
            and len(points) >= _KINDS[kind]
            and (radius_px > 0) == is_brush
        ):
            return Stroke(kind, label, points, radius_px)
    raise UsageError(
        f"a stroke should have kind ({', '.join(_KINDS)}), label ({', '.join(LABELS)}), points (at most "
        f"{_MOST_POINTS} pairs x, y within {limit:g} px of level 0) and for a brush its radius_px above 0; received "
        "another"
    )
