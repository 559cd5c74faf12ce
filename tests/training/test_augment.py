import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.geometry import Window
from gigaslide.slides.density import density_table
from gigaslide.training.augment import AugmentedArea, augment
from tests.streaming.areas import random_area

PLAIN = density_table((243, 242, 240))


@settings(deadline=None)
@given(st.booleans(), st.booleans(), st.integers(0, 9), st.integers(0, 12), st.integers(0, 9), st.integers(0, 12))
def test_a_window_of_the_flipped_area_is_a_window_of_the_flipped_image(
    flip_y: bool, flip_x: bool, top: int, left: int, height: int, width: int
) -> None:
    area = random_area(0, 19, 25)
    window = Window.of(top, left, height, width)
    flipped = AugmentedArea(area, flip_y, flip_x, PLAIN)
    axes = [axis for axis, flip in enumerate((flip_y, flip_x)) if flip]
    assert np.array_equal(flipped.read_image(window), np.flip(area.image, axes)[window.slices])
    assert np.array_equal(flipped.read_mask(window), np.flip(area.mask, axes)[window.slices])


def test_stain_and_light_keep_the_order_of_grey_values_and_glass_is_glass() -> None:
    area = random_area(0, 4, 4)
    for seed in range(50):
        table = augment(area, np.random.default_rng(seed)).density_table
        assert (np.diff(table, axis=1) <= 0).all()  # a darker pixel is never seen as the paler one
        assert (table[np.arange(3), list(area.glass_rgb)] == 0).all()
        # Density over glass, of dark tissue: within the spread of stain, and of light, that is drawn.
        assert table[:, 60] == pytest.approx(PLAIN[:, 60], rel=0.2)


def test_the_same_generator_gives_the_same_visit() -> None:
    a, b = (augment(random_area(0, 4, 4), np.random.default_rng(5)) for _ in range(2))
    assert (a.flip_y, a.flip_x) == (b.flip_y, b.flip_x)
    assert np.array_equal(a.density_table, b.density_table)
