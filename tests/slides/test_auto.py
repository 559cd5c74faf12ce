import numpy as np
import pytest

from gigaslide.geometry import Window
from gigaslide.slides.auto import auto_mask, saturation
from gigaslide.slides.reader import open_slide

PINK, GLASS = (220, 150, 190), (243, 242, 243)


def slide(tissue, colour=PINK, noise=2):
    rng = np.random.default_rng(0)
    rgb = np.where(tissue[..., None], colour, GLASS) + rng.integers(-noise, noise + 1, (*tissue.shape, 3))
    return np.clip(rgb, 0, 255).astype(np.uint8)


def disc(shape, centre, radius):
    y, x = np.ogrid[: shape[0], : shape[1]]
    return (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < radius**2


def dice(a, b):
    return 2 * (a & b).sum() / (a.sum() + b.sum())


def test_saturation_is_that_of_hsv_for_bright_pixels():
    rgb = np.array([[[200, 100, 150], [128, 0, 0], [255, 255, 255], [0, 0, 0]]], np.uint8)
    np.testing.assert_allclose(saturation(rgb), [[0.5, 1, 0, 0]])


def test_dark_noise_is_no_colour():
    assert saturation(np.array([[[4, 0, 2]]], np.uint8)) == pytest.approx(4 / 128)  # HSV says 1


@pytest.mark.parametrize("mpp_um_per_px", [1.0, 2.0, 4.0, None])
def test_a_disc_of_tissue_is_found(mpp_um_per_px):
    truth = disc((300, 400), (150, 200), 80)
    # Blur moves the border of a disc by less than its sigma, 6 um: 6 px at 1 um per px, of a radius of 80.
    assert dice(auto_mask(slide(truth), mpp_um_per_px), truth) > 1 - 6 / 80


def test_specks_go_and_small_holes_close():
    truth = disc((300, 400), (150, 200), 80)
    picture = truth & ~disc(truth.shape, (150, 200), 8) | disc(truth.shape, (30, 30), 8)
    mask = auto_mask(slide(picture), 2.0)  # 8 px are 804 um2 times 4: below 5000 um2
    assert mask[150, 200]
    assert not mask[:60, :60].any()


@pytest.mark.parametrize("value", [0, 243, 255])
def test_one_colour_is_no_tissue(value):
    assert not auto_mask(np.full((50, 60, 3), value, np.uint8), 2.0).any()


@pytest.mark.parametrize("colour", [GLASS, (3, 3, 3)])
def test_noise_alone_is_no_tissue(colour):
    nothing = np.zeros((200, 200), bool)
    rgb = slide(nothing)
    black = np.clip(np.random.default_rng(1).integers(0, 7, (200, 200, 3)), 0, 255).astype(np.uint8)
    assert not auto_mask(rgb if colour == GLASS else black, 2.0).any()


def test_the_real_slide(real_slide):
    reader = open_slide(real_slide).at_mpp(2.0)
    mask = auto_mask(reader.read(Window.of(0, 0, *reader.shape))[0], 2.0)
    assert mask.shape == (740, 554)
    assert not mask[5:240, 5:180].any()  # glass, a speck of debris
    assert mask[620:640, 200:280].all()  # dermis
    assert 0.25 < mask.mean() < 0.45
