import numpy as np
import pytest

from gigaslide.demo import stains

SEEDS = range(12)


def generator(seed):
    return np.random.default_rng(seed)


def test_no_change_of_stain_is_no_change_of_colour():
    colours = np.random.default_rng(0).uniform(0.06, 1, (50, 3)).astype(np.float32)
    # exp(log) in float32: a few units in the last place of 1, 6e-8 each.
    np.testing.assert_allclose(stains.Stain(np.eye(3)).apply(colours), colours, rtol=0, atol=1e-6)


def test_densities_add_as_beer_and_lambert_say():
    random = np.random.default_rng(1)
    stain = stains.Stain(random.uniform(0.1, 0.5, (3, 3)))
    one, other = random.uniform(0.4, 1, (2, 50, 3)).astype(np.float32)
    together = stain.apply(one * other)
    np.testing.assert_allclose(together, stain.apply(one) * stain.apply(other), rtol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_glass_stays_glass(seed):
    drawn = [stains.haematoxylin_eosin(generator(seed)), stains.pale(generator(seed))]
    for stain in [*drawn, *stains.immunohistochemistry(generator(seed))]:
        np.testing.assert_array_equal(stain.apply(np.ones((1, 3), np.float32)), 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_stains_look_as_their_names_say(atlases, seed):
    collagen, epithelium = (atlases[name].reshape(-1, 3)[::97] for name in ("fine", "epithelium"))
    stain = stains.haematoxylin_eosin(generator(seed))
    red, green, blue = stain.apply(collagen).mean(0)
    assert red > green < blue  # pink
    assert stain.apply(epithelium).mean() < stain.apply(collagen).mean() < 0.95

    contrast = 1 - stains.pale(generator(seed)).apply(collagen).mean()
    assert 0.01 < contrast < 0.06  # about 3 %

    negative, positive = stains.immunohistochemistry(generator(seed))
    red, green, blue = negative.apply(collagen).mean(0)
    assert blue > red  # pale blue
    assert negative.apply(collagen).mean() > 0.75
    red, green, blue = positive.apply(epithelium).mean(0)
    assert red > green > blue  # brown
    assert blue < 0.65


def test_laboratories_differ(atlases):
    collagen = atlases["fine"].reshape(-1, 3)[::97]
    means = np.array([stains.haematoxylin_eosin(generator(seed)).apply(collagen).mean(0) for seed in range(40)])
    # By more than a tenth of the full scale in green: more than between two scans of one slide.
    assert np.ptp(means, axis=0)[1] > 0.1
