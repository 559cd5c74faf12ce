"""Patches for CLAM, read as its own data sets read them.

CLAM is on no package index: `Bag` and `bag_names` below do what `Whole_Slide_Bag_FP`, `Dataset_All_Bags` and
`extract_features_fp.py` of github.com/mahmoodlab/CLAM do with the files (commit 53e2409); `real_tools.py` runs those
themselves.
"""

import csv
from pathlib import Path

import h5py
import imagecodecs
import numpy as np
import openslide
import pytest
from PIL import Image

from gigaslide.errors import SlideError
from gigaslide.exports import clam
from gigaslide.exports.request import PatchRequest
from tests.exports.slides import QUARTER_UM, blobs, export, share, slide
from tests.slides.mirax import write_mrxs

NO_THUMBNAIL = Path("nowhere")  # CLAM has no use for it
LEVELS = [(1030, 1300), (258, 325)]


class Bag:
    def __init__(self, path, wsi):
        self.path, self.wsi = path, wsi
        with h5py.File(path, "r") as file:
            coords = file["coords"]
            self.patch_level, self.patch_size = coords.attrs["patch_level"], coords.attrs["patch_size"]
            self.length = len(coords)

    def __getitem__(self, index):
        with h5py.File(self.path, "r") as file:
            coord = file["coords"][index]
        image = self.wsi.read_region(coord, self.patch_level, (self.patch_size, self.patch_size)).convert("RGB")
        return image, coord


def bag_names(folder, slide_ext):
    with (folder / "process_list_autogen.csv").open(newline="") as file:
        return [row["slide_id"].split(slide_ext)[0] for row in csv.DictReader(file)]


def test_clam_reads_the_patches_with_tissue(tmp_path):
    path = slide(tmp_path / "one.tif", LEVELS, **QUARTER_UM)
    mask = blobs((515, 650))
    made = export(path, mask, PatchRequest(patch_px=32, min_tissue=0.3))
    count = clam.write(made, tmp_path / "clam", NO_THUMBNAIL)
    clam.finish(tmp_path / "clam", [path])
    (name,) = bag_names(tmp_path / "clam", ".tif")
    with openslide.OpenSlide(path) as wsi:
        bag = Bag(tmp_path / "clam" / "patches" / f"{name}.h5", wsi)
        assert bag.length == count > 20
        assert (bag.patch_level, bag.patch_size) == (0, 64)  # 0.5 um lies between levels of 0.25 and 1 um
        found = {}
        for index in range(bag.length):
            image, (x, y) = bag[index]
            found[int(y), int(x)] = image
            assert image.size == (64, 64)
            assert x + 64 <= 1300
            assert y + 64 <= 1030
        grid = [(y, x) for y in range(0, 1030 - 63, 64) for x in range(0, 1300 - 63, 64)]
        assert set(found) == {place for place in grid if share(mask, (1030, 1300), *place, 64) >= 0.3}
        # And the pixels are those of the slide there.
        whole = np.asarray(wsi.read_region((0, 0), 0, (1300, 1030)).convert("RGB"))
        for (y, x), image in found.items():
            np.testing.assert_array_equal(np.asarray(image), whole[y : y + 64, x : x + 64])


def test_the_file_is_as_clam_writes_it(tmp_path):
    path = slide(tmp_path / "one.tif", LEVELS, **QUARTER_UM)
    clam.write(export(path, np.ones((515, 650), bool), PatchRequest(64, 1.0)), tmp_path, NO_THUMBNAIL)
    with openslide.OpenSlide(path) as wsi, h5py.File(tmp_path / "patches" / "one.h5") as file:
        (width, height), (full_width, full_height) = wsi.level_dimensions[1], wsi.dimensions
        expected = {  # WholeSlideImage.process_contour
            "patch_size": 64,
            "patch_level": 1,
            "downsample": (full_width / float(width), full_height / float(height)),
            "downsampled_level_dim": tuple(np.array((width, height))),
            "level_dim": (width, height),
            "name": "one",
            "save_path": str(tmp_path / "patches"),
        }
        assert list(file) == ["coords"]
        coords = file["coords"]
        assert (coords.dtype, coords.ndim, coords.maxshape, coords.chunks) == (np.int64, 2, (None, 2), (32, 2))
        with h5py.File(tmp_path / "theirs.h5", "w") as theirs:
            theirs.attrs.update(expected)
            assert set(coords.attrs) == set(theirs.attrs)
            for name in expected:
                ours = coords.attrs[name]
                np.testing.assert_array_equal(ours, theirs.attrs[name])
                assert np.asarray(ours).dtype == np.asarray(theirs.attrs[name]).dtype, name


def test_places_are_those_of_openslide_where_a_part_was_scanned(tmp_path):
    levels = [np.full((512, 512, 3), 200, np.uint8), np.full((256, 256, 3), 200, np.uint8)]
    levels[0][320:352, 384:416] = (10, 20, 30)
    missing = {(row, column) for row in range(8) for column in range(8) if row < 2 or column < 3}
    path = write_mrxs(tmp_path / "one.mrxs", levels, 64, missing, imagecodecs.png_encode, "PNG")
    mask = np.zeros((512, 512), bool)
    mask[320:352, 384:416] = True
    made = export(path, mask, PatchRequest(32, min_tissue=1.0))
    assert made.reader.bounds_origin_yx_px == (128, 192)
    clam.write(made, tmp_path, NO_THUMBNAIL)
    with openslide.OpenSlide(path) as wsi:
        image, coord = Bag(tmp_path / "patches" / "one.h5", wsi)[0]
    assert coord.tolist() == [384, 320]
    assert np.all(np.asarray(image) == (10, 20, 30))


def test_a_slide_without_patches_has_no_file(tmp_path):
    path = slide(tmp_path / "one.tif", LEVELS, **QUARTER_UM)
    assert clam.write(export(path, np.zeros((515, 650), bool)), tmp_path / "clam", NO_THUMBNAIL) == 0
    assert not (tmp_path / "clam").exists()


def test_a_slide_that_openslide_does_not_open_is_refused(tmp_path):
    Image.fromarray(np.zeros((300, 300, 3), np.uint8)).save(tmp_path / "one.png")
    with pytest.raises(SlideError, match="CLAM opens slides with OpenSlide only"):
        clam.write(export(tmp_path / "one.png", np.ones((300, 300), bool), mpp=None), tmp_path, NO_THUMBNAIL)
