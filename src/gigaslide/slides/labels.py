"""Labels of a slide, from a GeoJSON annotation, a mask image, or the classical method.

Every source gives, for a window of the reader's grid, 0 glass, 1 tissue, 255 invalid (in no loss, no metric).
"""

import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from gigaslide.classes import INVALID
from gigaslide.config import Labels
from gigaslide.errors import GigaslideWarning, SlideError
from gigaslide.geometry import Window
from gigaslide.slides.annotations import read_annotation
from gigaslide.slides.arrays import Bytes, Flags
from gigaslide.slides.auto import OVERVIEW_DOWN_SCALE, OVERVIEW_UM_PER_PX, auto_mask
from gigaslide.slides.mask_image import MaskImage
from gigaslide.slides.rasterise import PolygonRaster
from gigaslide.slides.reader import SlideReader

GEOJSON_SUFFIXES = (".geojson", ".json")
MASK_SUFFIXES = (".tif", ".tiff", ".png")
# The overview of the classical method: about 1.5 GB of working memory at this size.
_AUTO_OVERVIEW_PX = 16_000_000


class LabelSource(Protocol):
    """Where labels come from; on a grid of the slide as its reader sees it."""

    @property
    def kind(self) -> str:
        """One of geojson, mask, auto."""

    def read(self, window: Window) -> Bytes:
        """Return uint8 (y, x), 0 glass, 1 tissue, 255 invalid, of a window inside the grid."""

    def at_shape(self, shape: tuple[int, int]) -> "LabelSource":
        """Return the same labels on a grid of `shape` (y, x)."""


@dataclass(frozen=True)
class GeoJsonLabels:
    """Tissue is what the tissue polygons cover and no ignore polygon does."""

    level0_shape: tuple[int, int]
    tissue: PolygonRaster
    ignore: PolygonRaster
    kind: str = "geojson"

    def read(self, window: Window) -> Bytes:
        """Return uint8 (y, x), see `LabelSource`."""
        labels = self.tissue.read(window).astype(np.uint8)
        labels[self.ignore.read(window)] = INVALID
        return labels

    def at_shape(self, shape: tuple[int, int]) -> "GeoJsonLabels":
        """Return the same labels on a grid of `shape` (y, x)."""
        scale = shape[0] / self.level0_shape[0], shape[1] / self.level0_shape[1]
        return replace(
            self,
            tissue=PolygonRaster(self.tissue.polygons, scale),
            ignore=PolygonRaster(self.ignore.polygons, scale),
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
        values = self.image.read(window)
        labels = np.isin(values, self.tissue_values).astype(np.uint8)
        labels[np.isin(values, self.invalid_values)] = INVALID
        return labels

    def at_shape(self, shape: tuple[int, int]) -> "MaskLabels":
        """Return the same labels on a grid of `shape` (y, x)."""
        return replace(self, image=replace(self.image, shape=shape))


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
    found: set[int] = set()
    image.down_scale  # noqa: B018  # a wrong size is said before the whole mask is scanned
    for values in image.scan():
        found.update(np.unique(values).tolist())
    tissue = tuple(value for value in labels.tissue_classes if isinstance(value, int))
    ignore = tuple(value for value in labels.ignore_classes if isinstance(value, int))
    if not tissue:
        invalid = {INVALID} if found - {0, INVALID} else set()
        return MaskLabels(image, tuple(sorted(found - {0} - invalid - set(ignore))), (*ignore, *invalid))
    unknown = sorted(found - {0, *tissue, *ignore})
    if unknown:
        warnings.warn(
            f"the mask {image.path.name} has values that are neither in labels.tissue_classes nor in "
            f"labels.ignore_classes, taken as glass: {', '.join(map(str, unknown))}",
            GigaslideWarning,
            stacklevel=3,
        )
    return MaskLabels(image, tissue, ignore)


def open_labels(reader: SlideReader, annotation: Path | None, labels: Labels) -> LabelSource:
    """Open the labels of a slide on the reader's grid.

    Names in `labels.tissue_classes` and `labels.ignore_classes` apply to GeoJSON, whole numbers to mask
    images. For a mask without numbers there: 0 is glass; 255 is invalid if other values than 0 and 255
    occur; all else is tissue.

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
    if suffix in GEOJSON_SUFFIXES:
        shapes = read_annotation(annotation, labels.tissue_classes, labels.ignore_classes)
        whole = GeoJsonLabels(reader.level0_shape, PolygonRaster(shapes.tissue), PolygonRaster(shapes.ignore))
        return whole if reader.shape == reader.level0_shape else whole.at_shape(reader.shape)
    if suffix in MASK_SUFFIXES:
        return _mask_labels(MaskImage(annotation, reader.level0_shape, reader.shape), labels)
    known = ", ".join((*GEOJSON_SUFFIXES, *MASK_SUFFIXES))
    raise SlideError(f"the annotation {annotation} should end in one of {known}")
