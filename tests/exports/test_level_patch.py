"""Which level of a pyramid a patch is taken from."""

import numpy as np
import pytest

from gigaslide.exports.level_patch import LevelPatch, level_patch, level_patches
from gigaslide.exports.request import PatchRequest
from tests.exports.slides import QUARTER_UM, export, slide


@pytest.fixture(scope="module")
def pyramid(tmp_path_factory):
    """Levels of 0.25 and 1 um per px."""
    return slide(tmp_path_factory.mktemp("slide") / "one.tif", [(1024, 1280), (256, 320)], **QUARTER_UM)


@pytest.mark.parametrize(
    ("mpp", "level", "size", "level0_px"),
    [
        (0.25, 0, 32, 32),
        (0.2525, 0, 32, 32),  # within 1 % of a level it is that level's pixels
        (0.26, 0, 33, 33),
        (0.5, 0, 64, 64),
        (0.98, 0, 125, 125),
        (0.995, 1, 32, 128),
        (1.0, 1, 32, 128),
        (2.0, 1, 64, 256),
    ],
)
def test_the_level_is_the_next_finer_one(pyramid, mpp, level, size, level0_px):
    made = export(pyramid, np.ones((512, 640), bool), PatchRequest(32, mpp, 1.0))
    assert level_patch(made) == LevelPatch(level, size, level0_px)
    patch, found = level_patches(made, "a tool")
    places = found.cells * patch.level0_px
    assert len(places) == (1024 // level0_px) * (1280 // level0_px)
    assert np.all(places + level0_px <= (1024, 1280))


def test_without_a_size_of_pixels_a_patch_is_of_level_0(tmp_path):
    path = slide(tmp_path / "one.tif", [(256, 256), (128, 128)], resolution=(1, 1), resolutionunit="NONE")
    made = export(path, np.ones((256, 256), bool), PatchRequest(64))
    assert made.reader.resolution.mpp_um_per_px is None
    assert level_patch(made) == LevelPatch(0, 64, 64)
