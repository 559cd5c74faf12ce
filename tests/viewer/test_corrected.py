"""What is shown while drawing, what is saved, and an oracle that looks at each pixel's centre: the same."""

import math

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.classes import GLASS, INVALID, TISSUE
from gigaslide.config import Labels
from gigaslide.geometry import Window
from gigaslide.slides.annotations import read_annotation
from gigaslide.slides.labels import PolygonLabels
from gigaslide.viewer.corrected import Outlines, correct, paint
from gigaslide.viewer.save import write_corrected
from gigaslide.viewer.strokes import LABELS, Stroke

SHAPE = (40, 60)
WHOLE = Window.of(0, 0, *SHAPE)
NAMES = Labels(tissue_classes=["Tissue"], ignore_classes=["Ignore"], without_annotation="error")
EMPTY = Outlines((), ())


def labels_of(outlines, tmp_path):
    """Save, and read as training does."""
    path = tmp_path / "slide.geojson"
    write_corrected(path, outlines, NAMES)
    return PolygonLabels.of(read_annotation(path, NAMES), SHAPE).read(WHOLE)


def painted(mask, strokes):
    planes = [(mask == label).astype(np.uint8) * 255 for label in (TISSUE, INVALID)]
    tissue, invalid = paint(*planes, strokes, WHOLE, (1.0, 1.0))
    assert set(np.unique(tissue)) | set(np.unique(invalid)) <= {0, 255}
    found = np.where(tissue == 255, TISSUE, GLASS)
    found[invalid == 255] = INVALID
    return found


def distance_to_path(points, shape=SHAPE):
    """From each pixel's centre to the nearest point of a path: float64 (y, x)."""
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    nearest = np.full(shape, np.inf)
    for (x1, y1), (x2, y2) in zip(points, [*points[1:], points[-1]], strict=True):
        length = (x2 - x1) ** 2 + (y2 - y1) ** 2
        along = np.clip(((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / (length or 1), 0, 1)
        nearest = np.minimum(nearest, np.hypot(x - x1 - along * (x2 - x1), y - y1 - along * (y2 - y1)))
    return nearest


def test_a_brush_stroke_sets_the_pixels_within_its_radius(tmp_path):
    points, radius = ((10.3, 12.2), (30.8, 20.1), (33.1, 30.9)), 6.37
    stroke = Stroke("brush", "tissue", points, radius)
    distance = distance_to_path(points)
    # 64 chords to the circle: they lie inside of it by r (1 - cos(pi / 64)) at most.
    sure = (distance <= radius * math.cos(math.pi / 64)) | (distance > radius)
    assert (~sure).sum() < 10
    for found in (painted(np.zeros(SHAPE), [stroke]), labels_of(correct(EMPTY, [stroke], SHAPE), tmp_path)):
        np.testing.assert_array_equal(found[sure], (distance <= radius)[sure])


def test_a_polygon_cuts_a_hole(tmp_path):
    square = Stroke("polygon", "tissue", ((5.0, 5.0), (45.0, 5.0), (45.0, 35.0), (5.0, 35.0)))
    hole = Stroke("polygon", "glass", ((15.0, 10.0), (30.0, 10.0), (30.0, 20.0), (15.0, 20.0)))
    expected = np.zeros(SHAPE, np.uint8)
    expected[5:35, 5:45] = 1
    expected[10:20, 15:30] = 0
    outlines = correct(EMPTY, [square, hole], SHAPE)
    assert len(outlines.tissue) == 1
    assert len(outlines.tissue[0].interiors) == 1
    np.testing.assert_array_equal(labels_of(outlines, tmp_path), expected)
    np.testing.assert_array_equal(painted(np.zeros(SHAPE), [square, hole]), expected)


coordinates = st.floats(-10, 70, allow_nan=False).map(lambda value: round(value, 3))
points = st.tuples(coordinates, coordinates)
brushes = st.builds(
    Stroke,
    st.just("brush"),
    st.sampled_from(list(LABELS)),
    st.lists(points, min_size=1, max_size=5).map(tuple),
    st.floats(0.5, 15).map(lambda value: round(value, 3)),
)
outlines = st.builds(
    Stroke, st.just("polygon"), st.sampled_from(list(LABELS)), st.lists(points, min_size=3, max_size=7).map(tuple)
)
boxes = st.tuples(st.integers(0, 35), st.integers(0, 55), st.integers(1, 20), st.integers(1, 20))


@settings(max_examples=60)
@given(st.lists(boxes, max_size=4), st.lists(boxes, max_size=2), st.lists(brushes | outlines, max_size=8))
def test_saved_and_shown_are_the_same_pixels(tmp_path_factory, tissue, ignore, strokes):
    mask = np.zeros(SHAPE, np.uint8)
    areas = []
    for label, found in ((TISSUE, tissue), (INVALID, ignore)):
        drawn = []
        for top, left, height, width in found:
            mask[top : top + height, left : left + width] = label
            drawn.append(shapely.box(left, top, min(60, left + width), min(40, top + height)))
        union = shapely.union_all(drawn)
        areas.append(tuple(part for part in shapely.get_parts(union) if not part.is_empty))
    corrected = correct(Outlines(*areas), strokes, SHAPE)
    assert all(polygon.is_valid for polygon in (*corrected.tissue, *corrected.ignore))
    expected = painted(mask, strokes)
    if not corrected.tissue and corrected.ignore:
        assert not (expected == TISSUE).any()
        return
    np.testing.assert_array_equal(labels_of(corrected, tmp_path_factory.mktemp("saved")), expected)


@given(st.lists(brushes | outlines, min_size=1, max_size=5), st.integers(0, 30), st.integers(0, 40))
def test_a_window_is_a_part_of_the_whole(strokes, top, left):
    planes = np.zeros(SHAPE, np.uint8), np.zeros(SHAPE, np.uint8)
    whole = paint(*planes, strokes, WHOLE, (1.0, 1.0))
    window = Window.of(top, left, 10, 20)
    part = paint(*(plane[window.slices] for plane in planes), strokes, window, (1.0, 1.0))
    for one, other in zip(whole, part, strict=True):
        np.testing.assert_array_equal(one[window.slices], other)


def test_many_strokes_are_painted_in_their_order():
    """More than are indexed together."""
    strokes = [
        Stroke("polygon", ("tissue", "glass", "ignore")[number % 3], ((0, 0), (60, 0), (60, 40), (0, 40)))
        for number in range(101)
    ]
    tissue, invalid = paint(np.zeros(SHAPE, np.uint8), np.zeros(SHAPE, np.uint8), strokes[:100], WHOLE, (1.0, 1.0))
    assert (tissue == 255).all()
    assert not invalid.any()
    tissue, _ = paint(np.zeros(SHAPE, np.uint8), np.zeros(SHAPE, np.uint8), strokes, WHOLE, (1.0, 1.0))
    assert not tissue.any()


def test_without_strokes_the_polygons_stay_as_they_are():
    square = shapely.box(1, 2, 3, 4)
    assert correct(Outlines((square,), ()), [], SHAPE) == Outlines((square,), ())


def test_strokes_beyond_the_slide_are_clipped():
    corrected = correct(EMPTY, [Stroke("brush", "tissue", ((0.0, 0.0),), 10.0)], SHAPE)
    assert corrected.tissue[0].bounds[:2] == (0, 0)


@pytest.mark.parametrize("label", list(LABELS))
def test_far_polygons_are_not_touched(label):
    near, far = shapely.box(0, 0, 10, 10), shapely.box(30, 30, 40.123456789, 40)
    corrected = correct(Outlines((near, far), ()), [Stroke("brush", label, ((5.0, 5.0),), 2.0)], SHAPE)
    assert any(polygon is far for polygon in corrected.tissue)
