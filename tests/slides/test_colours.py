from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from gigaslide.slides.colours import implausible_colours, is_swapped, tint
from gigaslide.slides.reader import open_slide
from tests.slides.files import write_slide

GLASS, EOSIN, NUCLEUS, BROWN = (243, 243, 244), (220, 150, 195), (95, 70, 145), (120, 80, 50)
COUNTERSTAIN = (165, 180, 205)


def painted(tissue, dense, glass=GLASS):
    """Glass with a square of tissue, in it a tenth of dense spots; some noise, so that no two pixels are alike."""
    image = np.full((200, 200, 3), glass, np.float64)
    image[40:160, 40:160] = tissue
    image[40:160, 40:160][::3, ::3] = dense
    image += np.random.default_rng(0).normal(0, 3, image.shape)
    return image.clip(0, 255).astype(np.uint8)


def taken_for_ycbcr(rgb):
    return np.asarray(Image.frombytes("YCbCr", rgb.shape[1::-1], rgb.tobytes()).convert("RGB"))


def left_as_ycbcr(rgb):
    return np.asarray(Image.fromarray(rgb).convert("YCbCr"))


def swapped(rgb):
    return np.ascontiguousarray(rgb[..., ::-1])


EVERYWHERE = np.ones((200, 200), bool)
PLAUSIBLE = {
    "haematoxylin and eosin": painted(EOSIN, NUCLEUS),
    "brown": painted(COUNTERSTAIN, BROWN),
    "brown on eosin": painted(EOSIN, (130, 75, 70)),
    "pale": painted((238, 228, 236), (225, 215, 235)),
    "yellowish glass": painted(EOSIN, NUCLEUS, glass=(240, 235, 210)),
    "only glass": painted(GLASS, GLASS),
    "black": painted((0, 0, 0), (0, 0, 0), glass=(0, 0, 0)),
    "white": np.full((200, 200, 3), 255, np.uint8),
}


@pytest.mark.parametrize("name", PLAUSIBLE)
def test_stains_and_empty_slides_are_plausible(name):
    assert tint(PLAUSIBLE[name], EVERYWHERE) is None
    if name != "brown on eosin":  # the stated shortfall: brown nuclei on eosin look like swapped ones
        assert not is_swapped(PLAUSIBLE[name], EVERYWHERE)


@pytest.mark.parametrize("mistake", [taken_for_ycbcr, left_as_ycbcr])
@pytest.mark.parametrize("name", ["haematoxylin and eosin", "brown", "pale", "only glass", "white"])
def test_mixed_up_colour_spaces_are_a_tint(name, mistake):
    assert tint(mistake(PLAUSIBLE[name]), EVERYWHERE) is not None


def test_swapped_channels_are_found():
    assert is_swapped(swapped(PLAUSIBLE["haematoxylin and eosin"]), EVERYWHERE)


def test_invalid_pixels_do_not_count():
    image = painted(EOSIN, NUCLEUS, glass=(200, 200, 200))
    image[:20] = (255, 255, 180)
    valid = EVERYWHERE.copy()
    assert tint(image, valid) is not None
    valid[:20] = False
    assert tint(image, valid) is None
    assert tint(image, np.zeros_like(valid)) is None
    assert not is_swapped(image, np.zeros_like(valid))


def test_only_dicom_is_judged(tmp_path):
    slide = open_slide(write_slide(tmp_path / "slide.tif", taken_for_ycbcr(painted(EOSIN, NUCLEUS))))
    assert implausible_colours(slide) is None
    said = implausible_colours(replace(slide, vendor="dicom"))
    assert said is not None
    assert "slide.tif are implausible: its brightest parts are not near white but (255, 1" in said


def test_the_real_slide_is_plausible_and_its_mistakes_are_not(real_slide):
    rgb, valid = open_slide(real_slide).overview(1_000_000)
    assert tint(rgb, valid) is None
    assert not is_swapped(rgb, valid)
    assert is_swapped(swapped(rgb), valid)
    assert tint(taken_for_ycbcr(rgb), valid) is not None
    assert tint(left_as_ycbcr(rgb), valid) is not None
