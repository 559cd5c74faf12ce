from types import SimpleNamespace

import numpy as np
import openslide
import pytest
import tifffile

from gigaslide import config
from gigaslide.classes import INVALID, TISSUE
from gigaslide.geometry import Window
from gigaslide.masks.mask_tiff import INVALID_RGB, TISSUE_RGB, write_mask
from gigaslide.masks.pyramid import level_shapes
from gigaslide.slides.labels import open_labels
from gigaslide.slides.mask_image import MaskImage

SHAPE = (2201, 1303)
LABELS = config.load().labels


def smaller(labels):
    """The rule of mask_tiff.py, counted block by block."""
    height, width = labels.shape
    padded = np.pad(labels.astype(int), ((0, height % 2), (0, width % 2)), constant_values=-1)
    blocks = padded.reshape(padded.shape[0] // 2, 2, -1, 2).swapaxes(1, 2).reshape(padded.shape[0] // 2, -1, 4)
    pixels, tissue, invalid = ((blocks >= 0).sum(axis=2), *((blocks == value).sum(axis=2) for value in (1, 255)))
    is_tissue = (tissue > 0) & (tissue >= pixels - invalid - tissue)
    return np.where(invalid > pixels / 2, 255, is_tissue).astype(np.uint8)


@pytest.fixture(scope="module")
def labels():
    return np.random.default_rng(0).choice(np.array([0, 1, 255], np.uint8), SHAPE)


@pytest.fixture(scope="module")
def path(labels, tmp_path_factory):
    path = tmp_path_factory.mktemp("mask") / "mask.tif"
    write_mask(path, [labels[:1000], labels[1000:]], labels.shape, (0.499, 0.499))
    return path


@pytest.fixture(scope="module")
def levels(labels):
    found = [labels]
    while len(found) < len(level_shapes(SHAPE)):
        found.append(smaller(found[-1]))
    return found


def test_tifffile_reads_the_values_of_every_level(path, levels):
    assert len(levels) == 3
    for number, level in enumerate(levels):
        np.testing.assert_array_equal(tifffile.imread(path, level=number), level)


def test_openslide_shows_every_level_in_colours(path, levels):
    with openslide.OpenSlide(path) as slide:
        assert slide.level_dimensions == tuple(level.shape[::-1] for level in levels)
        assert float(slide.properties[openslide.PROPERTY_NAME_MPP_X]) == pytest.approx(0.499, rel=1e-6)
        for number, level in enumerate(levels):
            shown = np.asarray(slide.read_region((0, 0), number, slide.level_dimensions[number]))
            expected = np.full((*level.shape, 4), 255, np.uint8)
            expected[level == TISSUE, :3] = TISSUE_RGB
            expected[level == INVALID, :3] = INVALID_RGB
            np.testing.assert_array_equal(shown, expected)


def test_the_package_reads_it_as_mask_and_as_annotation(path, labels):
    whole = Window.of(0, 0, *SHAPE)
    np.testing.assert_array_equal(MaskImage(path, SHAPE, SHAPE).read(whole), labels)
    reader = SimpleNamespace(path=path, level0_shape=SHAPE, shape=SHAPE)
    np.testing.assert_array_equal(open_labels(reader, path, LABELS).read(whole), labels)


def test_the_description_says_what_the_values_are(path):
    with tifffile.TiffFile(path) as file:
        assert file.pages.first.description == "gigaslide mask: 0 glass, 1 tissue, 255 invalid"


@pytest.mark.parametrize("value", [0, 1, 255])
def test_a_mask_of_one_value_and_one_pixel_more_than_a_tile(tmp_path, value):
    mask = np.full((513, 1025), value, np.uint8)
    write_mask(tmp_path / "mask.tif", [mask], mask.shape, None)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "mask.tif"), mask)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "mask.tif", level=1), mask[::2, ::2])
