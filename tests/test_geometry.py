import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.geometry import Interval, Window, grid, round_up, split

SIZES = st.integers(0, 200)
STEPS = st.integers(1, 50)


@given(SIZES, SIZES, STEPS, STEPS)
def test_every_pixel_is_in_exactly_one_window(height: int, width: int, step_y: int, step_x: int) -> None:
    seen = np.zeros((height, width), int)
    for window in grid((height, width), (step_y, step_x)):
        assert all(size > 0 for size in window.shape)
        seen[window.slices] += 1
    assert (seen == 1).all()


@given(SIZES, STEPS)
def test_split_is_in_order(size: int, step: int) -> None:
    intervals = split(size, step)
    assert [i.start for i in intervals] == list(range(0, size, step))


@given(st.integers(-100, 300), st.integers(0, 100), SIZES)
def test_clip_is_the_intersection(start: int, size: int, to: int) -> None:
    clipped = Interval(start, start + size).clip(Interval(0, to))
    assert set(range(clipped.start, clipped.stop)) == set(range(start, start + size)) & set(range(to))
    assert 0 <= clipped.start <= clipped.stop <= to


@given(st.integers(0, 10**6), STEPS)
def test_round_up(size: int, multiple: int) -> None:
    rounded = round_up(size, multiple)
    assert rounded % multiple == 0
    assert 0 <= rounded - size < multiple


def test_window_of_and_shift() -> None:
    window = Window.of(1, 2, 3, 4).shift(10, 20)
    assert window == Window(Interval(11, 14), Interval(22, 26))
    assert window.shape == (3, 4)


def test_a_backward_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="received start=2, stop=1"):
        Interval(2, 1)
