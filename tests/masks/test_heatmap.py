import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis.extra import numpy as arrays

from gigaslide.masks.heatmap import HEATMAP, quantise
from gigaslide.masks.pyramid import PyramidWriter

VALUES = np.random.default_rng(0).integers(0, 256, (1301, 2502)).astype(np.uint8)


def smaller(values):
    """Means of 2 x 2 pixels, or of what of them is inside, half up."""
    sums, pixels = np.zeros((-(-values.shape[0] // 2), -(-values.shape[1] // 2))), 0
    for row in (0, 1):
        for column in (0, 1):
            part = values[row::2, column::2]
            sums[: part.shape[0], : part.shape[1]] += part
            pixels = pixels + np.pad(
                np.ones(part.shape), [(0, full - size) for full, size in zip(sums.shape, part.shape, strict=True)]
            )
    return np.floor(sums / pixels + 0.5).astype(np.uint8)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("heatmap") / "probability.ome.tif"
    with PyramidWriter(path, VALUES.shape, (0.5, 0.25), HEATMAP) as writer:
        writer.write_rows(VALUES)
    return path


def test_it_is_a_pyramidal_ome_tiff(path):
    with tifffile.TiffFile(path) as file:
        assert file.is_ome
        assert len(file.pages) == 1  # the smaller levels are sub-directories, as OME wants it
        series = file.series[0]
        assert series.axes == "YX"
        assert len(series.levels) == 3
        expected = VALUES
        for level in series.levels:
            np.testing.assert_array_equal(level.asarray(), expected)
            expected = smaller(expected)
        assert all(page.subfiletype == 1 for page in file.pages.first.pages)


def test_the_ome_xml_gives_the_scale(path):
    with tifffile.TiffFile(path) as file:
        pixels = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
    assert (pixels["PhysicalSizeY"], pixels["PhysicalSizeYUnit"]) == (0.5, "µm")
    assert (pixels["PhysicalSizeX"], pixels["PhysicalSizeXUnit"]) == (0.25, "µm")
    assert (pixels["SizeY"], pixels["SizeX"], pixels["Type"]) == (1301, 2502, "uint8")


def test_writing_is_deterministic(path, tmp_path):
    with PyramidWriter(tmp_path / path.name, VALUES.shape, (0.5, 0.25), HEATMAP) as writer:
        writer.write_rows(VALUES)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@settings(deadline=None)
@given(arrays.arrays(np.float32, (3, 4), elements={"min_value": 0, "max_value": 1}))
def test_probabilities_are_rounded_to_the_nearest_step(probability):
    steps = quantise(probability)
    assert steps.dtype == np.uint8
    # Half a step, and the rounding of the product and the sum in float32 (ulp of 255 is 1.5e-5).
    assert np.abs(steps - probability.astype(float) * 255).max() <= 0.5 + 3e-5
