import itertools

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gigaslide.demo import texture
from gigaslide.errors import UsageError


@given(arrays(np.float32, (5, 3), elements=st.integers(0, 20)))
def test_the_seam_costs_least(error):
    keep = texture._seam(error)
    path = keep.argmax(axis=1)
    assert all(keep[row, column:].all() and not keep[row, :column].any() for row, column in enumerate(path))

    def cost(columns):
        return sum(error[row, column] for row, column in enumerate(columns))

    connected = (
        p for p in itertools.product(range(3), repeat=5) if all(abs(a - b) < 2 for a, b in itertools.pairwise(p))
    )
    assert cost(path) == min(map(cost, connected))
    assert all(abs(a - b) < 2 for a, b in itertools.pairwise(path.tolist()))


def test_atlases_are_complete(atlases):
    assert {"fine", "fine_45", "coarse", "coarse_45", "cellular", "fat", *texture.EPITHELIUM} == set(atlases)
    for atlas in atlases.values():
        assert atlas.shape == (texture.ATLAS_PX, texture.ATLAS_PX, 3)
        assert atlas.dtype == np.float32
        assert atlas.min() >= 0
        assert atlas.max() <= 1


def test_atlases_wrap_round(atlases):
    # Across the border pixels may differ as they do everywhere; half as much again would be a visible line.
    for name, atlas in atlases.items():
        for turned in (atlas, atlas.swapaxes(0, 1)):
            inside = np.abs(np.diff(turned, axis=0)).mean(axis=(1, 2))
            border = np.abs(turned[0] - turned[-1]).mean()
            assert border < 1.5 * inside.mean(), name


def test_pixels_are_real_ones(atlases, real_slide):
    glass = texture._SOURCE_GLASS
    image = tifffile.imread(real_slide, key=0)

    def code(colours):
        levels = colours.reshape(-1, 3).astype(np.int64)
        return levels[:, 0] << 16 | levels[:, 1] << 8 | levels[:, 2]

    crops = [image[t : t + h, x : x + w] for t, x, h, w in texture._EPITHELIUM]
    real = np.unique(np.concatenate([code(np.minimum(np.rint(glass), crop)) for crop in crops]))
    made = code(np.rint(atlases["epithelium"] * glass))
    # Only the pixels within one of a seam are mixed: a seam of about 64 px on two sides of each 64 x 64 px, 3 px
    # wide and wandering, are at most a fifth of them.
    assert np.isin(made, real).mean() > 0.8


def test_height_follows_matter(atlases):
    height = texture.height_of(atlases["coarse"])
    darkness = 1 - atlases["coarse"].mean(axis=2)
    assert height.min() == 0
    assert height.max() == 1
    assert np.corrcoef(height.ravel(), darkness.ravel())[0, 1] > 0.6


def test_atlases_are_the_same_every_time(atlases, real_slide):
    texture.load_atlases.cache_clear()
    again = texture.load_atlases(real_slide, 0.5)
    for name, atlas in atlases.items():
        np.testing.assert_array_equal(again[name], atlas)


@pytest.mark.parametrize("mpp", [0.1, 0.9])
def test_a_scale_without_texture_is_refused(real_slide, mpp):
    with pytest.raises(UsageError, match=f"received mpp_um_per_px={mpp}"):
        texture.load_atlases(real_slide, mpp)
