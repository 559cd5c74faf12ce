import dataclasses

import numpy as np
import pytest

from gigaslide.errors import SlideError
from gigaslide.geometry import Interval, Window, grid
from gigaslide.prediction import survey as module
from gigaslide.prediction.survey import Validity, survey
from gigaslide.slides.glass import GlassMeter
from gigaslide.slides.reader import open_slide
from tests.slides.files import damage_tile, noise, write_slide

WINDOW_PX = 64


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(module, "WINDOW_PX", WINDOW_PX)


def quiet(share):
    pass


@pytest.mark.parametrize("shape", [(1, 1), (64, 64), (65, 130), (200, 63)])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_validity_gives_back_any_rows(shape, share):
    random = np.random.default_rng(0)
    valid = random.random(shape) >= share
    valid[: shape[0] // 2, :40] = True  # windows without a gap are not kept
    validity = Validity(shape)
    for window in grid(shape, (WINDOW_PX, WINDOW_PX)):
        validity.add(window, valid[window.slices])
    assert validity.invalid_px == np.count_nonzero(~valid)
    for _ in range(20):
        start, stop = sorted(random.integers(0, shape[0] + 1, 2))
        rows = validity.rows(Interval(int(start), int(stop)))
        expected = valid[start:stop]
        if rows is None:
            assert expected.all()
        else:
            np.testing.assert_array_equal(rows, expected)


def test_glass_is_that_of_prepare_whatever_the_threads(tmp_path):
    pixels = noise((300, 217))
    pixels[40:90] = (240, 239, 236)
    reader = open_slide(write_slide(tmp_path / "a.tif", pixels))
    meter = GlassMeter()
    meter.add(*reader.read(Window.of(0, 0, *reader.shape)))
    for threads in (1, 3):
        assert survey(reader, 0.0, threads, quiet).glass_rgb == meter.colour()


def test_lost_tiles_are_counted_once_and_not_valid(tmp_path):
    path = damage_tile(write_slide(tmp_path / "a.tif", noise((256, 256))), 5)
    reader = open_slide(path)
    tile = reader.levels[0].tile
    columns = 256 // tile[1]
    found = survey(reader, 0.5, 2, quiet)
    assert found.damage.tiles == {(0, 5 // columns, 5 % columns)}
    assert found.damage.lost_px == found.validity.invalid_px == tile[0] * tile[1]
    with pytest.raises(SlideError, match=r"has at least 1 corrupt tile.*may be lost: copy the slide again"):
        survey(reader, tile[0] * tile[1] / 256**2 - 1e-6, 2, quiet)
    with pytest.raises(SlideError, match="cannot be read"):
        survey(reader, 0.0, 2, quiet)


def test_progress_ends_at_one(tmp_path):
    shares = []
    reader = open_slide(write_slide(tmp_path / "a.tif", noise((200, 200))))
    survey(reader, 0.0, 2, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) == 16


def test_another_grid_is_looked_at_on_that_grid(tmp_path):
    reader = open_slide(write_slide(tmp_path / "a.tif", noise((200, 180))))
    small = dataclasses.replace(reader, shape=(50, 45))
    assert survey(small, 0.0, 1, quiet).validity.shape == (50, 45)
