import numpy as np
import openslide
import pytest
import tifffile

from gigaslide.errors import GigaslideError
from gigaslide.evaluation.mask_file import MaskFile, write_mask
from gigaslide.geometry import Window


@pytest.fixture
def labels():
    return np.random.default_rng(0).choice(np.array([0, 1, 255], np.uint8), (1100, 700))


@pytest.fixture
def path(labels, tmp_path):
    write_mask(tmp_path / "mask.tif", lambda window: labels[window.slices], labels.shape, 0.499)
    return tmp_path / "mask.tif"


def test_other_programs_read_the_same_mask(path, labels):
    np.testing.assert_array_equal(tifffile.imread(path), labels)
    with openslide.OpenSlide(path) as slide:
        assert slide.dimensions == (700, 1100)
        pixels = np.asarray(slide.read_region((0, 0), 0, slide.dimensions))[..., 0]
        # The tag is a fraction of 32-bit integers.
        assert float(slide.properties["tiff.XResolution"]) == pytest.approx(10_000 / 0.499, rel=1e-6)
    np.testing.assert_array_equal(pixels, labels)


@pytest.mark.parametrize(
    "window",
    [
        Window.of(0, 0, 1100, 700),
        Window.of(500, 500, 30, 30),
        Window.of(1024, 512, 76, 188),
        Window.of(3, 5, 1, 1),
    ],
)
def test_windows_are_parts_of_the_mask(path, labels, window):
    with MaskFile(path) as mask:
        assert mask.shape == labels.shape
        np.testing.assert_array_equal(mask.read(window), labels[window.slices])


def test_writing_is_deterministic(path, labels, tmp_path):
    write_mask(tmp_path / "again.tif", lambda window: labels[window.slices], labels.shape, 0.499)
    assert (tmp_path / "again.tif").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("content", [b"", b"no tiff at all"])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "broken.tif").write_bytes(content)
    with pytest.raises(GigaslideError, match="should be a mask"):
        MaskFile(tmp_path / "broken.tif")


def test_an_untiled_tiff_is_refused(tmp_path):
    tifffile.imwrite(tmp_path / "strips.tif", np.zeros((40, 40), np.uint8))
    with pytest.raises(GigaslideError, match="tiled"):
        MaskFile(tmp_path / "strips.tif")
