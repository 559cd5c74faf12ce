"""The polygons a correction starts from: those of a drawn annotation, or the traced outlines of a mask image."""

from pathlib import Path

import numpy as np
import shapely

from gigaslide.classes import INVALID, TISSUE
from gigaslide.config import Labels
from gigaslide.slides.annotations import Annotation
from gigaslide.slides.drawing import polygonal
from gigaslide.slides.labels import LabelSource, MaskLabels, read_drawn
from gigaslide.slides.reader import SlideReader
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
    # Numba, which traces, takes a second to load: the page does not wait for it.
    from gigaslide.masks.outlines import OutlineTracer

    y, x = source.image.level0_px_per_px
    # One division, rounded once: a corner that lies on the centre of a pixel lies there exactly.
    times, by = (x.numerator, y.numerator), (x.denominator, y.denominator)
    tracers: dict[int, OutlineTracer] = {}
    found = []
    for rows in source.rows():
        for label in (TISSUE, INVALID):
            if label not in tracers:
                tracers[label] = OutlineTracer(rows.shape[1])
            tracers[label].add_rows(rows == label)
    for label in (TISSUE, INVALID):
        polygons = tuple(tracers[label].finish().polygons())
        if (y != 1 or x != 1) and polygons:
            polygons = tuple(shapely.transform(np.array(polygons, object), lambda corners: corners * times / by))
        found.append(polygons)
    return Outlines(*found)


def starting_outlines(path: Path | None, source: LabelSource | None, reader: SlideReader, labels: Labels) -> Outlines:
    """Return the polygons of the mask at `path`, opened as `source`; none without a mask.

    Raises:
        SlideError: the file cannot be read.
        GigaslideError: a mask image has more corners than can be numbered.
    """
    if path is None or source is None:
        return Outlines((), ())
    if isinstance(source, MaskLabels):
        return _traced(source)
    return _drawn(read_drawn(path, reader, labels), reader.level0_shape)
