import numpy as np
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.geometry import Window, grid
from gigaslide.slides.rasterise import PolygonRaster

SHAPE = (40, 50)
WHOLE = Window.of(0, 0, *SHAPE)


def blob(rng, centre, radius, corners):
    """A star-shaped ring: never crosses itself. Corners have no short decimals, so no centre lies on an edge."""
    angles = np.sort(rng.uniform(0, 2 * np.pi, corners))
    radii = radius * rng.uniform(0.4, 1, corners)
    return np.stack([centre[0] + radii * np.cos(angles), centre[1] + radii * np.sin(angles)], axis=1)


@st.composite
def polygons(draw):
    """Valid polygons with holes, and islands in holes, reaching over the edges of the picture too."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    made = []
    for _ in range(draw(st.integers(1, 4))):
        centre, radius = rng.uniform(-5, 55, 2), rng.uniform(1, 25)
        outer = shapely.Polygon(blob(rng, centre, radius, draw(st.integers(3, 40))))
        hole = shapely.Polygon(blob(rng, centre, radius / 3, draw(st.integers(3, 20))))
        island = shapely.Polygon(blob(rng, centre, radius / 8, 5))
        ring = shapely.make_valid(outer) - shapely.make_valid(hole) | shapely.make_valid(island)
        made += [part for part in shapely.get_parts(ring) if part.geom_type == "Polygon"]
    return made


def contained(shapes, shape, scale=(1.0, 1.0)):
    """What Shapely says of every pixel's centre."""
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    inside = np.zeros(shape, bool)
    for polygon in shapes:
        inside |= shapely.contains_xy(polygon, x / scale[1], y / scale[0])
    return inside


@given(polygons())
def test_a_pixel_is_inside_when_its_centre_is(shapes):
    np.testing.assert_array_equal(PolygonRaster(shapes).read(WHOLE), contained(shapes, SHAPE))


@given(polygons(), st.integers(1, 50), st.integers(1, 50))
def test_windows_fit_together(shapes, height, width):
    raster = PolygonRaster(shapes)
    expected = raster.read(WHOLE)
    for window in grid(SHAPE, (height, width)):
        np.testing.assert_array_equal(raster.read(window), expected[window.slices])


@given(polygons(), st.floats(0.1, 3), st.floats(0.1, 3))
@settings(max_examples=50)
def test_other_grids_take_the_label_under_their_own_centres(shapes, y_scale, x_scale):
    shape = round(SHAPE[0] * y_scale) or 1, round(SHAPE[1] * x_scale) or 1
    scale = shape[0] / SHAPE[0], shape[1] / SHAPE[1]
    raster = PolygonRaster(shapes).at_scale(scale).read(Window.of(0, 0, *shape))
    np.testing.assert_array_equal(raster, contained(shapes, shape, scale))


@given(st.integers(0, 10), st.integers(0, 10), st.integers(1, 30), st.integers(1, 30))
def test_a_box_on_pixel_corners_is_exactly_its_pixels(top, left, height, width):
    expected = np.zeros(SHAPE, bool)
    expected[top : top + height, left : left + width] = True
    box = shapely.box(left, top, left + width, top + height)
    np.testing.assert_array_equal(PolygonRaster([box]).read(WHOLE), expected)


@given(st.integers(0, 2**32 - 1))
def test_neighbours_share_no_pixel_and_leave_none_out(seed):
    """Triangles around a point tile the picture; every centre is in exactly one, centres on an edge too."""
    rng = np.random.default_rng(seed)
    corners = [(0, 0), (50, 0), (50, 40), (0, 40)]
    # On a pixel's centre half of the time: then edges run through centres.
    middle = rng.uniform(5, 35, 2) if seed % 2 else rng.integers(5, 35, 2) + 0.5
    counts = sum(
        PolygonRaster([shapely.Polygon([middle, corners[i], corners[(i + 1) % 4]])]).read(WHOLE).astype(int)
        for i in range(4)
    )
    assert (counts == 1).all()


def test_thousands_of_corners_above_one_pixel_count_right():
    """More than 255 cuts in one place: their number, not its last byte, decides."""
    comb = [(0.0, 0.0)]
    for tooth in range(400):
        comb += [(10 + tooth * 1e-4, 0.0), (10 + tooth * 1e-4 + 5e-5, 20.0)]
    comb += [(30.0, 0.0), (30.0, -5.0), (0.0, -5.0)]
    polygon = shapely.Polygon(comb)
    assert polygon.is_valid
    np.testing.assert_array_equal(PolygonRaster([polygon]).read(WHOLE), contained([polygon], SHAPE))


def test_no_polygon_is_no_pixel():
    assert not PolygonRaster([]).read(WHOLE).any()


def test_a_window_far_into_a_large_slide_costs_its_own_size_only():
    raster = PolygonRaster([shapely.box(0, 0, 10**6, 10**6)])
    assert raster.read(Window.of(10**6 - 5, 10**6 - 7, 10, 10)).sum() == 35


@given(polygons())
@settings(max_examples=50)
def test_the_last_polygon_painted_over_a_pixel_is_seen(shapes):
    canvas = np.zeros(SHAPE, np.uint8)
    PolygonRaster(shapes).paint(canvas, WHOLE, list(range(1, len(shapes) + 1)))
    expected = np.zeros(SHAPE, np.uint8)
    for value, shape in enumerate(shapes, start=1):
        expected[contained([shape], SHAPE)] = value
    np.testing.assert_array_equal(canvas, expected)


def test_the_same_polygons_at_another_scale_leave_the_first_alone():
    raster = PolygonRaster([shapely.box(1, 1, 3, 3)])
    assert raster.at_scale((2.0, 3.0)).read(WHOLE).sum() == 4 * 6
    assert raster.read(WHOLE).sum() == 4
