import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import ndimage
from skimage.morphology import remove_small_holes, remove_small_objects

from gigaslide.errors import GigaslideError
from gigaslide.masks import outlines
from gigaslide.masks.outlines import OutlineTracer, trace
from tests.masks.masks import noise_masks, ring

MASKS = arrays.arrays(np.bool_, arrays.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=14))
NINE = np.pad(np.ones((9, 9), bool), 1)


def hand_made():
    yield "empty", np.zeros((5, 7), bool)
    yield "full", np.ones((5, 7), bool)
    yield "checkerboard", np.indices((6, 9)).sum(axis=0) % 2 == 0
    yield "donut", ring(15, 8)
    yield "donut in donut", ring(18, 13) | ring(9, 4)
    yield "spikes", np.pad(np.ones((3, 11), bool), ((4, 4), (0, 0))) | (np.arange(11) % 4 == 1)
    yield "two touch at a corner", np.kron(np.eye(2, dtype=bool), np.ones((3, 3), bool))
    pocket = NINE.copy()
    pocket[1, 1], pocket[2, 2] = False, False  # glass that meets the glass outside at a point only
    yield "pocket", pocket
    holes = NINE.copy()
    holes[4, 4], holes[5, 5], holes[6, 4] = False, False, False
    yield "holes that touch", holes
    island = NINE.copy()
    island[3:7, 3:7] = False
    island[3, 3], island[6, 6], island[4:6, 4:6] = True, True, True  # it touches the piece at two points
    yield "island that touches its hole", island


def check(mask, found):
    """Compare outlines with what scipy and shapely say of the mask."""
    assert found.shape == mask.shape
    np.testing.assert_array_equal(found.read_rows(0, len(mask)), mask)
    labels, pieces = ndimage.label(mask)
    assert found.pieces == pieces
    # A piece is numbered where it is first met, by both.
    np.testing.assert_array_equal(found.piece_areas_px, np.bincount(labels.ravel(), minlength=pieces + 1)[1:])
    holes = [ndimage.label(np.pad(labels != piece, 1, constant_values=True))[1] - 1 for piece in range(1, pieces + 1)]
    np.testing.assert_array_equal(
        np.bincount(found.parents[found.parents >= 0], minlength=len(found.parents)),
        [holes[list(found.shells).index(k)] if k in found.shells else 0 for k in range(len(found.parents))],
    )
    polygons = list(found.polygons())
    assert all(polygon.is_valid for polygon in polygons)
    np.testing.assert_array_equal([polygon.area for polygon in polygons], found.piece_areas_px)
    assert all(polygon.exterior.is_ccw for polygon in polygons)
    assert not any(hole.is_ccw for polygon in polygons for hole in polygon.interiors)
    # A vertex is a turn: never two edges of one direction in a row.
    for start, stop in zip(found.starts[:-1], found.starts[1:], strict=True):
        steps = np.diff(found.vertices[start:stop], axis=0, append=found.vertices[start : start + 1])
        along_row = steps[:, 0] == 0
        assert (along_row != np.roll(along_row, 1)).all()
        assert (steps != 0).sum(axis=1).tolist() == [1] * len(steps)


@pytest.mark.parametrize(("name", "mask"), list(hand_made()))
def test_hand_made_masks(name, mask):
    check(mask, trace(mask))


def test_what_the_hand_made_masks_are_about():
    found = {name: trace(mask) for name, mask in hand_made()}
    counts = {name: (item.pieces, len(item.parents) - item.pieces) for name, item in found.items()}
    assert counts["checkerboard"] == (27, 0)
    assert counts["donut in donut"] == (2, 2)
    assert counts["pocket"] == (1, 1)
    assert counts["holes that touch"] == (1, 3)
    assert counts["island that touches its hole"] == (2, 1)


@settings(max_examples=150, deadline=None)
@given(MASKS)
def test_any_mask(mask):
    check(mask, trace(mask))


@settings(max_examples=60, deadline=None)
@given(MASKS, st.data())
def test_bands_do_not_matter(mask, data):
    height, width = mask.shape
    cuts = sorted(data.draw(st.lists(st.integers(0, height), max_size=5)))
    labels = np.where(mask, 1, np.array([0, 255], np.uint8)[np.indices(mask.shape).sum(axis=0) % 2]).astype(np.uint8)
    tracer = OutlineTracer(width)
    for start, stop in zip([0, *cuts], [*cuts, height], strict=True):
        tracer.add_rows(labels[start:stop])
    found, expected = tracer.finish(), trace(mask)
    np.testing.assert_array_equal(found.vertices, expected.vertices)
    np.testing.assert_array_equal(found.parents, expected.parents)
    start, stop = sorted((data.draw(st.integers(0, height)), data.draw(st.integers(0, height))))
    np.testing.assert_array_equal(found.read_rows(start, stop), mask[start:stop])
    np.testing.assert_array_equal(np.vstack(list(found.bands(3))), mask)


@pytest.mark.parametrize("width", [8, 15, 16, 17, 64])
def test_widths_around_whole_words_and_more_rows_than_a_band(width):
    mask = np.random.default_rng(width).random((600, width)) < 0.55
    check(mask, trace(mask))


@settings(max_examples=150, deadline=None)
@given(noise_masks(), st.integers(0, 40), st.integers(0, 40))
def test_small_pieces_and_holes_go_as_in_scikit_image(mask, min_piece_px, min_hole_px):
    # Glass around the mask that is too large to be a hole for scikit-image: over 40 px even around 3 x 3.
    mask = np.pad(mask, 4)
    expected = remove_small_objects(mask, max_size=min_piece_px - 1, connectivity=1) if min_piece_px else mask
    if min_hole_px:
        expected = remove_small_holes(expected, max_size=min_hole_px - 1, connectivity=2)
    cleaned, anew = trace(mask).without_small(min_piece_px, min_hole_px), trace(expected)
    for name in ("vertices", "starts", "parents", "areas_px"):
        np.testing.assert_array_equal(getattr(cleaned, name), getattr(anew, name))
    # And once more: nothing of what is kept to go on with is stale.
    twice, fresh = (found.without_small(2 * min_piece_px, 2 * min_hole_px) for found in (cleaned, anew))
    np.testing.assert_array_equal(twice.vertices, fresh.vertices)


def test_glass_at_the_side_of_the_mask_is_no_hole():
    mask = np.ones((6, 6), bool)
    mask[0, 0], mask[3, 3] = False, False
    cleaned = trace(mask).without_small(1, 10).read_rows(0, 6)
    assert not cleaned[0, 0]
    assert cleaned[3, 3]


def test_an_island_in_a_filled_hole_joins_the_piece_and_one_too_small_is_gone_before():
    mask = ring(18, 12) | ring(4, 0)
    island = int(ring(4, 0).sum())
    hole = int(ring(12, 0).sum()) - island
    assert trace(mask).without_small(island, hole + 1).tissue_px == int(ring(18, 0).sum())
    assert trace(mask).without_small(island + 1, hole + 1).tissue_px == int(ring(18, 12).sum())
    assert trace(mask).without_small(island, hole).tissue_px == int(mask.sum())


def test_an_island_within_a_piece_that_is_taken_away_joins_the_piece_around_both():
    outer, between, island = ring(19, 13), ring(8, 6.6), ring(5.5, 0)
    glass = int((ring(13, 0) & ~island).sum())
    found = trace(outer | between | island)
    assert found.pieces == 3
    assert between.sum() < island.sum()
    assert found.without_small(int(island.sum()), glass).tissue_px == int((outer | island).sum())
    assert found.without_small(int(island.sum()), glass + 1).tissue_px == int(ring(19, 0).sum())


def test_totals():
    found = trace(ring(18, 12) | ring(4, 0))
    assert found.tissue_px == int((ring(18, 12) | ring(4, 0)).sum())
    assert found.hole_px == int(ring(12, 0).sum())


def test_what_cannot_be_is_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"rows are \(rows, 5\)"):
        OutlineTracer(5).add_rows(np.zeros((2, 4), bool))
    with pytest.raises(ValueError, match="rows are within 0 to 3"):
        trace(np.zeros((3, 4), bool)).read_rows(1, 4)
    monkeypatch.setattr(outlines, "_MOST_CORNERS", 1000)
    with pytest.raises(GigaslideError, match="at most 1000 corners; they have more by row"):
        trace(np.indices((100, 100)).sum(axis=0) % 2 == 0)
