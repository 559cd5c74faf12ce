"""The geometry against OpenSlide's own generator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openslide.deepzoom import DeepZoomGenerator

from gigaslide.viewer.deep_zoom import DeepZoom


class SlideDouble:
    """What `DeepZoomGenerator` asks a slide for its geometry."""

    def __init__(self, height, width):
        self.level_dimensions = ((width, height),)
        self.level_downsamples = (1.0,)
        self.properties = {}
        self.dimensions = (width, height)

    def get_best_level_for_downsample(self, downsample):
        return 0


sizes = st.integers(1, 3000) | st.integers(1, 200_000)


@given(sizes, sizes, st.sampled_from([(254, 1), (256, 0), (10, 1)]), st.data())
def test_levels_and_tiles_are_those_of_openslide(height, width, tile, data):
    tile_px, overlap_px = tile
    zoom = DeepZoom((height, width), tile_px, overlap_px)
    theirs = DeepZoomGenerator(SlideDouble(height, width), tile_px, overlap_px)
    assert zoom.level_count == theirs.level_count
    level = data.draw(st.integers(0, zoom.level_count - 1))
    assert zoom.level_shape(level) == theirs.level_dimensions[level][::-1]
    down, across = zoom.tile_counts(level)
    assert (across, down) == theirs.level_tiles[level]
    column, row = data.draw(st.integers(0, across - 1)), data.draw(st.integers(0, down - 1))
    window = zoom.window(level, column, row)
    assert window.shape == theirs.get_tile_dimensions(level, (column, row))[::-1]
    assert zoom.window(level, across, row) is None
    assert zoom.window(level, column, down) is None


def test_tiles_without_overlap_cover_every_pixel_once():
    zoom = DeepZoom((61, 83), 16)
    for level in range(zoom.level_count):
        covered = np.zeros(zoom.level_shape(level), int)
        down, across = zoom.tile_counts(level)
        for row in range(down):
            for column in range(across):
                covered[zoom.window(level, column, row).slices] += 1
        assert (covered == 1).all()


def test_overlap_reaches_into_the_neighbours_only():
    zoom = DeepZoom((30, 30), 10, 2)
    assert zoom.window(zoom.level_count - 1, 1, 0).x.start == 8
    assert zoom.window(zoom.level_count - 1, 1, 0).x.stop == 22
    assert zoom.window(zoom.level_count - 1, 1, 0).y.start == 0


@pytest.mark.parametrize(("level", "column", "row"), [(-1, 0, 0), (99, 0, 0), (3, -1, 0), (3, 0, -1), (3, 10**30, 0)])
def test_there_is_no_other_tile(level, column, row):
    assert DeepZoom((61, 83), 16).window(level, column, row) is None


def test_finest_level_with_few_pixels():
    zoom = DeepZoom((1000, 1000), 256)
    assert zoom.level_shape(zoom.finest_level(1_000_000)) == (1000, 1000)
    assert zoom.level_shape(zoom.finest_level(999_999)) == (500, 500)
    assert zoom.finest_level(0) == 0
