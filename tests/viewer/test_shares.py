import numpy as np
import pytest

from gigaslide.geometry import Window
from gigaslide.viewer.shares import Shares, compare
from tests.viewer.sessions import SHAPE, masks


class ArrayLabels:
    """Labels in memory, looked up under the centre of a pixel; counts what is read."""

    kind = "array"

    def __init__(self, values, shape=None, asked=None):
        self.values, self.shape = values, shape or values.shape
        self.asked = [] if asked is None else asked

    def read(self, window):
        self.asked.append(window.shape)
        rows, columns = (
            (2 * np.arange(axis.start, axis.stop) + 1) * full // (2 * size)
            for axis, full, size in zip((window.y, window.x), self.values.shape, self.shape, strict=True)
        )
        return self.values[np.ix_(rows, columns)]

    def at_shape(self, shape):
        return ArrayLabels(self.values, shape, self.asked)


def test_disagreement_leaves_out_what_is_invalid_in_either():
    prediction = np.array([[0, 0, 0, 1, 1, 1, 255, 255, 255]], np.uint8)
    truth = np.array([[0, 1, 255, 0, 1, 255, 0, 1, 255]], np.uint8)
    flags = compare(prediction, truth)
    assert np.flatnonzero(flags["missed"]).tolist() == [1]
    assert np.flatnonzero(flags["false"]).tolist() == [3]
    assert np.flatnonzero(flags["truth_invalid"]).tolist() == [2, 5, 8]
    assert set(compare(prediction, None)) == {"prediction", "prediction_invalid"}
    assert compare(None, None) == {}


def test_the_finest_level_is_the_masks_pixel_by_pixel():
    prediction, truth = masks()
    shares = Shares(SHAPE, ArrayLabels(prediction), ArrayLabels(truth))
    shares.sample()
    planes = shares.read(shares.zoom.level_count - 1, Window.of(0, 0, *SHAPE))
    for name, flags in compare(prediction, truth).items():
        np.testing.assert_array_equal(planes[name], flags * 255)
        np.testing.assert_array_equal(shares.finest_sampled(name), flags * 255)


def test_low_levels_hold_shares_and_read_no_labels():
    shape = (256, 512)
    prediction, truth = masks(shape)
    labels = ArrayLabels(prediction), ArrayLabels(truth)
    shares = Shares(shape, *labels)
    shares.sample()
    for source in labels:
        source.asked.clear()
    for level in range(1, shares.zoom.level_count):  # of 1 x 2 px and more: blocks are whole
        planes = shares.read(level, Window.of(0, 0, *shares.zoom.level_shape(level)))
        for name, flags in compare(prediction, truth).items():
            # Each halving rounds by half of 1/255 at most.
            assert abs(planes[name].mean() - 255 * flags.mean()) <= 0.5 * (9 - level)
    assert labels[0].asked == labels[1].asked == []


def test_a_large_slide_is_sampled_within_its_bound_and_read_directly_where_it_is_finer():
    prediction, truth = masks()
    labels = ArrayLabels(prediction)
    shares = Shares(SHAPE, labels, ArrayLabels(truth), max_px=40_000)
    shares.sample()
    assert shares.sampled_shape == (150, 210)
    assert sum(height * width for height, width in labels.asked) == 150 * 210
    labels.asked.clear()
    window = Window.of(17, 33, 60, 70)
    planes = shares.read(shares.zoom.level_count - 1, window)
    np.testing.assert_array_equal(planes["prediction"], (prediction == 1)[window.slices] * 255)
    assert labels.asked == [(60, 70)]


def test_nothing_is_there_before_it_was_read():
    shares = Shares(SHAPE, ArrayLabels(masks()[0]), None)
    with pytest.raises(RuntimeError, match="sampled"):
        shares.read(0, Window.of(0, 0, 1, 1))
    with pytest.raises(RuntimeError, match="sampled"):
        shares.finest_sampled("prediction")
    shares.close()
    shares.sample()
    assert shares.share_done == 0
