import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.geometry import Window
from gigaslide.training.augment import AugmentedArea, augment
from tests.streaming.areas import random_area

IDENTITY = np.tile(np.arange(256, dtype=np.uint8), (3, 1))


@settings(deadline=None)
@given(st.booleans(), st.booleans(), st.integers(0, 9), st.integers(0, 12), st.integers(0, 9), st.integers(0, 12))
def test_a_window_of_the_flipped_area_is_a_window_of_the_flipped_image(
    flip_y: bool, flip_x: bool, top: int, left: int, height: int, width: int
) -> None:
    area = random_area(0, 19, 25)
    window = Window.of(top, left, height, width)
    flipped = AugmentedArea(area, flip_y, flip_x, IDENTITY)
    axes = [axis for axis, flip in enumerate((flip_y, flip_x)) if flip]
    assert np.array_equal(flipped.read_image(window), np.flip(area.image, axes)[window.slices])
    assert np.array_equal(flipped.read_mask(window), np.flip(area.mask, axes)[window.slices])


def test_pixels_and_labels_stay_together() -> None:
    area = random_area(0, 16, 16)
    window = Window.of(0, 0, 16, 16)
    for seed in range(8):
        augmented = augment(area, np.random.default_rng(seed))
        # The grey value tables are monotone: a darker pixel stays the darker one.
        plain = np.flip(area.image, [a for a, f in enumerate((augmented.flip_y, augmented.flip_x)) if f])
        for channel in range(3):
            order = np.argsort(plain[..., channel].ravel(), kind="stable")
            assert (np.diff(augmented.read_image(window)[..., channel].ravel()[order].astype(int)) >= 0).all()


def test_black_stays_black_and_glass_stays_bright() -> None:
    for seed in range(50):
        table = augment(random_area(0, 4, 4), np.random.default_rng(seed)).table
        assert (table[:, 0] == 0).all()
        assert (table[:, 255] >= np.floor(255 * 0.96)).all()


def test_the_same_generator_gives_the_same_visit() -> None:
    a, b = (augment(random_area(0, 4, 4), np.random.default_rng(5)) for _ in range(2))
    assert (a.flip_y, a.flip_x) == (b.flip_y, b.flip_x)
    assert np.array_equal(a.table, b.table)
