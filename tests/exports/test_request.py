"""Which pixel size patches have."""

import numpy as np
import pytest

from gigaslide.errors import SlideError
from gigaslide.exports.request import PatchRequest
from tests.exports.slides import QUARTER_UM, export, slide
from tests.slides.files import HALF_UM

UNKNOWN = {"resolution": (1, 1), "resolutionunit": "NONE"}


@pytest.mark.parametrize(
    ("tags", "asked", "mask", "wanted", "scale"),
    [
        (QUARTER_UM, None, 0.5, 0.5, 2.0),
        (QUARTER_UM, 1.0, 0.5, 1.0, 4.0),
        (HALF_UM, None, 0.5, 0.5, 1.0),
        (HALF_UM, 0.504, None, 0.504, 1.0),  # within 1 %
        (HALF_UM, None, 0.25, None, 1.0),  # the mask was predicted at full resolution
        (HALF_UM, None, None, None, 1.0),
        (UNKNOWN, None, 0.5, None, 1.0),
    ],
)
def test_the_pixel_size_of_patches(tmp_path, tags, asked, mask, wanted, scale):
    path = slide(tmp_path / "one.tif", [(64, 64)], **tags)
    made = export(path, np.ones((64, 64), bool), PatchRequest(16, asked), mask)
    assert made.patch_mpp_um_per_px == wanted
    assert made.level0_px_per_patch_px == pytest.approx(scale, rel=1e-6)  # the tags are 32-bit fractions


@pytest.mark.parametrize(
    ("tags", "text"), [(UNKNOWN, "does not say how large its pixels are"), (HALF_UM, "coarser than patches of 0.25")]
)
def test_what_cannot_be_is_said(tmp_path, tags, text):
    path = slide(tmp_path / "one.tif", [(64, 64)], **tags)
    made = export(path, np.ones((64, 64), bool), PatchRequest(16, 0.25))
    with pytest.raises(SlideError, match=text):
        _ = made.level0_px_per_patch_px
