"""Labels of a slide, from drawn polygons, a mask image, or the classical method.

Every source gives, for a window of the reader's grid, 0 glass, 1 tissue, 255 invalid (in no loss, no metric).
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import shapely

from gigaslide.classes import GLASS, INVALID, TISSUE
from gigaslide.config import Labels
from gigaslide.errors import GigaslideWarning, SlideError
from gigaslide.geometry import Window
from gigaslide.slides.annotations import GEOJSON_SUFFIXES, XML_SUFFIXES, Annotation, read_annotation
from gigaslide.slides.arrays import Bytes, Flags
from gigaslide.slides.auto import OVERVIEW_DOWN_SCALE, OVERVIEW_UM_PER_PX, auto_mask
from gigaslide.slides.mask_image import PREDICTED, MaskImage, Values
from gigaslide.slides.rasterise import PolygonRaster
from gigaslide.slides.reader import SlideReader

MASK_SUFFIXES = (".tif", ".tiff", ".png")
ANNOTATION_SUFFIXES = (*GEOJSON_SUFFIXES, *XML_SUFFIXES, *MASK_SUFFIXES)
_FEW_VALUES = 8
# The overview of the classical method: about 1.5 GB of working memory at this size.
_AUTO_OVERVIEW_PX = 16_000_000


class LabelSource(Protocol):
    """Where labels come from; on a grid of the slide as its reader sees it."""

    @property
    def kind(self) -> str:
        """One of geojson, asap, imagescope, mask, auto."""

    def read(self, window: Window) -> Bytes:
        """Return uint8 (y, x), 0 glass, 1 tissue, 255 invalid, of a window inside the grid."""

    def at_shape(self, shape: tuple[int, int]) -> "LabelSource":
        """Return the same labels on a grid of `shape` (y, x)."""


@dataclass(frozen=True)
class PolygonLabels:
    """Tissue and glass as drawn; invalid where an ignore polygon is, or no region is where there are any.

    Where tissue and glass overlap, the smaller polygon decides: a hole drawn into tissue is glass, an island drawn
    into that is tissue again, and tissue within an outline of the whole background stays tissue.
    """

    level0_shape: tuple[int, int]
    kind: str
    drawn: PolygonRaster
    drawn_labels: tuple[int, ...]
    ignore: PolygonRaster
    regions: PolygonRaster | None

    @classmethod
    def of(cls, annotation: Annotation, level0_shape: tuple[int, int]) -> "PolygonLabels":
        """Index the polygons of an annotation, on the grid of level 0."""
        drawn = [(polygon, TISSUE) for polygon in annotation.tissue]
        drawn += [(polygon, GLASS) for polygon in annotation.glass]
        drawn.sort(key=lambda item: -item[0].area)  # painted one over the other; of equal size, glass last
        return cls(
            level0_shape,
            annotation.kind,
            PolygonRaster([polygon for polygon, _ in drawn]),
            tuple(label for _, label in drawn),
            PolygonRaster(annotation.ignore),
            PolygonRaster(annotation.regions) if annotation.regions else None,
        )

    def read(self, window: Window) -> Bytes:
        """Return uint8 (y, x), see `LabelSource`."""
        labels = np.full(window.shape, GLASS, np.uint8)
        self.drawn.paint(labels, window, self.drawn_labels)
        labels[self.ignore.read(window)] = INVALID
        if self.regions is not None:
            labels[~self.regions.read(window)] = INVALID
        return labels

    def at_shape(self, shape: tuple[int, int]) -> "PolygonLabels":
        """Return the same labels on a grid of `shape` (y, x)."""
        scale = shape[0] / self.level0_shape[0], shape[1] / self.level0_shape[1]
        return replace(
            self,
            drawn=self.drawn.at_scale(scale),
            ignore=self.ignore.at_scale(scale),
            regions=None if self.regions is None else self.regions.at_scale(scale),
        )


@dataclass(frozen=True)
class MaskLabels:
    """Values of a mask image that are tissue, and those that are invalid; all others are glass."""

    image: MaskImage
    tissue_values: tuple[int, ...]
    invalid_values: tuple[int, ...]
    kind: str = "mask"

    def read(self, window: Window) -> Bytes:
        """Return uint8 (y, x), see `LabelSource`."""
        return self._labels(self.image.read(window))

    def rows(self) -> Iterator[Bytes]:
        """Yield the labels of the mask's own pixels from top to bottom, some whole rows at a time, uint8 (y, x)."""
        return map(self._labels, self.image.rows())

    def _labels(self, values: Values) -> Bytes:
        if len(self.tissue_values) + len(self.invalid_values) > _FEW_VALUES:
            labels = np.isin(values, self.tissue_values).astype(np.uint8)
            labels[np.isin(values, self.invalid_values)] = INVALID
            return labels
        # Ten times as fast as a table; and most windows have few of the values, which costs less to see than to look
        # for each.
        highest = values.max(initial=0)
        tissue, invalid = (
            [np.equal(values, value) for value in wanted if value <= highest]
            for wanted in (self.tissue_values, self.invalid_values)
        )
        if not tissue:
            tissue = [np.zeros(values.shape, bool)]
        for more in tissue[1:]:
            tissue[0] |= more
        labels = tissue[0].view(np.uint8)
        for where in invalid:
            if where.any():
                labels[where] = INVALID
        return labels

    def at_shape(self, shape: tuple[int, int]) -> "MaskLabels":
        """Return the same labels on a grid of `shape` (y, x)."""
        return replace(self, image=self.image.at_shape(shape))


@dataclass(frozen=True)
class OverviewLabels:
    """A small mask of the whole slide, read by nearest neighbour."""

    overview: Flags
    shape: tuple[int, int]
    kind: str = "auto"

    def read(self, window: Window) -> Bytes:
        """Return uint8 (y, x), see `LabelSource`."""
        rows, columns = (
            (2 * np.arange(pixels.start, pixels.stop) + 1) * small // (2 * full)
            for pixels, small, full in zip((window.y, window.x), self.overview.shape, self.shape, strict=True)
        )
        return self.overview[np.ix_(rows, columns)].astype(np.uint8)

    def at_shape(self, shape: tuple[int, int]) -> "OverviewLabels":
        """Return the same labels on a grid of `shape` (y, x)."""
        return replace(self, shape=shape)


def _auto_labels(reader: SlideReader) -> OverviewLabels:
    mpp = reader.resolution.mpp_um_per_px
    down_scale = OVERVIEW_DOWN_SCALE if mpp is None else max(1.0, OVERVIEW_UM_PER_PX / max(mpp))
    height, width = (max(1, round(size / down_scale)) for size in reader.level0_shape)
    small = reader.at_shape((height, width)).at_most(_AUTO_OVERVIEW_PX)
    rgb, valid = small.read(Window.of(0, 0, *small.shape))
    overview_mpp = None if small.mpp_um_per_px is None else math.sqrt(math.prod(small.mpp_um_per_px))
    return OverviewLabels(auto_mask(rgb, overview_mpp) & valid, reader.shape)


def _mask_labels(image: MaskImage, labels: Labels) -> MaskLabels:
    image.level0_px_per_px  # noqa: B018  # a wrong size is said before the whole mask is scanned
    if image.description.startswith(PREDICTED):
        # It says what its values mean: 255 is invalid also where there is no tissue.
        return MaskLabels(image, (TISSUE,), (INVALID,))
    found = image.values()
    tissue = tuple(value for value in labels.tissue_classes if isinstance(value, int))
    ignore = tuple(value for value in labels.ignore_classes if isinstance(value, int))
    glass = {value for value in labels.glass_classes if isinstance(value, int)} | {0}
    if not tissue:
        invalid = {INVALID} - glass if found - {0, INVALID} else set()
        return MaskLabels(image, tuple(sorted(found - glass - invalid - set(ignore))), (*ignore, *invalid))
    unknown = sorted(found - {*glass, *tissue, *ignore})
    if unknown:
        warnings.warn(
            f"the mask {image.path.name} has values that are in none of labels.tissue_classes, labels.glass_classes "
            f"and labels.ignore_classes, taken as glass: {', '.join(map(str, unknown))}",
            GigaslideWarning,
            stacklevel=3,
        )
    return MaskLabels(image, tissue, ignore)


def _refuse_another_slide(path: Path, annotation: Annotation, level0_shape: tuple[int, int]) -> None:
    """Polygons that all lie beyond the slide would say, silently, that it has no tissue."""
    drawn = np.array([*annotation.tissue, *annotation.regions], dtype=object)
    left, top, right, bottom = shapely.bounds(drawn).reshape(-1, 4).T
    height, width = level0_shape
    if len(drawn) and not ((left < width) & (right > 0) & (top < height) & (bottom > 0)).any():
        raise SlideError(
            f"the annotation {path} should lie on the slide, {height} x {width} px (height x width); all that it "
            f"has lies at rows {top.min():.0f} to {bottom.max():.0f}, columns {left.min():.0f} to {right.max():.0f}: "
            "is it of another slide?"
        )


def geojson_origin_yx_px(reader: SlideReader, labels: Labels) -> tuple[int, int]:
    """Return where at level 0 the corner 0, 0 of a GeoJSON lies."""
    return reader.bounds_origin_yx_px if labels.geojson_origin == "bounds" else (0, 0)


def read_drawn(path: Path, reader: SlideReader, labels: Labels) -> Annotation:
    """Read the polygons of a drawn annotation, in pixels of the slide's level 0.

    Raises:
        SlideError: the file cannot be used, or is of another slide.
    """
    annotation = read_annotation(path, labels)
    if annotation.kind == "geojson":
        annotation = annotation.shifted(geojson_origin_yx_px(reader, labels))
    _refuse_another_slide(path, annotation, reader.level0_shape)
    return annotation


def _polygon_labels(path: Path, reader: SlideReader, labels: Labels) -> PolygonLabels:
    annotation = read_drawn(path, reader, labels)
    whole = PolygonLabels.of(annotation, reader.level0_shape)
    return whole if reader.shape == reader.level0_shape else whole.at_shape(reader.shape)


def open_labels(reader: SlideReader, annotation: Path | None, labels: Labels) -> LabelSource:
    """Open the labels of a slide on the reader's grid.

    Names in `labels` apply to drawn annotations (see `PolygonLabels`), whole numbers to mask images. For a
    mask without numbers in `labels.tissue_classes`: 0 is glass; 255 is invalid if other values than 0 and 255
    occur; all else that is in none of the other lists is tissue. A mask that gigaslide predicted says itself that 1 is
    tissue and 255 invalid.

    Raises:
        SlideError: the annotation cannot be used, or there is none and `labels.without_annotation` is
        "error".

    Warns:
        GigaslideWarning: parts of the annotation were left out.
    """
    if annotation is None:
        if labels.without_annotation == "auto":
            return _auto_labels(reader)
        raise SlideError(
            f"{reader.path} has no annotation in the cohort table; name one there, or set "
            "labels.without_annotation to auto"
        )
    suffix = annotation.suffix.lower()
    if suffix in (*GEOJSON_SUFFIXES, *XML_SUFFIXES):
        return _polygon_labels(annotation, reader, labels)
    if suffix in MASK_SUFFIXES:
        return _mask_labels(MaskImage(annotation, reader.level0_shape, reader.shape), labels)
    raise SlideError(f"the annotation {annotation} should end in one of {', '.join(ANNOTATION_SUFFIXES)}")
