"""What the readers of annotation formats have in common: one drawn object, its classes, its polygons.

Corners are (x, y) in pixels of level 0, in the frame of pixel corners: the first pixel covers 0 to 1. Polygons
that are not valid (rings that cross or touch) are made valid, and their polygonal part is kept.
"""

import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely

from gigaslide.slides.arrays import Doubles

# No slide is larger; beyond it, pixel numbers would leave the whole numbers they are computed in.
FARTHEST_PX = 1e9
# Nearer to 0 is 0: products of such numbers vanish, and GEOS would divide by them.
_SMALLEST_PX = 1e-9
# What stands in a message of a name or value that somebody wrote into a file.
_LONGEST_NAME = 80
# How far an ellipse and the polygon that stands for it are apart at most.
_ELLIPSE_ERROR_PX = 0.01
# Enough for that up to a radius of 34 000 px; without a bound, a short file could ask for any amount of corners.
_MOST_ELLIPSE_CORNERS = 4096


class MalformedError(Exception):
    """Something in an annotation file cannot be used; the text says where, what was expected and what was found."""


@dataclass(frozen=True)
class Drawing:
    """One drawn object.

    `classes`: the names it may be known by, the most particular first. `polygons`: valid, corners (x, y) in
    pixels of level 0. `left_out`: what kind of thing without an area it is, else None.
    """

    classes: tuple[str, ...]
    polygons: tuple[shapely.Polygon, ...] = ()
    left_out: str | None = None


def shown(value: object) -> str:
    """Return a value from a file as a short text of one line that every terminal can print."""
    # A list as long as an outline is not written out for the sake of its beginning.
    text = value[: 4 * _LONGEST_NAME] if isinstance(value, str) else reprlib.repr(value)
    text = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 3] + "..."


def ring(corners: Any) -> Doubles:
    """Return a closed ring, float64 (corner, 2) as x, y, from corners as a list of (x, y, ...).

    Raises:
        MalformedError: a corner is not two finite numbers, or lies outside every slide.
    """
    try:
        closed = np.array([corner[:2] for corner in corners], dtype=np.float64).reshape(len(corners), 2)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError):
        raise MalformedError(f"expected corners of two numbers each, x and y; found {shown(corners)}") from None
    outside = ~(np.abs(closed) <= FARTHEST_PX).all(axis=1)
    if outside.any():
        raise MalformedError(
            f"expected finite corners in pixels of level 0, within {FARTHEST_PX:.0e}; "
            f"found {shown(tuple(closed[outside][0].tolist()))}"
        )
    closed[np.abs(closed) < _SMALLEST_PX] = 0
    if len(closed) and (closed[0] != closed[-1]).any():
        closed = np.vstack([closed, closed[:1]])  # some writers leave rings open
    return closed


def polygonal(geometry: shapely.Geometry) -> Iterator[shapely.Polygon]:
    """Yield the polygons in any geometry; what is left of points and lines has no area."""
    for part in shapely.get_parts(shapely.get_parts(geometry)):
        if isinstance(part, shapely.Polygon):
            if not part.is_empty:
                yield part
        elif part.geom_type in ("MultiPolygon", "GeometryCollection"):
            yield from polygonal(part)


def polygons(outer: Any, holes: Sequence[Any] = ()) -> tuple[shapely.Polygon, ...]:
    """Return the valid polygons inside a ring and outside its holes; none if the ring has under three corners.

    Raises:
        MalformedError: see `ring`.
    """
    closed = ring(outer)
    inner = [hole for hole in map(ring, holes) if len(hole) >= 4]
    if len(closed) < 4:
        return ()
    try:
        drawn = shapely.Polygon(closed, inner)
        return tuple(polygonal(drawn if drawn.is_valid else shapely.make_valid(drawn)))
    except shapely.errors.ShapelyError as error:
        raise MalformedError(f"expected an outline that can be made valid; found {shown(str(error))}") from None


def box(corners: Any) -> tuple[shapely.Polygon, ...]:
    """Return the upright rectangle around some corners; none if it has no area."""
    low, high = ring(corners).min(axis=0), ring(corners).max(axis=0)
    return polygons([low, (high[0], low[1]), high, (low[0], high[1])]) if (low < high).all() else ()


def ellipse(corners: Any) -> tuple[shapely.Polygon, ...]:
    """Return the upright ellipse that touches the sides of the rectangle around some corners; none without area."""
    low, high = ring(corners).min(axis=0), ring(corners).max(axis=0)
    centre, radius = (low + high) / 2, (high - low) / 2
    if not (radius > 0).all():
        return ()
    # The middle of a chord of angle 2 a is r (1 - cos a), about r a^2 / 2, inside of the circle.
    count = int(np.ceil(np.pi / np.sqrt(2 * _ELLIPSE_ERROR_PX / radius.max())))
    count = min(max(count, 16), _MOST_ELLIPSE_CORNERS)
    angle = 2 * np.pi * np.arange(count) / count
    return polygons(centre + radius * np.stack([np.cos(angle), np.sin(angle)], axis=1))
