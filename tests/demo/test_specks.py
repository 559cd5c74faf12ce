import numpy as np
import pytest

from gigaslide.demo.specks import specks


def light(seed, dusty, y, x):
    image = np.ones((len(y), len(x), 3), dtype=np.float32)
    for speck in specks(seed, 0.5, dusty, y, x):
        image[speck.where] *= speck.transmittance()
    return image


@pytest.mark.parametrize("dusty", [False, True])
def test_a_window_is_the_crop_of_a_larger_one(dusty):
    y, x = np.arange(-300, 1700.0), np.arange(40, 2040.0)
    whole = light(8, dusty, y, x)
    for top, left in np.random.default_rng(0).integers(0, 1800, (10, 2)):
        rows, columns = slice(top, top + 200), slice(left, left + 150)
        np.testing.assert_array_equal(light(8, dusty, y[rows], x[columns]), whole[rows, columns])


def test_dust_is_small_and_there_is_more_of_it_on_a_dusty_slide():
    y, x = np.arange(0, 4000.0), np.arange(0, 4000.0)
    covered = {dusty: (light(3, dusty, y, x).min(axis=2) < 0.9).mean() for dusty in (False, True)}
    assert 0 < covered[False] < 0.002
    assert 3 * covered[False] < covered[True] < 0.02


def test_light_only_gets_less():
    image = light(5, True, np.arange(0, 2000.0), np.arange(0, 2000.0))
    assert image.max() == 1
    assert 0 < image.min() < 0.5
