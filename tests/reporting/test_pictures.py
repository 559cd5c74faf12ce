import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gigaslide.geometry import Window
from gigaslide.reporting import pictures
from gigaslide.reporting.pictures import overview, scale_bar, worst_place
from tests.evaluation.slides import blobs

SLIDE = blobs(regions=False)
WHOLE = Window.of(0, 0, *SLIDE.shape)


def reader(labels):
    return lambda window: labels[window.slices]


def with_errors():
    """The mask, with a missed square and an invented one."""
    labels = SLIDE.mask.copy()
    missed = np.argwhere(SLIDE.mask == 1)[2000]
    labels[missed[0] : missed[0] + 60, missed[1] : missed[1] + 60] = 0
    labels[560:600, 860:900] = 1
    return labels


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def count(image, colour, near=40):
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((np.abs(image - rgb).max(axis=-1) <= near).sum())


def test_overview_holds_every_pixel_as_a_share():
    labels = with_errors()
    view = overview(SLIDE, reader(labels), 300)
    assert view.factor == 3
    assert view.image.shape == (200, 300, 3)
    # Blocks are whole here, so the mean of the shares is the share of the pixels; float32 sums over 60000 blocks.
    assert view.false_negative.mean() == pytest.approx(((SLIDE.mask == 1) & (labels == 0)).mean(), rel=1e-4)
    assert view.false_positive.mean() == pytest.approx(((SLIDE.mask == 0) & (labels == 1)).mean(), rel=1e-4)
    assert view.invalid.mean() == pytest.approx((SLIDE.mask == 255).mean(), rel=1e-4)


def test_invalid_pixels_are_neither_wrong_nor_right():
    view = overview(SLIDE, reader(np.ones_like(SLIDE.mask)), 900)
    np.testing.assert_array_equal(view.false_positive, SLIDE.mask == 0)
    np.testing.assert_array_equal(view.false_negative, np.zeros(SLIDE.shape))
    view = overview(SLIDE, reader(np.zeros_like(SLIDE.mask)), 900)
    np.testing.assert_array_equal(view.false_negative, SLIDE.mask == 1)
    np.testing.assert_array_equal(view.false_positive, np.zeros(SLIDE.shape))


def test_worst_place_holds_the_error():
    labels = SLIDE.mask.copy()
    labels[500:530, 100:130] = 1 - labels[500:530, 100:130]
    place = worst_place(overview(SLIDE, reader(labels), 300), SLIDE.shape, 200)
    assert place.shape == (200, 200)
    assert place.y.start <= 500 and place.y.stop >= 530
    assert place.x.start <= 100 and place.x.stop >= 130


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 2000), st.integers(50, 900), st.booleans())
def test_worst_place_is_inside_the_slide(side_px, longest_px, right):
    labels = SLIDE.mask if right else with_errors()
    place = worst_place(overview(SLIDE, reader(labels), longest_px), SLIDE.shape, side_px)
    assert place.clip(WHOLE) == place
    assert place.shape == (min(side_px, 600), min(side_px, 900))


@given(st.floats(1e-3, 1e7))
def test_nice_length_is_the_largest_that_fits(longest):
    length = pictures.nice_length(longest)
    # The next one is at most 2.5 times as long; both bounds leave room for one rounding.
    assert length <= longest * (1 + 1e-8)
    assert longest < 2.5 * length * (1 + 1e-8)


def test_scale_bar_has_the_length_that_it_says():
    length_px, label = scale_bar(0.5, 4, 1000)  # 2 um per picture pixel, at most 440 um
    assert (length_px, label) == (100, "200 µm")
    assert scale_bar(0.5, 40, 1000) == (100, "2 mm")
    assert scale_bar(None, 2, 1000) == (100, "200 px")


def test_disagreement_colours_what_is_wrong():
    right = pixels(pictures.disagreement_png(overview(SLIDE, reader(SLIDE.mask), 900), 0.5))
    wrong = pixels(pictures.disagreement_png(overview(SLIDE, reader(with_errors()), 900), 0.5))
    # Squares of 60 and 40 px, at full size; part of one may be glass, part of the other is under the scale bar.
    assert count(wrong, pictures.TRUTH_COLOUR) - count(right, pictures.TRUTH_COLOUR) > 1000
    assert count(wrong, pictures.PREDICTION_COLOUR) - count(right, pictures.PREDICTION_COLOUR) > 200


def test_outlines_draw_both():
    image = pixels(pictures.outlines_png(overview(SLIDE, reader(with_errors()), 450), 0.5))
    assert image.shape[1] == 450
    assert count(image, pictures.TRUTH_COLOUR) > 300
    assert count(image, pictures.PREDICTION_COLOUR) > 300


def test_invalid_pixels_get_no_outline():
    slide = replace(SLIDE, mask=np.full_like(SLIDE.mask, 255))
    image = pixels(pictures.outlines_png(overview(slide, reader(SLIDE.mask), 450), 0.5))
    assert count(image[:250], pictures.TRUTH_COLOUR) == 0
    assert count(image[:250], pictures.PREDICTION_COLOUR) == 0


@pytest.mark.parametrize("window", [Window.of(10, 20, 200, 200), Window.of(0, 0, 1, 1), Window.of(0, 0, 1, 300)])
def test_detail_shows_the_pixels_as_they_are(window):
    picture = pictures.detail_png(SLIDE, reader(SLIDE.mask), window)
    # Quantised to 256 colours; the noise of the slide alone spans 17 values per channel.
    shown = pixels(picture)[: window.y.size // 2, : window.x.size // 2]
    expected = SLIDE.read_image(window)[: window.y.size // 2, : window.x.size // 2]
    if shown.size:
        assert np.abs(shown.mean(axis=(0, 1)) - expected.mean(axis=(0, 1))).max() < 3


def test_the_same_slide_gives_the_same_bytes():
    view = overview(SLIDE, reader(with_errors()), 300)
    assert pictures.outlines_png(view, 0.5) == pictures.outlines_png(view, 0.5)
