import io

import numpy as np
import pytest
from PIL import Image

from gigaslide.slides.reader import SlideReader, open_slide
from gigaslide.viewer import slide_tiles
from gigaslide.viewer.slide_tiles import SlideTiles, encode_jpeg
from tests.slides.files import damage_tile, write_slide

SHAPE = (512, 1024)


def pattern(shape):
    y, x = np.mgrid[: shape[0], : shape[1]]
    return np.stack([y * 255 / shape[0], x * 255 / shape[1], (y + x) % 200], axis=-1).astype(np.uint8)


def decoded(tile):
    return np.asarray(Image.open(io.BytesIO(tile)))


@pytest.fixture(autouse=True)
def little_may_be_read(monkeypatch):
    """As if the slide were a large one."""
    monkeypatch.setattr(slide_tiles, "_MOST_READ_PX", 40_000)
    monkeypatch.setattr(slide_tiles, "TILE_PX", 46)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Return a slide of one level."""
    return open_slide(write_slide(tmp_path_factory.mktemp("slides") / "slide.tif", pattern(SHAPE)))


def test_a_tile_has_the_slide_s_pixels(reader):
    tiles = SlideTiles(reader)
    level = tiles.zoom.level_count - 1
    window = tiles.zoom.window(level, 1, 2)
    rgb = pattern(SHAPE)[window.slices]
    assert tiles.read(level, 1, 2) == encode_jpeg(np.ascontiguousarray(rgb))
    assert tiles.read(level, 99, 9) is None


def test_low_levels_come_from_one_overview(reader, monkeypatch):
    tiles = SlideTiles(reader)
    asked = []
    read = SlideReader.read
    monkeypatch.setattr(SlideReader, "read", lambda self, window: asked.append((self, window)) or read(self, window))
    assert tiles.overview_share == 0
    blank = decoded(tiles.read(0, 0, 0))
    assert (blank == 255).all()
    assert not tiles.is_final(0)
    assert asked == []
    tiles.make_overview()
    covered = sum(window.shape[0] * window.shape[1] for _, window in asked)
    shape = tiles.zoom.level_shape(tiles._overview_level)
    assert covered == shape[0] * shape[1]  # the slide was gone through once
    asked.clear()
    for level in range(tiles._overview_level + 1):
        assert tiles.is_final(level)
        assert tiles.read(level, 0, 0) is not None
    assert asked == []


def test_no_tile_reads_more_of_the_slide_than_it_should(reader, monkeypatch):
    """After the overview, whatever tile is asked for."""
    tiles = SlideTiles(reader)
    tiles.make_overview()
    asked = []
    read = SlideReader.read
    monkeypatch.setattr(SlideReader, "read", lambda self, window: asked.append((self, window)) or read(self, window))
    for level in range(tiles.zoom.level_count):
        tiles.read(level, 0, 0)
    assert asked
    for grid, window in asked:
        ratio = grid.level0_px_per_px[0] * grid.level0_px_per_px[1]
        assert window.shape[0] * window.shape[1] * ratio <= slide_tiles._MOST_READ_PX


def test_the_overview_is_the_slide_averaged(reader):
    tiles = SlideTiles(reader)
    tiles.make_overview()
    shape = tiles.zoom.level_shape(5)
    assert shape == (16, 32)
    expected = pattern(SHAPE).reshape(16, 32, 32, 32, 3).mean(axis=(1, 3))
    found = tiles._levels[5].astype(float)
    # The overview is rounded once, and each halving after it.
    assert np.abs(found - expected).max() <= 0.5 * (tiles._overview_level - 5 + 1)
    assert tiles.read(5, 0, 0) == encode_jpeg(tiles._levels[5])


def test_a_slide_with_levels_needs_no_overview(tmp_path):
    levels = [np.ascontiguousarray(pattern(SHAPE)[::step, ::step]) for step in (1, 4, 16)]
    tiles = SlideTiles(open_slide(write_slide(tmp_path / "slide.tif", *levels)))
    assert tiles.overview_share == 1
    assert tiles.is_final(2)
    tiles.make_overview()
    assert decoded(tiles.read(2, 0, 0)).shape == (*tiles.zoom.level_shape(2), 3)


def test_a_damaged_part_is_blank_and_said(tmp_path):
    path = write_slide(tmp_path / "slide.tif", np.zeros((128, 128, 3), np.uint8))
    tiles = SlideTiles(open_slide(damage_tile(path, 0)))
    assert tiles.problem == ""
    rgb = decoded(tiles.read(tiles.zoom.level_count - 1, 0, 0))
    assert (rgb[:56, :56] > 200).all()
    assert (rgb[72:, 72:] < 50).all()
    assert str(path) in tiles.problem or "level 0" in tiles.problem


def test_closing_ends_the_overview(reader):
    tiles = SlideTiles(reader)
    tiles.close()
    tiles.make_overview()
    assert tiles.overview_share == 0
