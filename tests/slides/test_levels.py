import pytest

from gigaslide.slides.levels import best_level, shape_at

PYRAMID = [(1001, 777), (250, 194), (62, 48)]


@pytest.mark.parametrize(
    ("scale", "shape"),
    [
        ((1, 1), (1001, 777)),
        ((4, 4), (250, 194)),
        ((4.05, 4.05), (247, 192)),
        ((16.2, 16.2), (62, 48)),
        ((4, 1), (250, 777)),
        ((1e9, 1e9), (1, 1)),
    ],
)
def test_a_level_is_taken_when_it_is_near(scale, shape):
    assert shape_at(scale, PYRAMID) == shape


@pytest.mark.parametrize(
    ("shape", "number"),
    [((1001, 777), 0), ((251, 195), 1), ((250, 194), 1), ((62, 194), 1), ((62, 48), 2), ((1, 1), 2)],
)
def test_the_coarsest_level_that_is_fine_enough(shape, number):
    assert best_level(shape, PYRAMID) == number
