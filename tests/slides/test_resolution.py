import numpy as np
import pytest

from gigaslide.errors import GigaslideWarning
from gigaslide.slides.reader import open_slide
from gigaslide.slides.resolution import find_resolution
from tests.slides.files import noise, write_slide

APERIO = "Aperio Image Library v11\n100x100 [0,0 100x100] (64x64) JPEG/RGB Q=30|AppMag = 40"


def resolution(tmp_path, table=None, **tags):
    return open_slide(write_slide(tmp_path / "slide.tif", noise((70, 70)), **tags), table).resolution


@pytest.mark.parametrize(
    ("tags", "mpp"),
    [
        ({"resolution": (20000, 40000), "resolutionunit": "CENTIMETER"}, (0.25, 0.5)),
        ({"resolution": (50800, 101600), "resolutionunit": "INCH"}, (0.25, 0.5)),
    ],
)
def test_openslides_value_comes_from_the_tags_of_a_plain_tiff(tmp_path, tags, mpp):
    found = resolution(tmp_path, **tags)
    assert found.mpp_um_per_px == pytest.approx(mpp)  # (y, x); the tag's order is (x, y)
    assert found.source == "openslide"


@pytest.mark.parametrize("dpi", [1, 72, 96, 150, 300, 600, 1200])
def test_junk_of_picture_software_is_no_resolution(tmp_path, dpi):
    found = resolution(tmp_path, resolution=(dpi, dpi), resolutionunit="INCH")
    assert (found.mpp_um_per_px, found.source) == (None, "unknown")


def test_tags_without_a_unit_are_no_resolution(tmp_path):
    assert resolution(tmp_path, resolution=(20000, 20000), resolutionunit="NONE").mpp_um_per_px is None


@pytest.mark.parametrize(
    ("tags", "mpp"),
    [
        ({"resolution": (20000, 40000), "resolutionunit": "CENTIMETER"}, (0.25, 0.5)),
        ({"resolution": (50800, 101600), "resolutionunit": "INCH"}, (0.25, 0.5)),
    ],
)
def test_tiff_tags_are_asked_when_openslide_has_no_value(tmp_path, tags, mpp):
    """OpenSlide takes an Aperio slide's value from its description only."""
    found = resolution(tmp_path, description=APERIO, **tags)
    assert found.mpp_um_per_px == pytest.approx(mpp)
    assert found.source == "tiff tags"


def test_the_objective_is_the_last_resort_and_warned_of(tmp_path):
    with pytest.warns(GigaslideWarning, match=r"slide\.tif does not say .* 0\.25 um per px is a guess from its 40x"):
        found = resolution(tmp_path, description=APERIO, resolution=(72, 72), resolutionunit="INCH")
    assert (found.mpp_um_per_px, found.source) == ((0.25, 0.25), "objective power")


def test_the_cohort_table_is_believed_first(tmp_path):
    found = resolution(tmp_path, table=0.3)
    assert (found.mpp_um_per_px, found.source) == ((0.3, 0.3), "cohort table")


@pytest.mark.parametrize("text", ["nan", "inf", "0", "-0.5", "352.8", "", "half", None])
def test_values_no_microscope_gives_are_passed_over(tmp_path, text):
    path = tmp_path / "slide.mrxs"
    path.write_bytes(b"no TIFF")
    properties = {} if text is None else {"openslide.mpp-x": text, "openslide.mpp-y": text}
    assert find_resolution(path, properties, None).source == "unknown"


def test_a_decimal_comma_is_read(tmp_path):
    found = find_resolution(tmp_path, {"openslide.mpp-x": "0,25", "openslide.mpp-y": "0,26"}, None)
    np.testing.assert_array_equal(found.mpp_um_per_px, (0.26, 0.25))
