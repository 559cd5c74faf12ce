import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.geometry import Interval
from gigaslide.slides.resample import area_average, fine_interval, weights


@st.composite
def axes(draw):
    fine_px = draw(st.integers(1, 60))
    coarse_px = draw(st.integers(1, fine_px + 2))  # a level may be up to 1 % smaller than the grid
    start = draw(st.integers(0, coarse_px - 1))
    return Interval(start, draw(st.integers(start + 1, coarse_px))), coarse_px, fine_px


def oracle(fine, coarse_px):
    """Mean along the first axis on the finest grid that both share."""
    repeated = np.repeat(fine.astype(np.float64), coarse_px, axis=0)
    return repeated.reshape(coarse_px, fine.shape[0], *fine.shape[1:]).mean(axis=1)


@given(axes(), axes(), st.integers(0, 2**32 - 1))
def test_a_coarse_pixel_is_the_mean_of_what_it_covers(y, x, seed):
    fine = np.random.default_rng(seed).integers(0, 256, (y[2], x[2], 3), np.uint8)
    part = fine[fine_interval(*y).slice, fine_interval(*x).slice]
    mean = area_average(part, weights(*y), weights(*x))
    expected = oracle(oracle(fine, y[1]).transpose(1, 0, 2), x[1]).transpose(1, 0, 2)
    # Values up to 255, two sums of at most 61 float32 products each: rounding of at most 2 * 62 * 2^-24 * 255.
    np.testing.assert_allclose(mean, expected[y[0].slice, x[0].slice], rtol=0, atol=2 * 62 * 2**-24 * 255)


@given(axes())
def test_a_pixel_has_the_same_weights_in_every_window(axis):
    interval, coarse_px, fine_px = axis
    whole = weights(Interval(0, coarse_px), coarse_px, fine_px).toarray()
    part = weights(interval, coarse_px, fine_px).toarray()
    np.testing.assert_array_equal(part, whole[interval.slice, fine_interval(*axis).slice])
    assert np.count_nonzero(part) == np.count_nonzero(whole[interval.slice])
