import json

import numpy as np
import pytest
import shapely

from gigaslide.config import Labels
from gigaslide.errors import GigaslideWarning, SlideError
from gigaslide.geometry import Window
from gigaslide.slides.annotations import read_annotation
from gigaslide.slides.rasterise import PolygonRaster

NAMES = {"tissue_classes": ["Tissue"], "ignore_classes": ["Ignore"], "without_annotation": "error"}
SQUARE = [[1, 1], [5, 1], [5, 5], [1, 5], [1, 1]]
HOLE = [[2, 2], [4, 2], [4, 4], [2, 4], [2, 2]]


def feature(coordinates=None, kind="Polygon", **properties):
    geometry = {"type": kind, "coordinates": [SQUARE] if coordinates is None else coordinates}
    return {"type": "Feature", "geometry": geometry, "properties": properties}


TISSUE = feature(objectType="annotation", classification={"name": "Tissue", "color": [200, 0, 0]})


def read(tmp_path, document, tissue=("Tissue",), ignore=("Ignore",)):
    path = tmp_path / "slide.geojson"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    labels = Labels(tissue_classes=list(tissue), ignore_classes=list(ignore), without_annotation="error")
    return read_annotation(path, labels)


def area(polygons):
    return sum(polygon.area for polygon in polygons)


@pytest.mark.parametrize(
    "document",
    [
        {"type": "FeatureCollection", "features": [TISSUE]},
        TISSUE,
        [TISSUE],
        "\ufeff" + json.dumps([TISSUE]),
    ],
    ids=["collection", "feature", "list", "byte order mark"],
)
def test_the_dialects_are_read(tmp_path, document):
    annotation = read(tmp_path, document)
    assert area(annotation.tissue) == 16
    assert annotation.ignore == ()


@pytest.mark.parametrize(
    "properties",
    [
        {"classification": {"name": "Tissue"}},
        {"classification": {"names": ["Tissue"]}},
        {"classification": "Tissue"},
        {"class": "Tissue"},
        {"classification": {"name": "tissue*"}},
    ],
)
def test_classes_are_found_where_the_dialects_put_them(tmp_path, properties):
    assert area(read(tmp_path, [feature(**properties)]).tissue) == 16


def test_classes_are_chosen_by_name(tmp_path):
    document = [TISSUE, feature(classification={"name": "Tumor"}), feature(classification={"name": "Ignore*"})]
    annotation = read(tmp_path, document, tissue=["Tissue", "Tumor"])
    assert (area(annotation.tissue), area(annotation.ignore)) == (32, 16)


def test_holes_stay_holes(tmp_path):
    donut = feature([SQUARE, HOLE], classification="Tissue")
    assert area(read(tmp_path, [donut]).tissue) == 12
    in_donut = feature(
        [[[[x * 5, y * 5] for x, y in SQUARE], [[x * 5, y * 5] for x, y in HOLE]], [[[12, 12], [18, 12], [18, 18]]]],
        kind="MultiPolygon",
        classification="Tissue",
    )
    assert area(read(tmp_path, [in_donut]).tissue) == 12 * 25 + 18


def test_open_rings_are_closed_and_heights_dropped(tmp_path):
    ring = [[1, 1, 7], [5, 1, 7], [5, 5, 7], [1, 5, 7]]
    assert area(read(tmp_path, [feature([ring], classification="Tissue")]).tissue) == 16


INVALID = {
    "bow tie": ([[0, 0], [4, 4], [4, 0], [0, 4], [0, 0]], 8),
    "spike": ([[0, 0], [4, 0], [4, 4], [9, 4], [4, 4], [0, 4], [0, 0]], 16),
    "line": ([[0, 0], [4, 0], [8, 0], [0, 0]], 0),
    "squares that touch at a corner": ([[0, 0], [2, 0], [2, 4], [4, 4], [4, 2], [2, 2], [0, 2], [0, 0]], 8),
    "two corners": ([[0, 0], [4, 0]], 0),
    "nothing": ([], 0),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_polygons_are_made_valid(tmp_path, case):
    ring, expected = INVALID[case]
    polygons = read(tmp_path, [TISSUE, feature([ring], classification="Tissue")]).tissue
    assert area(polygons) == 16 + expected
    assert all(polygon.is_valid and not polygon.is_empty for polygon in polygons)


def test_a_geometry_collection_gives_its_polygons(tmp_path):
    geometry = {
        "type": "GeometryCollection",
        "geometries": [TISSUE["geometry"], {"type": "Point", "coordinates": [1, 1]}],
    }
    collection = {"type": "Feature", "geometry": geometry, "properties": {"classification": "Tissue"}}
    assert area(read(tmp_path, collection).tissue) == 16


def test_what_is_left_out_is_said(tmp_path):
    document = [
        TISSUE,
        feature(classification="Necrosis"),
        feature(classification="Necrosis"),
        feature(),
        feature([1, 1], kind="Point", classification="Tissue"),
        feature([[1, 1], [2, 2]], kind="LineString"),
    ]
    message = r"slide\.geojson: 1 of class \(no class\), 2 of class Necrosis, 1 LineString\(s\), .* 1 Point"
    with pytest.warns(GigaslideWarning, match=message):
        assert area(read(tmp_path, document).tissue) == 16


def test_no_feature_is_no_tissue(tmp_path):
    assert read(tmp_path, {"type": "FeatureCollection", "features": []}).tissue == ()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", r"slide\.geojson cannot be used: this is no GeoJSON: Expecting"),
        ("3", "expected a FeatureCollection"),
        ([{"type": "Feature", "geometry": None}], "expected a FeatureCollection"),
        ([feature(classification="Necrosis"), feature()], r"no class Tissue .*are: \(no class\), Necrosis"),
        (
            [TISSUE, feature([["a", "b"]], classification="Tissue")],
            r"feature 2 is malformed: expected corners of two numbers",
        ),
        ([feature([[[1, 1], [float("nan"), 3], [3, 3]]])], "feature 1 .*finite"),
        ([feature(kind="Circle")], "feature 1 .*'Circle' is unknown"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(tmp_path, document, message):
    with pytest.raises(SlideError, match=message):
        read(tmp_path, document)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SlideError, match=r"absent\.geojson"):
        read_annotation(tmp_path / "absent.geojson", Labels(**NAMES))


def test_from_file_to_pixels(tmp_path):
    polygons = read(tmp_path, [feature([SQUARE, HOLE], classification="Tissue")]).tissue
    expected = np.zeros((6, 7), bool)
    expected[1:5, 1:5] = True
    expected[2:4, 2:4] = False
    np.testing.assert_array_equal(PolygonRaster(polygons).read(Window.of(0, 0, 6, 7)), expected)
    assert all(isinstance(polygon, shapely.Polygon) for polygon in polygons)
