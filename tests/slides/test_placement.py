import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.geometry import Window
from gigaslide.slides.labels import OverviewLabels
from gigaslide.slides.placement import densest, place_area


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_no_other_place_holds_more(height, width, data):
    tissue = np.random.default_rng(data.draw(st.integers(0, 999))).random((height, width)) < 0.3
    area = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    row, column = densest(tissue, area)
    held = {
        (r, c): int(tissue[r : r + area[0], c : c + area[1]].sum())
        for r in range(height - area[0] + 1)
        for c in range(width - area[1] + 1)
    }
    assert held[row, column] == max(held.values())


def test_equal_places_are_decided_by_the_centre_of_the_tissue():
    tissue = np.zeros((20, 20), bool)
    tissue[8:10, 3:5] = True
    assert densest(tissue, (6, 6)) == (6, 1)  # the block is in the middle of the area
    assert densest(np.zeros((20, 20), bool), (6, 6)) == (7, 7)  # no tissue: the middle of the picture


def test_an_area_lies_on_the_tissue_of_a_large_slide():
    overview = np.zeros((100, 200), bool)
    overview[60:80, 150:180] = True
    shape = 10000, 20000
    area = place_area(OverviewLabels(overview, shape), shape, (2000, 3000))
    # Looked at on a grid of 4 million pixels: 7.07 px of the slide each.
    assert abs(area.y.start - 6000) <= 8
    assert abs(area.x.start - 15000) <= 8
    assert area.shape == (2000, 3000)


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 9000), st.integers(1, 9000))
def test_an_area_lies_inside_the_slide_and_is_no_larger(height, width, area_height, area_width):
    labels = OverviewLabels(np.ones((1, 1), bool), (height, width))
    area = place_area(labels, (height, width), (area_height, area_width))
    assert area.clip(Window.of(0, 0, height, width)) == area
    assert area.shape == (min(height, area_height), min(width, area_width))
