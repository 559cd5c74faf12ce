import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.demo import mosaic
from gigaslide.demo.noise import lattice
from gigaslide.demo.texture import ATLAS_PX
from gigaslide.geometry import Window

NAMES = ("fine", "fine_45", "coarse", "coarse_45", "cellular", "fat", "epithelium", "dark_epithelium", "keratin")
KINDS = st.sampled_from(["stroma", "fat", "epithelium", "keratin"])
# No level is 0: a pixel that nothing reached would be.
PALETTE = {
    name: np.random.default_rng(n).integers(1, 2**32, ATLAS_PX**2, dtype=np.uint32) for n, name in enumerate(NAMES)
}


def sample(window, kind, seed):
    y, x = lattice(window.y.start, window.y.stop), lattice(window.x.start, window.x.stop)
    return mosaic.Textures.at(PALETTE, seed, 2.0, window, y, x).sample(kind, 3)


@settings(max_examples=15, deadline=None)
@given(KINDS, st.integers(0, 2**40), st.integers(-90, 4000), st.integers(-90, 4000))
def test_a_window_is_the_crop_of_a_larger_one(kind, seed, row, column):
    large = Window.of(16 * row, 16 * column, 320, 480)
    small = Window.of(16 * (row + 7), 16 * (column + 11), 160, 80)
    crop = sample(large, kind, seed)[112:272, 176:256]
    np.testing.assert_array_equal(sample(small, kind, seed), crop)


def test_every_pixel_is_one_of_an_atlas():
    found = sample(Window.of(-512, 1024, 1024, 1536), "stroma", 5)
    known = np.unique(np.concatenate(list(PALETTE.values())))
    assert found.min() > 0
    assert np.isin(found, known).all()


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255), st.integers(0, 255))
def test_packing_keeps_eight_bits(red, green, blue, matter):
    colour = np.array([[[red, green, blue]]], dtype=np.float32) / 255
    packed = mosaic.pack(colour, np.array([[matter]], dtype=np.float32) / 255)
    assert packed.tolist() == [red + 256 * green + 65536 * blue + 2**24 * matter]
    assert mosaic.height(packed)[0] == pytest.approx(matter / 255, abs=1e-7)
