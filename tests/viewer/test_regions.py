import numpy as np
import pytest

from gigaslide.viewer.regions import find_regions
from tests.viewer.sessions import disc


def plane(flags):
    return flags.astype(np.uint8) * 255


def test_areas_by_size_with_box_and_a_point_inside():
    shape = (100, 200)
    missed, false = disc(30, 40, 12, shape) | disc(70, 150, 20, shape), disc(80, 30, 15, shape)
    found = find_regions([("missed", plane(missed)), ("false", plane(false))], shape)
    assert [region.kind for region in found.largest] == ["missed", "false", "missed"]
    assert [region.area_px for region in found.largest] == [
        disc(70, 150, 20, shape).sum(),
        false.sum(),
        disc(30, 40, 12, shape).sum(),
    ]
    assert found.largest[0].box == (50, 130, 90, 170)
    # The deepest point of a disc is its centre; the distance is counted in whole pixels along the axes.
    assert np.hypot(found.largest[0].point[0] - 70, found.largest[0].point[1] - 150) < 3


def test_the_point_lies_in_the_area_also_where_the_middle_of_the_box_does_not():
    ring = disc(50, 50, 40, (100, 100)) & ~disc(50, 50, 30, (100, 100))
    (region,) = find_regions([("missed", plane(ring))], (100, 100)).largest
    assert ring[int(region.point[0]), int(region.point[1])]


def test_pixels_that_touch_at_a_corner_are_one_area():
    assert find_regions([("missed", plane(np.eye(5, dtype=bool)))], (5, 5)).largest[0].area_px == 5


def test_a_sampled_plane_counts_in_pixels_of_the_slide():
    flags = np.zeros((10, 20), bool)
    flags[2:4, 5:8] = True
    (region,) = find_regions([("missed", plane(flags))], (40, 60)).largest
    assert region.area_px == pytest.approx(6 * 4 * 3)
    assert region.box == pytest.approx((8, 15, 16, 24))


def test_those_that_are_not_listed_are_counted():
    flags = np.zeros((21, 21), bool)
    flags[::2, ::2] = True
    flags[0, :5] = True
    found = find_regions([("false", plane(flags))], flags.shape, most=3)
    assert found.largest[0].area_px == 5
    assert len(found.largest) == 3
    assert found.more_count == 11 * 11 - 2 - 3
    assert sum(region.area_px for region in found.largest) + found.more_area_px == flags.sum()


def test_nothing_differs():
    found = find_regions([("missed", np.zeros((4, 4), np.uint8))], (4, 4))
    assert (found.largest, found.more_count, found.more_area_px) == ((), 0, 0)
    assert find_regions([], (4, 4)).largest == ()
