"""Patches and contours for TRIDENT, read as its own code reads them.

TRIDENT is on no package index: `read_coords` below is that of github.com/mahmoodlab/TRIDENT (version 0.3.0, commit
a91fa84), `level0_px` what its `WSIPatcher` makes of the attributes; `real_tools.py` runs TRIDENT itself.
"""

import json

import h5py
import numpy as np
import pytest
import shapely

from gigaslide.errors import SlideError
from gigaslide.exports import trident
from gigaslide.exports.request import PatchRequest
from tests.exports.slides import QUARTER_UM, blobs, export, share, slide
from tests.slides.files import HALF_UM


def read_coords(path):
    with h5py.File(path, "r") as file:
        return dict(file["coords"].attrs), file["coords"][:]


def level0_px(attributes):
    source, target = 10 / attributes["level0_magnification"], 10 / attributes["target_magnification"]
    return round(attributes["patch_size"] * (target / source))


@pytest.fixture
def thumbnail(tmp_path):
    (tmp_path / "thumbnail.jpg").write_bytes(b"a picture")
    return tmp_path / "thumbnail.jpg"


def test_trident_reads_the_patches_with_tissue(tmp_path, thumbnail):
    path = slide(tmp_path / "one.tif", [(1030, 1300)], **QUARTER_UM)
    mask = blobs((515, 650))
    made = export(path, mask, PatchRequest(patch_px=32, min_tissue=0.3))
    count = trident.write(made, tmp_path / "job", thumbnail)
    attributes, coords = read_coords(tmp_path / "job" / "20x_32px_0px_overlap" / "patches" / "one_patches.h5")
    assert (coords.dtype, coords.shape) == (np.int64, (count, 2))
    assert level0_px(attributes) == 64
    assert attributes == {  # coords_to_h5
        "patch_size": 32,
        "patch_size_level0": 32 * 40 // 20,
        "level0_magnification": 40,
        "target_magnification": 20,
        "overlap": 0,
        "name": "one",
        "savetodir": str(tmp_path / "job" / "20x_32px_0px_overlap"),
        "level0_width": 1300,
        "level0_height": 1030,
    }
    grid = [(x, y) for y in range(0, 1030 - 63, 64) for x in range(0, 1300 - 63, 64)]
    expected = [(x, y) for x, y in grid if share(mask, (1030, 1300), y, x, 64) >= 0.3]
    assert list(map(tuple, coords.tolist())) == expected  # row by row, as its patcher goes
    assert len(expected) > 20
    assert (tmp_path / "job" / "contours" / "one.jpg").read_bytes() == b"a picture"


def test_contours_are_around_the_tissue_in_pixels_of_level_0(tmp_path, thumbnail):
    path = slide(tmp_path / "one.tif", [(1024, 1280)], **QUARTER_UM)
    mask = np.zeros((512, 640), bool)
    mask[64:256, 320:480] = True
    mask[100:140, 400:440] = False
    trident.write(export(path, mask), tmp_path, thumbnail)
    (feature,) = json.loads((tmp_path / "contours_geojson" / "one.geojson").read_text())["features"]
    shape = shapely.geometry.shape(feature["geometry"])
    assert shape.equals(shapely.box(640, 128, 960, 512) - shapely.box(800, 200, 880, 280))


@pytest.mark.parametrize(
    ("um_per_px", "asked", "level0", "target", "folder", "size"),
    [
        (0.2527, 0.5, 40, 20, "20x_32px_0px_overlap", 64),
        (0.5, None, 20, 20, "20x_32px_0px_overlap", 32),
        (0.46, 0.5, 20, 20, "20x_32px_0px_overlap", 32),
        (0.25, 1.0, 40, 10, "10x_32px_0px_overlap", 128),
        (0.25, 4.0, 40, 2.5, "2.5x_32px_0px_overlap", 512),
        (1.0, None, 10, 10, "10x_32px_0px_overlap", 32),
    ],
)
def test_magnifications_are_those_of_trident(tmp_path, thumbnail, um_per_px, asked, level0, target, folder, size):
    tags = {"resolution": (1e4 / um_per_px, 1e4 / um_per_px), "resolutionunit": "CENTIMETER"}
    path = slide(tmp_path / "one.tif", [(520, 530)], **tags)
    made = export(path, np.ones((520, 530), bool), PatchRequest(32, asked))
    count = trident.write(made, tmp_path, thumbnail)
    attributes, coords = read_coords(tmp_path / folder / "patches" / "one_patches.h5")
    assert (attributes["level0_magnification"], attributes["target_magnification"]) == (level0, target)
    assert level0_px(attributes) == attributes["patch_size_level0"] == size
    assert count == len(coords) == (520 // size) * (530 // size)


def test_a_slide_without_tissue_has_files_without_patches(tmp_path, thumbnail):
    path = slide(tmp_path / "one.tif", [(300, 300)], **HALF_UM)
    assert trident.write(export(path, np.zeros((300, 300), bool)), tmp_path, thumbnail) == 0
    _, coords = read_coords(tmp_path / "20x_256px_0px_overlap" / "patches" / "one_patches.h5")
    assert coords.shape == (0, 2)
    assert json.loads((tmp_path / "contours_geojson" / "one.geojson").read_text())["features"] == []


@pytest.mark.parametrize(
    ("tags", "text"),
    [
        ({"resolution": (1, 1), "resolutionunit": "NONE"}, "TRIDENT has to know"),
        ({"resolution": (4000, 4000), "resolutionunit": "CENTIMETER"}, r"has 2\.5 um per px.*less than 2\.4 only"),
    ],
)
def test_a_slide_that_trident_does_not_take_is_refused(tmp_path, thumbnail, tags, text):
    path = slide(tmp_path / "one.tif", [(300, 300)], **tags)
    with pytest.raises(SlideError, match=text):
        trident.write(export(path, np.ones((300, 300), bool), mpp=None), tmp_path, thumbnail)


def test_names_are_those_of_trident(tmp_path):
    names = {"a.svs": "a", "a.b.tif": "a.b", "a.ome.tif": "a", "A.OME.TIFF": "A", "a.tiff": "a", "a": "a"}
    assert {name: trident.slide_id(tmp_path / name) for name in names} == names
