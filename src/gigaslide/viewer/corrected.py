"""The corrected mask: as pixels of any window while it is drawn, and as polygons when it is saved.

Both say the same of each pixel: the last stroke that covers its centre decides, and where there is none the mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import shapely

from gigaslide.classes import GLASS, INVALID, TISSUE
from gigaslide.geometry import Window
from gigaslide.slides.arrays import Bytes
from gigaslide.slides.drawing import polygonal
from gigaslide.slides.rasterise import PolygonRaster
from gigaslide.viewer.strokes import LABELS, Stroke

_STROKES_TOGETHER = 32


@dataclass(frozen=True)
class Outlines:
    """Polygons of the mask, (x, y) in pixels of level 0: tissue, and what is to be ignored."""

    tissue: tuple[shapely.Polygon, ...]
    ignore: tuple[shapely.Polygon, ...]


@lru_cache(maxsize=256)
def _raster(strokes: tuple[Stroke, ...]) -> tuple[PolygonRaster, list[int]]:
    """Index some strokes, whose identity is the key: those drawn before the last few are indexed once."""
    parts = [(polygon, LABELS[stroke.label]) for stroke in strokes for polygon in stroke.polygons]
    return PolygonRaster([polygon for polygon, _ in parts]), [label for _, label in parts]


def paint(
    tissue: Bytes, invalid: Bytes, strokes: Sequence[Stroke], window: Window, scale: tuple[float, float]
) -> tuple[Bytes, Bytes]:
    """Return the planes, uint8 (y, x) of 0 to 255, of a window of the grid `scale` times level 0, with the strokes."""
    unpainted = 2  # none of the labels
    canvas = np.full(window.shape, unpainted, np.uint8)
    for start in range(0, len(strokes), _STROKES_TOGETHER):
        raster, labels = _raster(tuple(strokes[start : start + _STROKES_TOGETHER]))
        raster.at_scale(scale).paint(canvas, window, labels)
    painted = canvas != unpainted
    return (
        np.where(painted, np.where(canvas == TISSUE, 255, 0), tissue).astype(np.uint8),
        np.where(painted, np.where(canvas == INVALID, 255, 0), invalid).astype(np.uint8),
    )


def _layers(strokes: Sequence[Stroke]) -> dict[int, shapely.Geometry]:
    """Return the area that ends with each label; these do not overlap."""
    areas: dict[int, list[shapely.Geometry]] = {label: [] for label in LABELS.values()}
    # From the last to the first: what is covered already stays. Alike neighbours are joined first, to be quick.
    covered: shapely.Geometry = shapely.MultiPolygon()
    groups: list[tuple[int, list[shapely.Geometry]]] = []
    for stroke in reversed(strokes):
        label = LABELS[stroke.label]
        if not groups or groups[-1][0] != label:
            groups.append((label, []))
        groups[-1][1].append(stroke.area)
    for label, found in groups:
        area = shapely.union_all(found)
        areas[label].append(shapely.difference(area, covered))
        covered = shapely.union(covered, area)
    return {label: shapely.union_all(found) for label, found in areas.items()}


def _without(polygons: Sequence[shapely.Polygon], area: shapely.Geometry) -> list[shapely.Polygon]:
    """Cut an area out of polygons; those that it does not meet are left as they are."""
    if shapely.is_empty(area) or not polygons:
        return list(polygons)
    met = set(shapely.STRtree(polygons).query(area, predicate="intersects").tolist())
    kept = []
    for number, polygon in enumerate(polygons):
        kept += list(polygonal(shapely.difference(polygon, area))) if number in met else [polygon]
    return kept


def _with(polygons: Sequence[shapely.Polygon], area: shapely.Geometry) -> list[shapely.Polygon]:
    """Join an area with the polygons that it meets."""
    if shapely.is_empty(area):
        return list(polygons)
    met = set(shapely.STRtree(polygons).query(area, predicate="intersects").tolist()) if polygons else set()
    joined = shapely.union_all([area, *(polygons[number] for number in met)])
    return [*(polygon for number, polygon in enumerate(polygons) if number not in met), *polygonal(joined)]


def correct(mask: Outlines, strokes: Sequence[Stroke], level0_shape: tuple[int, int]) -> Outlines:
    """Return the polygons of the mask with the strokes, clipped to the slide."""
    height, width = level0_shape
    slide = shapely.box(0, 0, width, height)
    layers = {label: shapely.intersection(area, slide) for label, area in _layers(strokes).items()}
    tissue = _with(_without(mask.tissue, layers[GLASS].union(layers[INVALID])), layers[TISSUE])
    ignore = _with(_without(mask.ignore, layers[GLASS].union(layers[TISSUE])), layers[INVALID])
    return Outlines(tuple(tissue), tuple(ignore))
