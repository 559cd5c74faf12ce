import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gigaslide.evaluation.counts import Counts, compare, compare_regions, count

SHAPE = (13, 17)
masks = arrays.arrays(np.uint8, SHAPE, elements=st.sampled_from([0, 1, 255]))
predictions = arrays.arrays(np.bool_, SHAPE)


def test_ratios_of_a_case_computed_by_hand():
    counts = Counts(true_positive=6, false_positive=2, false_negative=4, true_negative=8)
    assert counts.dice == 12 / 18
    assert counts.iou == 6 / 12
    assert counts.precision == 6 / 8
    assert counts.recall == 6 / 10
    assert counts.error_share == 6 / 20
    assert (counts.pixels, counts.tissue_pixels) == (20, 10)


def test_empty_against_empty_is_1():
    nothing = Counts(true_negative=5)
    assert (nothing.dice, nothing.iou, nothing.precision, nothing.recall) == (1, 1, 1, 1)
    assert Counts().dice == 1


@pytest.mark.parametrize("counts", [Counts(false_positive=3), Counts(false_negative=3)])
def test_nothing_against_something_is_0(counts):
    assert (counts.dice, counts.iou, counts.precision, counts.recall) == (0, 0, 0, 0)


@given(predictions, masks)
def test_dice_is_the_harmonic_mean_of_precision_and_recall(predicted, mask):
    counts = compare(predicted, mask)
    total = counts.precision + counts.recall
    expected = 2 * counts.precision * counts.recall / total if total else 0
    assert counts.dice == pytest.approx(expected, rel=1e-14)  # a few roundings of 2^-53


@given(predictions, masks)
def test_compare_counts_every_valid_pixel_once(predicted, mask):
    pairs = [(bool(p), int(t)) for p, t in zip(predicted.ravel(), mask.ravel(), strict=True)]
    expected = Counts(pairs.count((True, 1)), pairs.count((True, 0)), pairs.count((False, 1)), pairs.count((False, 0)))
    assert compare(predicted, mask) == expected


@given(predictions, masks, st.integers(0, SHAPE[0]))
def test_windows_add_up_to_the_whole(predicted, mask, cut):
    assert compare(predicted[:cut], mask[:cut]) + compare(predicted[cut:], mask[cut:]) == compare(predicted, mask)


def test_a_pixel_at_the_threshold_is_tissue():
    probability = np.array([[0.49, 0.5, 0.51]], np.float32)
    assert count(probability, np.ones((1, 3), np.uint8), 0.5) == Counts(true_positive=2, false_negative=1)


@given(predictions, masks, arrays.arrays(np.uint8, SHAPE, elements=st.sampled_from([0, 3, 255])))
def test_regions_are_the_counts_of_their_pixels(predicted, mask, regions):
    found = compare_regions(predicted, mask, regions)
    for label in (0, 3, 255):
        inside = np.where(regions == label, mask, 255).astype(np.uint8)
        assert found.get(label, Counts()) == compare(predicted, inside)
    assert sum(found.values(), Counts()) == compare(predicted, mask)


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match="same shape"):
        compare(np.zeros((2, 3), bool), np.zeros((3, 2), np.uint8))
