import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.evaluation import overview
from gigaslide.evaluation.overview import area_average, factor_for


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9), st.integers(1, 20), st.integers(0, 99))
def test_each_pixel_is_the_mean_of_its_block(height, width, factor, window_px, seed):
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview, "_WINDOW_PX", window_px)
        means = area_average(lambda window: image[window.slices], (height, width), factor)
    assert means.shape == (-(-height // factor), -(-width // factor), 3)
    for y in range(means.shape[0]):
        for x in range(means.shape[1]):
            block = image[y * factor : (y + 1) * factor, x * factor : (x + 1) * factor]
            # Sums are exact; one rounding to float32 (2^-24 relative).
            np.testing.assert_allclose(means[y, x], block.mean(axis=(0, 1)), rtol=2**-23)


def test_a_bool_image_gives_shares():
    image = np.zeros((4, 4), bool)
    image[:2, :1] = True
    np.testing.assert_array_equal(area_average(lambda w: image[w.slices], (4, 4), 2), [[0.5, 0], [0, 0]])


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 5000))
def test_factor_brings_the_longer_side_below_the_limit(height, width, longest_px):
    factor = factor_for((height, width), longest_px)
    assert -(-max(height, width) // factor) <= longest_px
    assert factor == 1 or -(-max(height, width) // (factor - 1)) > longest_px


@pytest.mark.parametrize("factor", [0, 4097])
def test_a_factor_out_of_range_is_refused(factor):
    with pytest.raises(ValueError, match="factor"):
        area_average(lambda w: np.zeros(w.shape, np.uint8), (4, 4), factor)


def test_uint8_means_are_rounded():
    image = np.array([[[1, 2, 3], [2, 2, 3]], [[2, 2, 3], [2, 2, 4]]], np.uint8)
    means = area_average(lambda w: image[w.slices], (2, 2), 2, np.uint8)
    assert means.dtype == np.uint8
    assert means.tolist() == [[[2, 2, 3]]]  # 1.75, 2, 3.25
