import json
from types import SimpleNamespace

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import ndimage

from gigaslide import config
from gigaslide.geometry import Window
from gigaslide.masks.geojson import DEFAULT_TOLERANCE_UM, tolerance_px, write_geojson
from gigaslide.masks.outlines import trace
from gigaslide.slides.geojson import read_geojson
from gigaslide.slides.labels import open_labels

LABELS = config.load().labels
MASKS = arrays.arrays(np.bool_, arrays.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12))
# Rounding to 1/100 px moves a corner by at most half of that along each axis.
ROUNDED_PX = 0.005 * 2**0.5


def blobs(seed, noise=0.5, shape=(700, 900)):
    """Tissue with rough outlines, holes, islands and specks; with less noise they are rare."""
    random = np.random.default_rng(seed)
    smooth = ndimage.gaussian_filter(random.standard_normal(shape), 25)
    fine = ndimage.uniform_filter(random.standard_normal(shape), 3)
    return smooth / smooth.std() + noise * fine > 0.3


def reader_of(path, level0_shape, shape, bounds_origin_yx_px=(0, 0)):
    """What `open_labels` wants to know of a slide."""
    return SimpleNamespace(path=path, level0_shape=level0_shape, shape=shape, bounds_origin_yx_px=bounds_origin_yx_px)


def polygons_in(path):
    return [polygon for drawing in read_geojson(path.read_bytes()) for polygon in drawing.polygons]


@pytest.fixture(scope="module")
def rough():
    return trace(blobs(0))


@settings(max_examples=80, deadline=None)
@given(MASKS, st.sampled_from([1.0, 2.0, 4.0012, 1.37, 0.51]), st.sampled_from([1.0, 3.0, 2.0004]))
def test_without_simplification_the_mask_comes_back(tmp_path_factory, mask, y_scale, x_scale):
    path = tmp_path_factory.mktemp("exact") / "mask.geojson"
    scale = y_scale, x_scale
    write_geojson(path, trace(mask), scale_yx=scale)
    # A slide whose level 0 is as many times larger; PolygonRaster takes any number as a size.
    level0 = tuple(size * factor for size, factor in zip(mask.shape, scale, strict=True))
    reader = reader_of(path, level0, mask.shape)
    labels = open_labels(reader, path, LABELS)
    np.testing.assert_array_equal(labels.read(Window.of(0, 0, *mask.shape)), mask)


def test_the_offset_moves_the_mask(tmp_path, rough):
    path, shape = tmp_path / "mask.geojson", (1500, 2000)
    mask = rough.read_rows(0, rough.shape[0])
    write_geojson(path, rough, scale_yx=(2.0, 2.0), offset_yx_px=(30.0, 70.0))
    found = open_labels(reader_of(path, shape, shape), path, LABELS).read(Window.of(0, 0, *shape))
    expected = np.zeros(shape, np.uint8)
    expected[30 : 30 + 1400, 70 : 70 + 1800] = np.kron(mask, np.ones((2, 2), np.uint8))
    np.testing.assert_array_equal(found, expected)


def test_on_a_slide_with_borders_the_mask_comes_back_from_the_frame_of_qupath(tmp_path, rough):
    path, origin = tmp_path / "mask.geojson", (123, 456)
    write_geojson(path, rough, offset_yx_px=(-origin[0], -origin[1]))
    reader = reader_of(path, rough.shape, rough.shape, origin)
    found = open_labels(reader, path, LABELS).read(Window.of(0, 0, *rough.shape))
    np.testing.assert_array_equal(found, rough.read_rows(0, rough.shape[0]))


@pytest.mark.parametrize("scale", [(1.0, 1.0), (4.0012, 3.9991)])
@pytest.mark.parametrize("tolerance", [0.7, 2.0, 8.0])
def test_no_outline_is_farther_away_than_the_tolerance(tmp_path, rough, scale, tolerance):
    path = tmp_path / "mask.geojson"
    tolerance *= max(scale)
    written = write_geojson(path, rough, scale_yx=scale, tolerance=tolerance)
    exact, found = list(rough.polygons()), polygons_in(path)
    assert len(exact) == len(found) == written.features
    assert sum(map(shapely.get_num_coordinates, found)) == written.corners
    assert written.corners < len(rough.vertices)
    distances = []
    for one, other in zip(exact, found, strict=True):
        scaled = shapely.transform(one, lambda points: points * np.array(scale[::-1]))
        ours, theirs = shapely.get_rings(scaled), shapely.get_rings(other)
        assert len(ours) == len(theirs)
        # At the corners, which is all: what is left is a subset of them, and the distance to a straight edge is largest
        # at an end of what it stands for.
        distances += shapely.hausdorff_distance(ours, theirs).tolist()
    assert max(distances) <= tolerance + ROUNDED_PX
    assert max(distances) > tolerance / 2  # it is used


@pytest.mark.parametrize("scale", [(1.0, 1.0), (1.003, 0.997), (0.004, 0.004), (0.0003, 0.02)])
@pytest.mark.parametrize("tolerance", [0.0, 2.0])
def test_what_is_read_back_is_valid_as_it_stands_there(tmp_path, rough, scale, tolerance):
    write_geojson(tmp_path / "mask.geojson", rough, scale_yx=scale, tolerance=tolerance)
    features = json.loads((tmp_path / "mask.geojson").read_text(encoding="utf-8"))["features"]
    assert len(features) > 20 * (scale[0] > 0.1)
    for feature in features:
        geometry = shapely.geometry.shape(feature["geometry"])
        assert geometry.is_valid
        assert geometry.area > 0
        for ring in shapely.get_rings(geometry):
            assert ring.is_closed
        points = shapely.get_coordinates(geometry)
        np.testing.assert_array_equal(points, np.round(points, 2))


def test_checkerboards_spikes_and_donuts_are_valid_and_holes_are_no_tissue(tmp_path):
    checkerboard = np.indices((8, 8)).sum(axis=0) % 2 == 0
    spike = np.zeros((8, 8), bool)
    spike[4:, :], spike[:, 3] = True, True
    y, x = np.mgrid[-20:21, -20:21]
    radius = np.hypot(y, x)
    donut = ((radius < 19) & (radius >= 13)) | ((radius < 9) & (radius >= 4))
    for mask, holes in [(checkerboard, 0), (spike, 0), (donut, 2)]:
        for tolerance in (0.0, 1.0, 5.0):
            write_geojson(tmp_path / "mask.geojson", trace(mask), tolerance=tolerance)
            found = polygons_in(tmp_path / "mask.geojson")
            assert len(found) == trace(mask).pieces
            assert all(polygon.is_valid for polygon in found)
            assert sum(len(polygon.interiors) for polygon in found) == holes


def test_small_pieces_keep_their_shape(tmp_path):
    mask = np.zeros((30, 30), bool)
    mask[2, 2], mask[10:13, 10:15], mask[20:26, 20:26] = True, True, True
    written = write_geojson(tmp_path / "mask.geojson", trace(mask), tolerance=5.0)
    assert written.area_px == mask.sum()


def test_areas_are_those_of_the_pixels_and_simplified_ones_right_to_a_thousandth(tmp_path, rough):
    path = tmp_path / "mask.geojson"
    smooth = trace(blobs(0, noise=0.1))
    exact = write_geojson(path, rough, mpp_um_per_px=(0.5, 0.25), scale_yx=(2.0, 2.0))
    assert exact.area_px == 4 * rough.tissue_px == 4 * blobs(0).sum()
    features = json.loads(path.read_text(encoding="utf-8"))["features"]
    areas_um2 = [feature["properties"]["measurements"]["Area µm^2"] for feature in features]
    np.testing.assert_allclose(areas_um2, rough.piece_areas_px * 4 * 0.125, rtol=0, atol=5e-4)
    tolerance = tolerance_px(DEFAULT_TOLERANCE_UM, (0.5, 0.5))
    assert tolerance == 2
    for outlines, fewer in [(rough, 1.2), (smooth, 3)]:
        simplified = write_geojson(path, outlines, tolerance=tolerance)
        assert simplified.area_px == pytest.approx(outlines.tissue_px, rel=1e-3)
        assert simplified.corners < len(outlines.vertices) / fewer


def test_the_dialect_is_that_of_qupath(tmp_path):
    path = tmp_path / "mask.geojson"
    mask = np.zeros((9, 9), bool)
    mask[1:6, 2:7], mask[3, 4], mask[8, 8] = True, False, True
    write_geojson(path, trace(mask), mpp_um_per_px=(0.5, 0.5), properties={"name": "first"})
    text = path.read_text(encoding="utf-8")
    collection = json.loads(text)
    assert set(collection) == {"type", "features"}
    assert collection["type"] == "FeatureCollection"
    first, second = collection["features"]
    assert first["type"] == "Feature"
    assert first["geometry"] == {
        "type": "Polygon",
        "coordinates": [
            [[2, 1], [7, 1], [7, 6], [2, 6], [2, 1]],
            [[4, 3], [4, 4], [5, 4], [5, 3], [4, 3]],
        ],
    }
    assert first["properties"] == {
        "objectType": "annotation",
        "classification": {"name": "Tissue", "color": [213, 94, 0]},
        "isLocked": False,
        "name": "first",
        "measurements": {"Area µm^2": 6.0},
    }
    assert first["id"] != second["id"]
    assert "." not in "".join(text.split("coordinates")[1].split("properties")[0])  # whole numbers stay whole
    write_geojson(path, trace(mask), mpp_um_per_px=(0.5, 0.5), properties={"name": "first"})
    assert path.read_text(encoding="utf-8") == text


def test_without_tissue_it_is_an_empty_collection(tmp_path):
    path = tmp_path / "mask.geojson"
    written = write_geojson(path, trace(np.zeros((5, 5), bool)), tolerance=2.0)
    assert (written.features, written.corners, written.area_px) == (0, 0, 0)
    assert json.loads(path.read_text(encoding="utf-8")) == {"type": "FeatureCollection", "features": []}
    reader = reader_of(path, (5, 5), (5, 5))
    assert not open_labels(reader, path, LABELS).read(Window.of(0, 0, 5, 5)).any()


def test_after_an_error_there_is_what_was_there(tmp_path, rough):
    path = tmp_path / "mask.geojson"
    path.write_text("before", encoding="utf-8")
    with pytest.raises(ValueError, match="JSON"):
        write_geojson(path, rough, properties={"dice": float("nan")})
    with pytest.raises(ValueError, match="tolerance is at least 0"):
        write_geojson(path, rough, tolerance=-1.0)
    assert [item.name for item in tmp_path.iterdir()] == ["mask.geojson"]
    assert path.read_text(encoding="utf-8") == "before"


def test_a_tolerance_is_in_px_of_the_finer_side():
    assert tolerance_px(1.0, (0.25, 0.5)) == 2
    assert tolerance_px(1.0, None) == 2
