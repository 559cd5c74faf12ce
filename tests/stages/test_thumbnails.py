import numpy as np
import pytest
from PIL import Image

from gigaslide.stages.check import THUMBNAIL_PX
from gigaslide.stages.thumbnails import Thumbnail, write_sheet

LONG = "a name of forty letters and a problem/with/a/path/longer/than/one/line/of/the/sheet.svs " * 9


@pytest.mark.parametrize("count", [1, 6, 7, 20])
def test_every_slide_has_its_place(tmp_path, count):
    image = np.full((THUMBNAIL_PX, 100, 3), (10, 120, 40), np.uint8)
    write_sheet(tmp_path / "deep/sheet.png", [Thumbnail(f"s{n}", image, "ok", None) for n in range(count)])
    sheet = np.asarray(Image.open(tmp_path / "deep/sheet.png"))
    assert (sheet == (10, 120, 40)).all(axis=-1).sum() == count * THUMBNAIL_PX * 100


@pytest.mark.parametrize("image", [None, np.zeros((5, 200, 3), np.uint8)])
def test_a_problem_is_written_in_red_and_stays_in_its_place(tmp_path, image):
    good = Thumbnail("b", np.full((200, 200, 3), 255, np.uint8), "ok", None)
    write_sheet(tmp_path / "sheet.png", [Thumbnail(LONG, image, "not added", LONG), good])
    sheet = np.asarray(Image.open(tmp_path / "sheet.png")).astype(int)
    red = sheet[..., 0] - sheet[..., 2] > 100
    assert red[:, :224].sum() > 1000
    assert not red[:, 224:].any()
