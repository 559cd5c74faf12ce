import numpy as np
import pytest

from gigaslide.benchmarks.areas import Middle, Repeated
from gigaslide.errors import UsageError
from gigaslide.geometry import Window
from tests.streaming.areas import easy_area

WINDOWS = [Window.of(0, 0, 700, 300), Window.of(255, 257, 1, 1), Window.of(100, 500, 300, 600), Window.of(5, 5, 0, 3)]


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_of_a_repeated_area_is_that_of_the_whole(window: Window) -> None:
    area = Repeated((1000, 1200))
    whole = Window.of(0, 0, *area.shape)
    for read in (area.read_image, area.read_mask):
        np.testing.assert_array_equal(read(window), read(whole)[window.slices])
    assert area.read_image(window).dtype == np.uint8


def test_it_repeats_a_block_with_all_labels() -> None:
    area = Repeated((600, 600))
    mask = area.read_mask(Window.of(0, 0, 600, 600))
    np.testing.assert_array_equal(mask[:256, :256], mask[256:512, 256:512])
    assert set(np.unique(mask[:256, :256])) == {0, 1, 255}


def test_the_middle_of_an_area() -> None:
    area = easy_area(0, 96, 128)
    middle = Middle(area, (32, 64))
    window = Window.of(3, 5, 20, 30)
    np.testing.assert_array_equal(middle.read_image(window), area.image[35:55, 37:67])
    np.testing.assert_array_equal(middle.read_mask(window), area.mask[35:55, 37:67])


def test_an_area_that_is_too_small() -> None:
    with pytest.raises(UsageError, match="96 x 128 px, and 97 x 64 px are asked for"):
        Middle(easy_area(0, 96, 128), (97, 64))
