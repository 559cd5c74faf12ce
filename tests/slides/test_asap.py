import re

import numpy as np
import pytest

from gigaslide.geometry import Window
from gigaslide.slides.asap import read_asap
from gigaslide.slides.drawing import MalformedError
from gigaslide.slides.rasterise import PolygonRaster
from tests.slides.xml import SQUARE, asap, asap_annotation


def read(*annotations, groups=()):
    return read_asap(asap(*annotations, groups=groups).encode())


def pixels(drawing, height=6, width=7):
    return PolygonRaster(drawing.polygons).read(Window.of(0, 0, height, width)).astype(int).tolist()


def test_a_polygon_to_the_pixel():
    (drawing,) = read(asap_annotation([(1.4, 1), (4.6, 1), (4.6, 3.2), (1.4, 3.2)]))
    assert drawing.classes == ("Tissue",)
    assert pixels(drawing, 4, 6) == [[0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("kind", ["Polygon", "Rectangle", "Spline"])
def test_kinds_with_an_area(kind):
    (drawing,) = read(asap_annotation(SQUARE, kind=kind))
    assert pixels(drawing) == [[int(1 <= y < 5 and 1 <= x < 5) for x in range(7)] for y in range(6)]


def test_a_rectangle_of_two_corners():
    (drawing,) = read(asap_annotation([(5, 1), (1, 5)], kind="Rectangle"))
    assert sum(polygon.area for polygon in drawing.polygons) == 16


@pytest.mark.parametrize("kind", ["Dot", "PointSet", "Measurement", "None"])
def test_kinds_without_an_area(kind):
    (drawing,) = read(asap_annotation([(1, 1)], kind=kind))
    assert (drawing.left_out, drawing.polygons) == (kind, ())


def test_corners_follow_their_order_not_that_of_the_file():
    text = asap(asap_annotation(SQUARE))
    coordinates = re.findall(r"<Coordinate .*?/>", text)
    (shuffled,) = read_asap(text.replace("".join(coordinates), "".join(coordinates[i] for i in (2, 0, 3, 1))).encode())
    assert shuffled.polygons == read_asap(text.encode())[0].polygons


def test_without_order_the_file_decides():
    (drawing,) = read_asap(re.sub(r'Order="\d"', "", asap(asap_annotation(SQUARE))).encode())
    assert drawing.polygons[0].area == 16


def test_a_comma_stands_for_the_point():
    (drawing,) = read(asap_annotation([("1,5", 1), ("2,5", 1), ("2,5", 3), ("1,5", 3)]))
    np.testing.assert_array_equal(drawing.polygons[0].bounds, (1.5, 1, 2.5, 3))


def test_groups_in_groups_are_classes_too():
    groups = [("Invasive", "Tumor"), ("Tumor", "None")]
    assert read(asap_annotation(SQUARE, group="Invasive"), groups=groups)[0].classes == ("Invasive", "Tumor")
    circle = [("a", "b"), ("b", "a")]
    assert read(asap_annotation(SQUARE, group="a"), groups=circle)[0].classes == ("a", "b")


def test_without_a_group_the_name_is_the_class():
    assert read(asap_annotation(SQUARE, group="None", name="Tissue"))[0].classes == ("Tissue",)


def test_nothing_drawn():
    assert read() == []
    assert read(asap_annotation([]))[0].polygons == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (asap(asap_annotation(SQUARE), asap_annotation([("x", 1)])), r"line 5: expected a number in X; found 'x'"),
        (asap(asap_annotation(SQUARE), asap_annotation(SQUARE, kind="Star")), "line 5: annotation 2 .* 'Star' is unk"),
        (asap(asap_annotation([*SQUARE, ("nan", 1)])), "annotation 1 is malformed: .*finite"),
        (asap(asap_annotation([*SQUARE, (1e12, 1)])), "annotation 1 is malformed: .*within 1e.09"),
        ("<ASAP_Annotations><Annotation>", "this is no XML: no element found: line 1, column 30"),
        ("<ASAP_Annotations><Shapes/></ASAP_Annotations>", "expected <Annotation> elements; found none, but <Shapes>"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_place(text, message):
    with pytest.raises(MalformedError, match=message):
        read_asap(text.encode())
