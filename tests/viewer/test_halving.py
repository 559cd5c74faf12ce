import numpy as np
import pytest

from gigaslide.viewer.deep_zoom import DeepZoom
from gigaslide.viewer.halving import halve, pyramid


def test_means_of_blocks_and_what_is_there_at_odd_edges():
    pixels = np.array([[0, 4, 100], [8, 12, 200], [10, 30, 77]], np.uint8)
    assert halve(pixels).tolist() == [[6, 150], [20, 77]]


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (37, 64), (65, 3)])
def test_levels_have_the_sizes_of_deep_zoom(shape):
    zoom = DeepZoom(shape, 256)
    levels = pyramid(np.full((*shape, 3), 77, np.uint8), zoom.level_count)
    assert [level.shape[:2] for level in levels] == [zoom.level_shape(level) for level in range(zoom.level_count)]
    assert all((level == 77).all() for level in levels)


def test_a_share_is_kept_as_far_as_rounding_allows():
    plane = (np.random.default_rng(0).random((512, 512)) < 0.3).astype(np.uint8) * 255
    top = pyramid(plane, 10)[0]
    # Each of 9 halvings rounds by at most half of 1/255, upwards in a tie.
    assert abs(float(top[0, 0]) - plane.mean()) <= 9 * 0.5
