import numpy as np
import pytest

from gigaslide.geometry import Window
from gigaslide.slides.drawing import MalformedError
from gigaslide.slides.imagescope import read_imagescope
from gigaslide.slides.rasterise import PolygonRaster
from tests.slides.xml import HOLE, SQUARE, imagescope, layer, region


def read(*layers):
    return read_imagescope(imagescope(*layers).encode())


def scaled(corners, factor):
    return [(x * factor, y * factor) for x, y in corners]


def pixels(drawings, height, width):
    polygons = [polygon for drawing in drawings for polygon in drawing.polygons]
    return PolygonRaster(polygons).read(Window.of(0, 0, height, width)).astype(int).tolist()


def test_a_polygon_to_the_pixel():
    (drawing,) = drawings = read(layer(region([(1.4, 1), (4.6, 1), (4.6, 3.2), (1.4, 3.2)])))
    assert drawing.classes == ("Tissue", "#00ff00")
    assert pixels(drawings, 4, 6) == [[0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("kind", [1, "Rectangle"])
@pytest.mark.parametrize("corners", [SQUARE, [(1, 5), (5, 1)]])
def test_a_rectangle_of_four_corners_or_two(kind, corners):
    drawings = read(layer(region(corners, kind)))
    assert pixels(drawings, 6, 7) == [[int(1 <= y < 5 and 1 <= x < 5) for x in range(7)] for y in range(6)]


@pytest.mark.parametrize("kind", [2, "Ellipse"])
@pytest.mark.parametrize(
    "corners",
    [[(1, 1), (7, 5)], [(1, 1), (7, 1), (7, 5), (1, 5)], [(4, 1), (7, 3), (4, 5), (1, 3)]],
    ids=["two corners", "four corners", "tops"],
)
def test_an_ellipse_to_the_pixel(kind, corners):
    # Half axes of 3 and 2 px around (4, 3): in a row of centres 1.5 px off, 3 sqrt(1 - 9/16) = 1.98 px to each side.
    assert pixels(read(layer(region(corners, kind))), 6, 8) == [
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 1, 1, 0, 0],
        [0, 1, 1, 1, 1, 1, 1, 0],
        [0, 1, 1, 1, 1, 1, 1, 0],
        [0, 0, 1, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
    ]


def test_a_large_ellipse_keeps_its_area():
    (drawing,) = read(layer(region([(0, 0), (20000, 10000)], 2)))
    assert drawing.polygons[0].area == pytest.approx(np.pi * 10000 * 5000, rel=1e-5)


def test_a_short_file_cannot_ask_for_any_amount_of_corners():
    (drawing,) = read(layer(region([(-1e9, -1e9), (1e9, 1e9)], 2)))
    assert len(drawing.polygons[0].exterior.coords) < 5000


def test_an_ellipse_drawn_as_its_outline_stays_that():
    outline = [(0, 0), (4, 0), (8, 0), (8, 8), (4, 8), (0, 8)]
    assert read(layer(region(outline, 2)))[0].polygons[0].area == 64


def test_a_negative_region_is_a_hole_of_its_layer_only():
    stroma = layer(region(HOLE), name="Stroma")
    tissue, other = read(layer(region(HOLE, negative=1), region(SQUARE)), stroma)
    assert pixels([tissue], 6, 7) == [
        [0, 0, 0, 0, 0, 0, 0],
        [0, 1, 1, 1, 1, 0, 0],
        [0, 1, 0, 0, 1, 0, 0],
        [0, 1, 0, 0, 1, 0, 0],
        [0, 1, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ]
    assert other.polygons[0].area == 4


def test_an_island_in_a_hole_stays():
    outer, hole = scaled(SQUARE, 10), scaled(HOLE, 10)
    drawings = read(layer(region(outer), region(hole, negative=1), region([(25, 25), (30, 25), (30, 30), (25, 30)])))
    assert [sum(p.area for p in drawing.polygons) for drawing in drawings] == [1600 - 400, 25]


def test_a_hole_over_the_edge_and_one_over_everything():
    over_edge = [(4, 0), (9, 0), (9, 9), (4, 9)]
    assert read(layer(region(SQUARE), region(over_edge, negative=1)))[0].polygons[0].area == 12
    assert read(layer(region(SQUARE), region(SQUARE, negative="True")))[0].polygons == ()


def test_thousands_of_holes_in_one_region():
    holes = [  # of 2 x 2 px, in every other row; those from column 100 and row 100 on lie in the region
        region(scaled([(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)], 2), negative=1)
        for x in range(100)
        for y in range(1, 100, 2)
    ]
    (drawing,) = read(layer(region(scaled(SQUARE, 100)), *holes))
    inside = 50 * 25
    assert sum(polygon.area for polygon in drawing.polygons) == 400 * 400 - 4 * inside


def test_classes_are_found_where_the_dialects_put_them():
    assert read(layer(region(SQUARE, text="Gland"), name="Tumor"))[0].classes == ("Gland", "Tumor", "#00ff00")
    monusac = layer(region(SQUARE), name="", colour=16711680, attributes=[("Epithelial", "")])
    assert read(monusac)[0].classes == ("Epithelial", "#0000ff")
    described = layer(region(SQUARE), name="", colour=255, attributes=[("Description", "Necrosis")])
    assert read(described)[0].classes == ("Necrosis", "#ff0000")
    assert read(layer(region(SQUARE), name="", colour="red"))[0].classes == ()


def test_halo_writes_v():
    text = imagescope(layer(region(SQUARE, "Polygon", vertex="V")))
    assert read_imagescope(text.encode("utf-16"))[0].polygons[0].area == 16


@pytest.mark.parametrize(
    ("kind", "corners", "left_out"),
    [(3, SQUARE[:2], "arrow"), (4, SQUARE[:2], "ruler"), ("Ruler", SQUARE[:2], "ruler"), (0, SQUARE[:1], "point")],
)
def test_what_has_no_area(kind, corners, left_out):
    (drawing,) = read(layer(region(corners, kind)))
    assert (drawing.left_out, drawing.polygons) == (left_out, ())


def test_nothing_drawn():
    assert read() == []
    assert read(layer()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (imagescope(layer(region(SQUARE)), layer(region([(1, "?")]))), r"line 5: expected a number in Y; found '\?'"),
        (imagescope(layer(region([*SQUARE, ("inf", 1)]))), "region 1 is malformed: .*finite"),
        ("<Annotations><Annotation/>", "this is no XML: no element found"),
        ("<Annotations><Annotation><Coordinate/></Annotation></Annotations>", "found none, but <Coordinate>"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_place(text, message):
    with pytest.raises(MalformedError, match=message):
        read_imagescope(text.encode())
