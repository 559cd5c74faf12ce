"""Masks and tiles for histolab: numbers that `Slide.extract_tile` takes; `real_tools.py` runs histolab itself."""

import csv
from pathlib import Path

import numpy as np
import openslide
from PIL import Image

from gigaslide.exports import histolab
from gigaslide.exports.request import PatchRequest
from tests.exports.slides import QUARTER_UM, blobs, export, share, slide

NO_THUMBNAIL = Path("nowhere")  # histolab has no use for it


def has_valid_coords(dimensions, x_ul, y_ul, x_br, y_br):
    """`Slide._has_valid_coords`."""
    width, height = dimensions
    return 0 <= x_ul < width and 0 <= x_br < width and 0 <= y_ul < height and 0 <= y_br < height


def test_histolab_takes_every_tile(tmp_path):
    # The last row and the last column of the grid end with the slide: histolab refuses those tiles.
    path = slide(tmp_path / "one.tif", [(1024, 1280)], **QUARTER_UM)
    mask = blobs((512, 640))
    mask[-40:, -40:] = True
    count = histolab.write(export(path, mask, PatchRequest(32, min_tissue=0.3)), tmp_path, NO_THUMBNAIL)
    with (tmp_path / "tiles" / "one.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == count > 10
    found = []
    with openslide.OpenSlide(path) as opened:
        for number, row in enumerate(rows):
            x_ul, y_ul, x_br, y_br = (int(row[key]) for key in ("x_ul", "y_ul", "x_br", "y_br"))
            assert has_valid_coords(opened.dimensions, x_ul, y_ul, x_br, y_br)
            assert (x_br - x_ul, y_br - y_ul, row["level"], row["tile_size"]) == (64, 64, "0", "64")
            assert row["filename"] == f"tile_{number}_level0_{x_ul}-{y_ul}-{x_br}-{y_br}.png"
            # Two decimals of a percentage; a little more, as halves are rounded in floating point.
            assert abs(float(row["tissue_percent"]) - 100 * share(mask, (1024, 1280), y_ul, x_ul, 64)) <= 0.005 + 1e-9
            found.append((y_ul, x_ul))
    grid = [(y, x) for y in range(0, 1024 - 64, 64) for x in range(0, 1280 - 64, 64)]
    assert found == [place for place in grid if share(mask, (1024, 1280), *place, 64) >= 0.3]


def test_the_mask_is_one_of_the_whole_slide(tmp_path):
    path = slide(tmp_path / "one.tif", [(1024, 1280)], **QUARTER_UM)
    mask = np.zeros((512, 640), bool)
    mask[64:256, 320:480] = True
    histolab.write(export(path, mask), tmp_path, NO_THUMBNAIL)
    binary = np.array(Image.open(tmp_path / "masks" / "one.png")) > 0
    np.testing.assert_array_equal(binary, mask[8::16, 8::16])
