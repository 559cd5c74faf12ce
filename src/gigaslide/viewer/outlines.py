"""The polygons a correction starts from: those of a drawn annotation, or the traced outlines of a mask image."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import shapely

from gigaslide.classes import INVALID, TISSUE
from gigaslide.config import Labels
from gigaslide.slides.annotations import Annotation, read_annotation
from gigaslide.slides.drawing import polygonal
from gigaslide.slides.labels import LabelSource, MaskLabels
from gigaslide.viewer.corrected import Outlines


def _resolved(annotation: Annotation) -> list[shapely.Polygon]:
    """Return the tissue with the glass cut out: where both overlap the smaller decides, as in `PolygonLabels`."""
    if not annotation.glass:
        return list(annotation.tissue)
    tree = shapely.STRtree(annotation.glass)
    found: list[shapely.Polygon] = []
    for tissue in annotation.tissue:
        holes = [annotation.glass[number] for number in tree.query(tissue).tolist()]
        cut = shapely.union_all([hole for hole in holes if hole.area <= tissue.area])
        found += polygonal(shapely.difference(tissue, cut))
    return found


def _drawn(annotation: Annotation, level0_shape: tuple[int, int]) -> Outlines:
    ignore = list(annotation.ignore)
    if annotation.regions:
        height, width = level0_shape
        outside = shapely.difference(shapely.box(0, 0, width, height), shapely.union_all(annotation.regions))
        ignore += polygonal(outside)
    return Outlines(tuple(_resolved(annotation)), tuple(ignore))


def _traced(source: MaskLabels) -> Outlines:
    """Trace the mask's own pixels: a polygon follows their edges."""
    scale = source.image.down_scale
    tissue: list[shapely.Geometry] = []
    ignore: list[shapely.Geometry] = []
    row = 0
    for rows in source.rows():
        for label, found in ((TISSUE, tissue), (INVALID, ignore)):
            flags = np.zeros((rows.shape[0], rows.shape[1] + 2), np.int8)
            flags[:, 1:-1] = rows == label
            steps = np.diff(flags, axis=1)
            (y, left), (_, right) = np.nonzero(steps == 1), np.nonzero(steps == -1)
            found.append(shapely.union_all(shapely.box(left, y + row, right, y + row + 1)))
        row += rows.shape[0]
    return Outlines(*(tuple(_scaled(found, scale)) for found in (tissue, ignore)))


def _scaled(found: list[shapely.Geometry], scale: int) -> Iterator[shapely.Polygon]:
    for polygon in polygonal(shapely.union_all(found)):
        yield shapely.transform(polygon, lambda corners: corners * scale)


def starting_outlines(
    path: Path | None, source: LabelSource | None, labels: Labels, level0_shape: tuple[int, int]
) -> Outlines:
    """Return the polygons of the mask at `path`, opened as `source`; none without a mask.

    Raises:
        SlideError: the file cannot be read.
    """
    if path is None or source is None:
        return Outlines((), ())
    if isinstance(source, MaskLabels):
        return _traced(source)
    return _drawn(read_annotation(path, labels), level0_shape)
