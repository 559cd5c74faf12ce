import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import find_peaks

from gigaslide.slides.glass import NO_GLASS, GlassMeter, _peaks


def _picture(tissue_share: float, tissue: tuple[int, int, int], glass: tuple[int, int, int]) -> NDArray[np.uint8]:
    random = np.random.default_rng(0)
    rows = np.arange(200) < 200 * tissue_share
    picture = np.where(rows[:, np.newaxis, np.newaxis], tissue, glass) + random.normal(0, 1.2, (200, 200, 3))
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


def glass_colour(picture: NDArray[np.uint8], valid: NDArray[np.bool_]) -> tuple[int, int, int]:
    # In two windows: sums add.
    meter = GlassMeter()
    for rows in (slice(0, 80), slice(80, None)):
        meter.add(picture[rows], valid[rows])
    return meter.colour()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.85])
@pytest.mark.parametrize("tissue", [(150, 80, 160), (236, 222, 230)])
@pytest.mark.parametrize("glass", [(243, 243, 241), (230, 226, 221), (252, 252, 252)])
def test_the_glass_is_found_beside_any_amount_of_dark_or_pale_tissue(
    share: float, tissue: tuple[int, int, int], glass: tuple[int, int, int]
) -> None:
    if tissue[0] > glass[0] - 8:
        tissue = tissue[0] - 12, tissue[1] - 8, tissue[2] - 20
    picture = _picture(share, tissue, glass)
    found = glass_colour(picture, np.ones((200, 200), bool))
    # The mean of some hundred pixels with noise of 1.2 grey values, rounded.
    assert np.abs(np.subtract(found, glass)).max() <= 1


def test_nothing_but_tissue_or_black_or_nothing_at_all_is_white() -> None:
    valid = np.ones((200, 200), bool)
    assert glass_colour(_picture(1, (150, 80, 160), (0, 0, 0)), valid) == NO_GLASS
    assert glass_colour(np.zeros((200, 200, 3), np.uint8), valid) == NO_GLASS
    assert glass_colour(np.full((200, 200, 3), 240, np.uint8), ~valid) == NO_GLASS


def test_invalid_white_around_the_scan_is_not_the_glass() -> None:
    picture = _picture(0.3, (150, 80, 160), (236, 236, 238))
    valid = np.ones((200, 200), bool)
    picture[:, 150:], valid[:, 150:] = 255, False
    assert np.abs(np.subtract(glass_colour(picture, valid), (236, 236, 238))).max() <= 1


@pytest.mark.parametrize("glass", [(255, 255, 255), (190, 190, 190), (254, 255, 253), (240, 238, 241)])
def test_a_slide_of_one_colour_is_of_that_glass(glass: tuple[int, int, int]) -> None:
    assert glass_colour(np.full((100, 90, 3), glass, np.uint8), np.ones((100, 90), bool)) == glass


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 5)
)  # whole numbers: flat tops, and peaks of one height
@settings(max_examples=300)
def test_peaks_are_those_of_scipy(heights: list[int], least: int) -> None:
    padded = np.pad(np.array(heights, np.float64), 1)
    expected, _ = find_peaks(padded, height=least, prominence=least)
    assert _peaks(padded, least) == expected.tolist()


def test_the_sums_are_those_of_every_fourth_pixel() -> None:
    random = np.random.default_rng(0)
    rgb = random.integers(150, 256, (101, 94, 3)).astype(np.uint8)
    valid = random.random((101, 94)) < 0.8
    meter = GlassMeter()
    meter.add(rgb, valid)
    pixels = rgb[::4, ::4][valid[::4, ::4]].astype(int)
    bright = pixels[pixels.min(axis=1) >= 190]
    assert meter._pixels == len(pixels)
    for brightness in range(766):
        of_it = bright[bright.sum(axis=1) == brightness]
        assert meter._bright[brightness] == len(of_it)
        assert meter._colour[brightness].tolist() == of_it.sum(axis=0).tolist()
