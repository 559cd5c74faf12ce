"""Masks, points and contours for tiatoolbox, read as its extractors read them; `real_tools.py` runs tiatoolbox."""

import csv
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import shapely
from PIL import Image

from gigaslide.exports import tiatoolbox
from gigaslide.exports.patches import find_patches
from gigaslide.exports.request import PatchRequest
from gigaslide.masks.outlines import trace
from tests.exports.slides import QUARTER_UM, blobs, export, share, slide

NO_THUMBNAIL = Path("nowhere")  # tiatoolbox has no use for it


def starts(path, patch_px):
    """What `PointsPatchExtractor` makes of a table: (y, x) of the first pixels."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(set(row) == {"x", "y", "class"} for row in rows)
    middle = int((patch_px - 1) / 2)
    return [(int(row["y"]) - middle, int(row["x"]) - middle) for row in rows]


@pytest.mark.parametrize("patch_px", [32, 33])
def test_points_are_in_pixels_of_the_patches(tmp_path, patch_px):
    path = slide(tmp_path / "one.tif", [(1030, 1300)], **QUARTER_UM)
    mask = blobs((515, 650))
    count = tiatoolbox.write(export(path, mask, PatchRequest(patch_px, min_tissue=0.3)), tmp_path, NO_THUMBNAIL)
    found = starts(tmp_path / f"points_0.5mpp_{patch_px}px" / "one.csv", patch_px)
    assert len(found) == count > 20
    grid = [(y, x) for y in range(0, 515 - patch_px + 1, patch_px) for x in range(0, 650 - patch_px + 1, patch_px)]
    assert found == [place for place in grid if share(mask, (515, 650), *place, patch_px) >= 0.3]


def test_a_patch_is_as_large_as_the_name_of_its_folder_says(tmp_path):
    tags = {"resolution": (1e4 / 0.499, 1e4 / 0.499), "resolutionunit": "CENTIMETER"}
    path = slide(tmp_path / "one.tif", [(700, 900)], **tags)
    mask = blobs((700, 900))
    tiatoolbox.write(export(path, mask, PatchRequest(32)), tmp_path, NO_THUMBNAIL)
    found = starts(tmp_path / "points_0.5mpp_32px" / "one.csv", 32)
    size = 32 * Fraction(500, 499)
    expected = find_patches(trace(mask), (700, 900), (size, size), 0.25)
    assert found == [(32 * row, 32 * column) for row, column in expected.cells.tolist()]


def test_without_a_size_of_pixels_points_are_of_level_0(tmp_path):
    path = slide(tmp_path / "one.tif", [(128, 128)], resolution=(1, 1), resolutionunit="NONE")
    assert tiatoolbox.write(export(path, np.ones((128, 128), bool), PatchRequest(64)), tmp_path, NO_THUMBNAIL) == 4
    assert starts(tmp_path / "points_baseline_64px" / "one.csv", 64) == [(0, 0), (0, 64), (64, 0), (64, 64)]


def test_mask_and_annotations_cover_the_whole_slide(tmp_path):
    path = slide(tmp_path / "one.tif", [(1024, 1280)], **QUARTER_UM)
    mask = np.zeros((512, 640), bool)
    mask[64:256, 320:480] = True
    tiatoolbox.write(export(path, mask), tmp_path, NO_THUMBNAIL)
    # A patch extractor cuts the mask by shares of its height and width, and counts what is not 0.
    picture = np.array(Image.open(tmp_path / "masks" / "one.png"))
    assert picture.shape == (32, 40)
    assert set(np.unique(picture)) == {0, 255}
    np.testing.assert_array_equal(picture > 0, mask[8::16, 8::16])
    (feature,) = json.loads((tmp_path / "annotations" / "one.geojson").read_text())["features"]
    assert isinstance(feature["properties"], dict)
    assert shapely.geometry.shape(feature["geometry"]).equals(shapely.box(640, 128, 960, 512))


def test_without_tissue_there_are_no_points(tmp_path):
    path = slide(tmp_path / "one.tif", [(300, 300)], **QUARTER_UM)
    assert tiatoolbox.write(export(path, np.zeros((150, 150), bool)), tmp_path, NO_THUMBNAIL) == 0
    assert (tmp_path / "points_0.5mpp_256px" / "one.csv").read_text() == "x,y,class\n"
    assert not np.any(np.array(Image.open(tmp_path / "masks" / "one.png")))
