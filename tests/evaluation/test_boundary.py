import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gigaslide.evaluation.boundary import BoundaryCounts, boundary, count_boundary, halo_px
from gigaslide.geometry import Window, grid

SHAPE = (19, 23)
WHOLE = Window.of(0, 0, *SHAPE)
labels = arrays.arrays(np.uint8, SHAPE, elements=st.sampled_from([0, 0, 0, 1, 1, 1, 255]))
tolerances = st.sampled_from([0.0, 1.0, 1.5, 2.0, 2.3, 4.0, 7.9])


def is_boundary(image, y, x):
    if image[y, x] != 1:
        return False
    around = [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
    return any(0 <= v < image.shape[0] and 0 <= u < image.shape[1] and image[v, u] == 0 for v, u in around)


def by_definition(predicted, truth, tolerance):
    def edge(image):
        return [(y, x) for y in range(SHAPE[0]) for x in range(SHAPE[1]) if is_boundary(image, y, x)]

    def matched(points, others):
        return sum(any((y - v) ** 2 + (x - u) ** 2 <= tolerance**2 for v, u in others) for y, x in points)

    a, b = edge(predicted), edge(truth)
    return BoundaryCounts(len(a), matched(a, b), len(b), matched(b, a))


@settings(max_examples=40, deadline=None)
@given(labels, labels, tolerances)
def test_counts_follow_the_definition(predicted, truth, tolerance):
    assert count_boundary(predicted, truth, WHOLE, tolerance) == by_definition(predicted, truth, tolerance)


@settings(deadline=None)
@given(labels, labels, tolerances, st.integers(3, 25), st.integers(3, 25))
def test_windows_with_their_halo_add_up_to_the_whole_image(predicted, truth, tolerance, height, width):
    halo, total = halo_px(tolerance), BoundaryCounts()
    for window in grid(SHAPE, (height, width)):
        grown = Window.of(
            window.y.start - halo, window.x.start - halo, window.y.size + 2 * halo, window.x.size + 2 * halo
        ).clip(WHOLE)
        owned = window.shift(-grown.y.start, -grown.x.start)
        total += count_boundary(predicted[grown.slices], truth[grown.slices], owned, tolerance)
    assert total == count_boundary(predicted, truth, WHOLE, tolerance)


def test_a_shifted_square_matches_from_its_shift_on():
    truth, predicted = np.zeros((2, *SHAPE), np.uint8)
    truth[4:12, 4:12] = 1
    predicted[4:12, 7:15] = 1
    assert count_boundary(predicted, truth, WHOLE, 3).f_score == 1
    assert 0 < count_boundary(predicted, truth, WHOLE, 2).f_score < 1


def test_neither_the_image_edge_nor_invalid_pixels_are_a_boundary():
    image = np.ones(SHAPE, np.uint8)
    image[:, 10:] = 255
    assert not boundary(image).any()


def test_no_boundary_at_all_is_1_and_a_missing_one_is_0():
    glass, tissue = np.zeros(SHAPE, np.uint8), np.zeros(SHAPE, np.uint8)
    tissue[5:9, 5:9] = 1
    assert count_boundary(glass, glass, WHOLE, 2).f_score == 1
    assert count_boundary(glass, tissue, WHOLE, 2).f_score == 0
    assert count_boundary(tissue, glass, WHOLE, 2).f_score == 0


def test_f_score_of_a_case_computed_by_hand():
    counts = BoundaryCounts(predicted=10, predicted_matched=5, true=8, true_matched=6)
    assert (counts.precision, counts.recall) == (0.5, 0.75)
    assert math.isclose(counts.f_score, 0.6, rel_tol=1e-15)


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match="same shape"):
        count_boundary(np.zeros((2, 3), np.uint8), np.zeros((3, 2), np.uint8), WHOLE, 1)
