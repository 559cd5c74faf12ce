import warnings
from dataclasses import replace

import pytest

from gigaslide.errors import GigaslideWarning, SlideError
from gigaslide.network.model_file import About
from gigaslide.prediction.grid import at_working_mpp
from gigaslide.slides.reader import open_slide
from gigaslide.slides.resolution import Resolution
from tests.slides.files import noise, write_slide


@pytest.fixture
def reader(tmp_path):
    return open_slide(write_slide(tmp_path / "a.tif", noise((400, 600))))


def at(reader, mpp):
    return replace(reader, resolution=Resolution(None if mpp is None else (mpp, mpp), "table"))


@pytest.mark.parametrize(
    ("slide", "trained", "asked", "shape"),
    [
        (0.25, 0.5, None, (200, 300)),
        (0.25, None, None, (400, 600)),
        (0.25, 0.252, None, (400, 600)),  # within 1 %
        (0.25, 0.5, 1.0, (100, 150)),
        (0.5, 0.5, None, (400, 600)),
        (None, None, None, (400, 600)),
    ],
)
def test_a_slide_is_predicted_at_what_was_asked_or_trained(reader, slide, trained, asked, shape):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert at_working_mpp(at(reader, slide), asked, About(trained)).shape == shape


@pytest.mark.parametrize(("slide", "text"), [(None, "does not say how large"), (1.0, "coarser than the 0.5")])
def test_a_slide_that_cannot_be_brought_to_the_networks_pixels_is_predicted_as_it_is_and_said(reader, slide, text):
    with pytest.warns(GigaslideWarning, match=text):
        assert at_working_mpp(at(reader, slide), None, About(0.5)).shape == (400, 600)


@pytest.mark.parametrize("slide", [None, 1.0])
def test_what_was_asked_for_is_refused_where_it_cannot_be_had(reader, slide):
    with pytest.raises(SlideError):
        at_working_mpp(at(reader, slide), 0.5, About(0.5))
