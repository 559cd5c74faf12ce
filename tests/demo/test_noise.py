import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.demo import noise
from gigaslide.geometry import Interval, Window

SEEDS = st.integers(-(2**40), 2**40)


@given(SEEDS, st.integers(-3000, 70000), st.integers(1, 60), st.integers(0, 59), st.floats(2, 400))
def test_noise_of_a_part_is_the_part_of_the_noise(seed, start, size, cut, period):
    rows, columns = np.arange(start, start + 60.0), np.arange(7 - start, 7 - start + 50.0)
    whole = noise.noise(seed, rows, columns, period)
    part = Interval(cut, 60).clip(Interval(0, cut + size)).slice
    np.testing.assert_array_equal(noise.noise(seed, rows[part], columns[3:], period), whole[part, 3:])


@given(SEEDS, st.integers(-40, 4000), st.integers(-40, 4000), st.integers(1, 3), st.integers(1, 4))
def test_slow_noise_of_a_window_is_the_crop_of_a_larger_one(seed, row, column, height, width):
    block = noise.BLOCK_PX
    large = Window.of((row - 2) * block, (column - 1) * block, 6 * block, 7 * block)
    small = Window.of(row * block, column * block, height * block, width * block)

    def field(window):
        return noise.slow(
            seed,
            noise.lattice(window.y.start, window.y.stop),
            noise.lattice(window.x.start, window.x.stop),
            130.0,
            octaves=3,
        )

    step = block // noise.LATTICE_PX
    crop = field(large)[2 * step : (2 + height) * step + 1, step : (1 + width) * step + 1]
    np.testing.assert_array_equal(field(small), crop)


def test_noise_has_mean_zero_and_unit_standard_deviation():
    # 300 x 300 periods, sampled off the nodes. Neighbouring samples share nodes: the spline's weights have
    # sum 1 and sum of squares 0.479 per axis, so n samples are worth n * 0.479^2 = 20 700 independent ones;
    # 5 standard errors are 0.035 for the mean and 0.025 for the standard deviation.
    axis = (np.arange(300) + np.linspace(0, 1, 300)) * 10
    field = noise.noise(5, axis, axis, 10)
    assert abs(field.mean()) < 0.035
    assert abs(field.std() - 1) < 0.035


def test_seeds_give_unrelated_fields():
    axis = np.arange(0, 4000.0, 10)
    one, other = (noise.noise(seed, axis, axis, 10).ravel() for seed in (1, 2))
    # 160 000 samples, worth about 36 700: 5 standard errors of a correlation of zero are 0.026.
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.026


def test_fractal_adds_octaves():
    axis = np.arange(0, 64.0)
    octaves = [noise.noise(3 + 7919 * k, axis, axis, 32 / 2**k) * np.float32(0.25**k) for k in range(3)]
    expected = octaves[0] + octaves[1] + octaves[2]
    np.testing.assert_allclose(noise.fractal(3, axis, axis, 32, 3, 0.25), expected, rtol=0, atol=1e-6)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(-8, 8), st.integers(-8, 8))
def test_upsampling_keeps_planes(m, n, slope_y, slope_x):
    # Small integers over 4 are exact in float32.
    def plane(rows, columns, step):
        return (slope_y * np.arange(rows)[:, None] + slope_x * np.arange(columns)) * np.float32(step) + 1

    field = plane(m + 1, n + 1, 4).astype(np.float32)
    np.testing.assert_array_equal(noise.upsample(field), plane(4 * m, 4 * n, 1))
    np.testing.assert_array_equal(noise.upsample(field, closed=True), plane(4 * m + 1, 4 * n + 1, 1))


def test_a_lattice_reaches_both_ends():
    np.testing.assert_array_equal(noise.lattice(-16, 16), [-16, -12, -8, -4, 0, 4, 8, 12, 16])


@pytest.mark.parametrize(("start", "stop"), [(4, 16), (0, 20)])
def test_an_unaligned_lattice_is_refused(start, stop):
    with pytest.raises(ValueError, match="multiples of 16"):
        noise.lattice(start, stop)


def test_hashes_are_uniform_and_differ_by_key():
    values = noise.hash_unit(9, np.arange(200)[:, None], np.arange(200)[None, :]).ravel()
    assert len(np.unique(values)) == values.size
    counts, _ = np.histogram(values, bins=10, range=(0, 1))
    # Binomial: 4000 +- 60 a bin; five standard deviations.
    assert np.abs(counts - 4000).max() < 300
