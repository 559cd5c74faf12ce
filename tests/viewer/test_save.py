import json

import pytest
import shapely

from gigaslide.config import Labels
from gigaslide.errors import GigaslideError
from gigaslide.viewer.corrected import Outlines
from gigaslide.viewer.save import write_corrected

NAMES = Labels(tissue_classes=[1, "Gewebe"], ignore_classes=["Faltung"], without_annotation="error")
DONUT = shapely.Polygon([(0, 0), (9, 0), (9, 9), (0, 9)], [[(3, 3), (3, 6), (6, 6), (6, 3)]])


def test_the_dialect_of_qupath(tmp_path):
    path = tmp_path / "slide.geojson"
    write_corrected(path, Outlines((DONUT,), (shapely.box(20, 20, 30, 30),)), NAMES)
    value = json.loads(path.read_text())
    assert value.keys() == {"type", "features"}
    assert value["type"] == "FeatureCollection"
    tissue, ignore = value["features"]
    assert tissue["type"] == "Feature"
    assert tissue["properties"]["objectType"] == "annotation"
    assert tissue["properties"]["classification"]["name"] == "Gewebe"
    assert all(0 <= part <= 255 for part in tissue["properties"]["classification"]["color"])
    rings = tissue["geometry"]["coordinates"]
    assert [ring[0] == ring[-1] for ring in rings] == [True, True]
    assert shapely.geometry.shape(tissue["geometry"]).equals(DONUT)
    assert ignore["properties"]["classification"]["name"] == "Faltung"


def test_no_tissue_is_an_empty_collection(tmp_path):
    write_corrected(tmp_path / "slide.geojson", Outlines((), ()), NAMES)
    assert json.loads((tmp_path / "slide.geojson").read_text()) == {"type": "FeatureCollection", "features": []}


def test_what_annotations_cannot_say_is_refused_and_nothing_written(tmp_path):
    path = tmp_path / "slide.geojson"
    path.write_text("what was there")
    with pytest.raises(GigaslideError, match="should have tissue, too"):
        write_corrected(path, Outlines((), (shapely.box(0, 0, 1, 1),)), NAMES)
    assert path.read_text() == "what was there"
    assert [found.name for found in tmp_path.iterdir()] == ["slide.geojson"]


def test_classes_that_are_numbers_only_get_qupath_s_names(tmp_path):
    names = Labels(tissue_classes=[1], ignore_classes=[], without_annotation="error")
    write_corrected(tmp_path / "a.geojson", Outlines((DONUT,), (DONUT,)), names)
    features = json.loads((tmp_path / "a.geojson").read_text())["features"]
    assert [feature["properties"]["classification"]["name"] for feature in features] == ["Tissue", "Ignore"]
