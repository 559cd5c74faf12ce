"""The small mask: where at least half of a pixel is tissue, stretched over the whole slide."""

import numpy as np
import pytest

from gigaslide.exports import small_mask
from tests.exports.slides import QUARTER_UM, blobs, export, slide
from tests.slides.files import HALF_UM


@pytest.mark.parametrize(("tags", "by"), [(QUARTER_UM, 32), (HALF_UM, 16)])
def test_pixels_are_of_8_um(tmp_path, tags, by):
    path = slide(tmp_path / "one.tif", [(640, 960)], **tags)
    mask = blobs((640, 960))
    expected = mask.reshape(640 // by, by, 960 // by, by).mean((1, 3)) >= 0.5
    assert 0 < expected.mean() < 1
    np.testing.assert_array_equal(small_mask.small_mask(export(path, mask)) == 255, expected)


def test_sizes_that_do_not_divide_cover_the_slide_too(tmp_path):
    path = slide(tmp_path / "one.tif", [(645, 970)], **HALF_UM)
    mask = blobs((645, 970))
    found = small_mask.small_mask(export(path, mask)) == 255
    assert found.shape == (40, 61)
    # Sums up to each edge, between whole pixels by interpolation: exact but for rounding.
    sums = np.pad(mask.astype(float), ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    for axis, count in enumerate(found.shape):
        edges = np.arange(count + 1) * (mask.shape[axis] / count)
        sums = np.apply_along_axis(lambda line, at=edges: np.interp(at, np.arange(len(line)), line), axis, sums)
    shares = np.diff(np.diff(sums, axis=0), axis=1) / (mask.size / found.size)
    clear = np.abs(shares - 0.5) > 1e-9
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(found[clear], (shares >= 0.5)[clear])


def test_it_fits_memory_whatever_the_slide(tmp_path, monkeypatch):
    monkeypatch.setattr(small_mask, "_MOST_PX", 100)
    path = slide(tmp_path / "one.tif", [(640, 960)], resolution=(1, 1), resolutionunit="NONE")
    assert small_mask.small_mask(export(path, np.ones((640, 960), bool))).shape == (8, 12)
