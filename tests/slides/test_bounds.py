import json

import imagecodecs
import numpy as np
import pytest

from gigaslide.config import Labels
from gigaslide.geometry import Window
from gigaslide.slides.bounds import bounds_origin
from gigaslide.slides.labels import open_labels
from gigaslide.slides.reader import open_slide
from tests.slides.mirax import write_mrxs
from tests.slides.xml import SQUARE, asap, asap_annotation


def properties(y, x, height, width):
    values = {"y": y, "x": x, "height": height, "width": width}
    return {f"openslide.bounds-{name}": text for name, text in values.items()}


@pytest.mark.parametrize(
    ("said", "origin"),
    [
        ({}, (0, 0)),
        (properties("109084", "32752", "900", "1000"), (109084, 32752)),
        (properties("0", "0", "110000", "40000"), (0, 0)),
        (properties("109084", "32752", "917", "1000"), (0, 0)),  # a row beyond the slide
        (properties("109084", "32752", "900", "7249"), (0, 0)),
        (properties("-1", "5", "900", "1000"), (0, 0)),
        (properties("1", "5", "0", "1000"), (0, 0)),
        (properties("1.5", "5", "1", "1000"), (0, 0)),
        ({"openslide.bounds-x": "4", "openslide.bounds-y": "4"}, (0, 0)),
    ],
)
def test_the_origin_is_where_what_was_scanned_begins(said, origin):
    assert bounds_origin(said, (110000, 40000)) == origin


NAMES = Labels(tissue_classes=["Tissue"], ignore_classes=["Ignore"], without_annotation="error")
TILE_PX, TILES = 16, (4, 5)
BORDER = {(y, x) for y in range(4) for x in range(5) if y < 1 or x < 2}


@pytest.fixture(scope="module")
def bordered(tmp_path_factory):
    """An MRXS of 64 x 80 px whose scanned part begins at row 16, column 32."""
    pixels = np.full((TILES[0] * TILE_PX, TILES[1] * TILE_PX, 3), 200, np.uint8)
    path = tmp_path_factory.mktemp("slides") / "slide.mrxs"
    return open_slide(write_mrxs(path, [pixels], TILE_PX, BORDER, imagecodecs.png_encode, "PNG"))


def expected_at(top, left):
    labels = np.zeros((TILES[0] * TILE_PX, TILES[1] * TILE_PX), np.uint8)
    labels[top + 1 : top + 5, left + 1 : left + 5] = 1
    return labels


@pytest.mark.parametrize(
    ("name", "origin", "begins"),
    [("a.geojson", "bounds", (16, 32)), ("a.geojson", "full", (0, 0)), ("a.xml", "bounds", (0, 0))],
)
def test_what_was_drawn_in_qupath_counts_from_the_scanned_part(bordered, tmp_path, name, origin, begins):
    """QuPath shows that part only; ASAP shows the whole slide, and its coordinates are those of it."""
    ring = [*SQUARE, SQUARE[0]]
    feature = {"geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": {"class": "Tissue"}}
    text = json.dumps([feature]) if name.endswith("geojson") else asap(asap_annotation(SQUARE))
    (tmp_path / name).write_text(text)
    names = NAMES.model_copy(update={"geojson_origin": origin})
    assert bordered.bounds_origin_yx_px == (16, 32)
    labels = open_labels(bordered, tmp_path / name, names).read(Window.of(0, 0, *bordered.shape))
    np.testing.assert_array_equal(labels, expected_at(*begins))


def test_all_that_is_drawn_moves(bordered, tmp_path):
    features = [
        {"geometry": {"type": "Polygon", "coordinates": [[[left, 1], [left + 4, 1], [left + 4, 9], [left, 9]]]}}
        | {"properties": {"class": name}}
        for left, name in [(1, "Tissue"), (7, "Ignore"), (12, "Lumen"), (20, "ROI")]
    ]
    features[3]["geometry"]["coordinates"] = [[[0, 0], [30, 0], [30, 20], [0, 20]]]
    (tmp_path / "a.geojson").write_text(json.dumps(features))
    names = NAMES.model_copy(update={"glass_classes": ["Lumen"], "region_classes": ["ROI"]})
    full = names.model_copy(update={"geojson_origin": "full"})
    window = Window.of(0, 0, 30, 40)
    there = open_labels(bordered, tmp_path / "a.geojson", names).read(window.shift(16, 32))
    np.testing.assert_array_equal(there, open_labels(bordered, tmp_path / "a.geojson", full).read(window))
    assert set(np.unique(there)) == {0, 1, 255}
