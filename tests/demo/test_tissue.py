import numpy as np
import pytest

from gigaslide.demo import tissue
from gigaslide.demo.mosaic import Textures, pack
from gigaslide.demo.noise import lattice
from gigaslide.demo.shapes import Piece, Regions
from gigaslide.geometry import Window

WINDOW = Window.of(0, 0, 64, 64)
Y = X = lattice(0, 64)
UM = 2.0


def field(value):
    return np.full((17, 17), value, dtype=np.float32)


def textures(transmittance, height):
    """Return textures of one colour and one height for all kinds."""
    colour = np.full((1024, 1024, 3), transmittance, dtype=np.float32)
    flat = pack(colour, np.full((1024, 1024), height, dtype=np.float32))
    names = ("fine", "fine_45", "coarse", "coarse_45", "cellular", "fat", "epithelium", "dark_epithelium", "keratin")
    return Textures.at(dict.fromkeys(names, flat), 1, UM, WINDOW, Y, X)


def slope():
    """Return a distance that rises by one px per px from the left, zero at column 32."""
    return np.repeat((X - 32).astype(np.float32)[None, :], 17, axis=0)


def regions(distance, fray=0.0):
    return Regions(distance, field(-64), field(-64), field(-64), field(fray))


def test_an_outline_is_one_pixel_wide_and_half_covered_at_distance_zero():
    _, coverage, _ = tissue.transmit(textures(0.5, 0.5), regions(slope()), Y, X, [])
    np.testing.assert_array_equal(coverage[0, 30:35], [0, 0, 0.5, 1, 1])


@pytest.mark.parametrize(("height", "shift"), [(1.0, 14), (0.0, -14)])
def test_fibres_stick_out_and_gaps_cut_in(height, shift):
    _, coverage, _ = tissue.transmit(textures(0.5, height), regions(slope(), fray=1.0), Y, X, [])
    # Half of FRAY_UM at 2 px per um.
    assert shift == (14 if height else -14)
    np.testing.assert_array_equal(coverage[0] >= 0.5, np.arange(64) >= 32 - shift)


def test_a_fold_is_darker_than_the_tissue_beside_it():
    fold = Piece(32.0, 32.0, 0.0, 100.0, 10.0, 0.0, 1.0, 0.0)
    channels, coverage, folded = tissue.transmit(textures(0.6, 0.5), regions(field(60)), Y, X, [fold])
    assert coverage.min() == 1
    inside, outside = channels[1][32], channels[1][2]
    assert inside.max() < 0.75 * outside.min()
    np.testing.assert_array_equal(folded[:, 8], np.abs(Y - 32) < 10)


def test_no_tissue_no_change():
    channels, coverage, folded = tissue.transmit(textures(0.5, 1.0), regions(field(-20), fray=1.0), Y, X, [])
    assert coverage.max() == 0
    assert min(channel.min() for channel in channels) == 1
    assert not folded.any()
    assert tissue.visible(regions(field(-10)), UM)
    assert not tissue.visible(regions(field(-28)), UM)
