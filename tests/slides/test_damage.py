import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.geometry import Window
from gigaslide.slides.damage import Damage, read_around
from gigaslide.slides.source import Level, UnreadableError

SHAPE, TILE = (70, 90), (16, 20)


@given(
    st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8),
    st.integers(0, 60),
    st.integers(0, 80),
    st.integers(1, 70),
    st.integers(1, 90),
)
def test_all_but_the_corrupt_tiles_is_read(corrupt, top, left, height, width):
    pixels = np.random.default_rng(0).integers(0, 255, (*SHAPE, 3), np.uint8)
    lost_px = np.zeros(SHAPE, bool)
    for row, column in corrupt:
        lost_px[row * TILE[0] : (row + 1) * TILE[0], column * TILE[1] : (column + 1) * TILE[1]] = True
    window = Window.of(top, left, height, width).clip(Window.of(0, 0, *SHAPE))

    def read(part):
        if lost_px[part.slices].any():
            raise UnreadableError("broken")
        return pixels[part.slices], np.ones(part.shape, bool)

    damage = Damage()
    rgb, valid, lost = read_around(read, 3, Level(SHAPE, TILE), window, (255, 0, 7), damage)
    assert (lost is None) == (not lost_px[window.slices].any())
    lost = np.zeros(window.shape, bool) if lost is None else lost
    expected = np.where(lost_px[..., None], np.uint8([255, 0, 7]), pixels)
    np.testing.assert_array_equal(rgb, expected[window.slices])
    np.testing.assert_array_equal(lost, lost_px[window.slices])
    np.testing.assert_array_equal(valid, ~lost)
    rows, columns = np.nonzero(lost)
    tiles = {
        (3, int(row + window.y.start) // TILE[0], int(column + window.x.start) // TILE[1])
        for row, column in zip(rows, columns, strict=True)
    }
    assert damage.tiles == tiles
    assert damage.first == ("broken" if tiles else "")


def test_other_errors_come_through():
    def read(part):
        raise OSError("no such disk")

    with pytest.raises(OSError, match="no such disk"):
        read_around(read, 0, Level(SHAPE, TILE), Window.of(0, 0, 9, 9), (255, 255, 255), Damage())
