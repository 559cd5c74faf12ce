"""The polygons a correction starts from are the mask's pixels."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gigaslide.config import Labels
from gigaslide.geometry import Window
from gigaslide.masks.mask_tiff import write_mask as write_predicted
from gigaslide.slides.annotations import Annotation
from gigaslide.slides.labels import PolygonLabels, geojson_origin_yx_px, open_labels
from gigaslide.slides.reader import open_slide
from gigaslide.viewer.corrected import Outlines
from gigaslide.viewer.outlines import starting_outlines
from gigaslide.viewer.save import write_corrected
from tests.slides.files import write_slide
from tests.viewer.sessions import write_mask

SHAPE = (90, 130)
WHOLE = Window.of(0, 0, *SHAPE)
NAMES = Labels(
    tissue_classes=["Tissue"], glass_classes=["Hole"], ignore_classes=["Ignore"], region_classes=["Region"],
    without_annotation="error",
)  # fmt: skip


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return open_slide(write_slide(tmp_path_factory.mktemp("slides") / "slide.tif", np.zeros((*SHAPE, 3), np.uint8)))


def pixels(outlines):
    return PolygonLabels.of(Annotation("geojson", outlines.tissue, (), outlines.ignore), SHAPE).read(WHOLE)


def check(reader, path):
    source = open_labels(reader, path, NAMES)
    outlines = starting_outlines(path, source, reader, NAMES)
    assert all(polygon.is_valid for polygon in (*outlines.tissue, *outlines.ignore))
    np.testing.assert_array_equal(pixels(outlines), source.read(WHOLE))
    return outlines


@pytest.mark.parametrize("down_scale", [1, 2, 7])
def test_a_mask_image_is_traced_pixel_by_pixel(reader, tmp_path, down_scale):
    shape = tuple(-(-size // down_scale) for size in SHAPE)
    values = np.random.default_rng(1).choice([0, 1, 255], shape, p=[0.5, 0.4, 0.1]).astype(np.uint8)
    check(reader, write_mask(tmp_path / "mask.tif", values))


@pytest.mark.parametrize("shape", [(44, 63), (61, 88), (83, 120)])
def test_a_mask_predicted_at_some_mpp_is_traced_pixel_by_pixel(reader, tmp_path, shape):
    values = np.random.default_rng(2).choice([0, 1, 255], shape, p=[0.5, 0.4, 0.1]).astype(np.uint8)
    write_predicted(tmp_path / "mask.tif", [values], shape, (0.7, 0.7))
    check(reader, tmp_path / "mask.tif")


def test_a_hole_stays_a_hole(reader, tmp_path):
    values = np.zeros(SHAPE, np.uint8)
    values[10:60, 10:60] = 1
    values[20:40, 20:40] = 0
    values[25:30, 25:30] = 1
    outlines = check(reader, write_mask(tmp_path / "mask.tif", values))
    assert sorted(len(polygon.interiors) for polygon in outlines.tissue) == [0, 1]


def feature(name, left, top, right, bottom):
    ring = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
    geometry = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "geometry": geometry, "properties": {"classification": {"name": name}}}


@pytest.mark.parametrize(
    "features",
    [
        [feature("Tissue", 5, 5, 50, 50), feature("Ignore", 20, 20, 70, 30)],
        [feature("Tissue", 5, 5, 80, 80), feature("Hole", 10, 10, 60, 60), feature("Tissue", 20, 20, 30, 30)],
        [feature("Hole", 0, 0, 130, 90), feature("Tissue", 20, 20, 70, 60), feature("Hole", 60, 50, 90, 80)],
        [feature("Region", 10, 10, 100, 80), feature("Tissue", 0, 0, 50, 50), feature("Ignore", 20, 20, 30, 30)],
    ],
)
def test_drawn_annotations_say_what_training_reads(reader, tmp_path, features):
    path = tmp_path / "slide.geojson"
    path.write_text(json.dumps(features))
    check(reader, path)


def test_without_a_mask_there_is_nothing(reader):
    assert starting_outlines(None, None, reader, NAMES) == Outlines((), ())


def test_on_a_slide_with_borders_what_is_saved_lies_where_it_was(reader, tmp_path):
    """QuPath counts from the corner of what was scanned; a save and the next start agree on that."""
    bordered = replace(reader, bounds_origin_yx_px=(7, 11))
    path = tmp_path / "slide.geojson"
    path.write_text(json.dumps([feature("Tissue", 5, 5, 50, 50)]))
    source = open_labels(bordered, path, NAMES)
    assert source.read(WHOLE)[12:57, 16:61].all()
    outlines = starting_outlines(path, source, bordered, NAMES)
    again = tmp_path / "again.geojson"
    write_corrected(again, outlines, NAMES, geojson_origin_yx_px(bordered, NAMES))
    np.testing.assert_array_equal(open_labels(bordered, again, NAMES).read(WHOLE), source.read(WHOLE))
    assert json.loads(again.read_text())["features"][0]["geometry"]["coordinates"][0][0][0] in (5, 50)
