import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.masks.outlines import polygons_of, trace
from gigaslide.masks.simplify import _is_between, corners_kept
from tests.masks.masks import noise_masks

UNIT = (1.0, 1.0)


def simplified(outlines, tolerance, scale=UNIT):
    kept = corners_kept(outlines, tolerance, scale)
    starts = np.append(0, np.cumsum(kept))[outlines.starts]
    points = outlines.vertices[kept][:, ::-1]
    return polygons_of(outlines, points, starts, 0, outlines.pieces) if outlines.pieces else np.empty(0, object)


@settings(max_examples=150, deadline=None)
@given(noise_masks(), st.floats(0.1, 10), st.sampled_from([UNIT, (2.0, 1.0), (0.3, 4.1)]))
def test_nothing_crosses_and_nothing_changes_sides(mask, tolerance, scale):
    outlines = trace(mask)
    exact, found = np.array(list(outlines.polygons()), dtype=object), simplified(outlines, tolerance, scale)
    if not outlines.pieces:
        return
    assert shapely.is_valid(found).all()
    np.testing.assert_array_equal(shapely.get_num_interior_rings(found), shapely.get_num_interior_rings(exact))
    # Pieces lie beside and within each other as before: nothing is covered twice.
    assert shapely.union_all(found).area == pytest.approx(shapely.area(found).sum(), rel=1e-9)
    # Who lies in a hole of whom: filled, the same ones contain the first corners of the same ones.
    filled, exact_filled = (shapely.polygons(shapely.get_exterior_ring(some)) for some in (found, exact))
    corners = shapely.points(outlines.vertices[outlines.starts[outlines.shells], ::-1])
    matrix = [shapely.contains_properly(some[:, None], corners[None, :]) for some in (filled, exact_filled)]
    np.testing.assert_array_equal(*matrix)


def test_a_hole_beside_the_outline_is_not_jumped_over():
    mask = np.ones((5, 40), bool)
    mask[0, 10:30] = False  # a shallow dent, within the tolerance
    mask[2, 20] = False  # and a hole right below it
    (found,) = simplified(trace(mask), 3.0)
    assert found.is_valid
    bump = np.pad(~mask, 2)
    bump[2, 12:32] = True  # the same of glass: an island that would end up in tissue
    assert shapely.union_all(simplified(trace(bump), 3.0)).area == pytest.approx(
        shapely.area(simplified(trace(bump), 3.0)).sum()
    )


def test_small_and_thin_pieces_keep_their_shape():
    mask = np.zeros((60, 60), bool)
    mask[1, 1], mask[3, 1:50], mask[10:20, 10:20] = True, True, True
    outlines = trace(mask)
    assert corners_kept(outlines, 50.0, UNIT).all()


def test_a_disc_needs_few_corners():
    y, x = np.mgrid[-200:201, -200:201]
    outlines = trace(np.hypot(y, x) < 190)
    (found,) = simplified(outlines, 2.0)
    # An edge that may be 2 px off on either side of a circle of radius r spans 2 acos((r - 2) / (r + 2)) at most, and
    # Douglas and Peucker's cut at the farthest corner halves arcs: at worst edges half as long.
    fewest = np.pi / np.arccos(188 / 192)
    assert fewest <= shapely.get_num_coordinates(found) - 1 <= 4 * fewest
    assert found.area == pytest.approx(outlines.tissue_px, rel=0.02)  # 2 px of 190 along the outline, at most


@pytest.mark.parametrize(
    ("point", "expected"), [((1, 1), True), ((2, 1), True), ((0, 0), False), ((-1, 1), False), ((1, 3), False)]
)
def test_between_a_chain_and_its_edge(point, expected):
    # From (2, 0) up, right and down to (2, 2): the edge lies below.
    vertices = np.array([(2, 0), (0, 0), (0, 2), (2, 2)], np.int32)
    assert _is_between(vertices, np.arange(4), *point) == expected
