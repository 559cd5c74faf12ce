import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from gigaslide.demo.artefacts import LABEL, NAMES
from gigaslide.demo.slide import Renderer, SlideRecipe
from gigaslide.geometry import Window

SHAPE = (1100, 1300)
EVERYTHING = {
    "plain": ("plain", "dust"),
    "over": ("fold", "blur", "pen_black", "bubble", "coverslip"),
    "stain": ("ihc", "fat", "stitching", "pen_green", "dust"),
}


@pytest.fixture(scope="module")
def rendered(atlases):
    """Return renderer and whole picture of three slides that show every artefact but the rest of the pens."""
    found = []
    for number, artefacts in enumerate(EVERYTHING.values()):
        renderer = Renderer(SlideRecipe("slide", *SHAPE, 40 + number, 0.5, artefacts), atlases)
        found.append((renderer, renderer.render(Window.of(0, 0, *SHAPE))))
    return found


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2), st.integers(0, 1000), st.integers(0, 1150), st.integers(1, 100), st.integers(1, 150))
def test_a_window_alone_is_the_crop_of_the_whole(rendered, number, top, left, height, width):
    renderer, whole = rendered[number]
    window = Window.of(top, left, height, width)
    alone = renderer.render(window)
    np.testing.assert_array_equal(alone.image, whole.image[window.slices])
    np.testing.assert_array_equal(alone.mask, whole.mask[window.slices])
    np.testing.assert_array_equal(alone.labels, whole.labels[window.slices])


def test_the_same_recipe_gives_the_same_slide_and_another_seed_another(atlases):
    def picture(seed):
        return Renderer(SlideRecipe("slide", *SHAPE, seed), atlases).render(Window.of(300, 400, 256, 256)).image

    np.testing.assert_array_equal(picture(1), picture(1))
    assert (picture(1) != picture(2)).mean() > 0.5


@pytest.mark.parametrize("seed", range(4))
def test_the_mask_is_where_the_tissue_is_drawn(atlases, seed):
    made = Renderer(SlideRecipe("slide", 1536, 1536, seed), atlases).render(Window.of(0, 0, 1536, 1536))
    tissue = made.mask == 1
    assert 0.05 < tissue.mean() < 0.9
    glass = np.median(made.image[~tissue], axis=0)
    difference = np.abs(made.image.astype(float) - glass).max(axis=2)
    # One pixel of the outline is blended. Farther out is bare glass but for specks and haze (sensor noise of a
    # standard deviation of at most 1.6 stays below 5 of 5 standard deviations; light varies by 3 %).
    outside = ~ndimage.binary_dilation(tissue, iterations=2)
    assert (difference[outside] < 16).mean() > 0.997
    # Within, fibres darken it; the clefts between them are narrow.
    near = ndimage.maximum_filter(difference, 21)
    assert (near[tissue] > 16).mean() > 0.99


def test_artefacts_are_labelled_where_they_are(rendered):
    for (_, whole), names in zip(rendered, EVERYTHING.values(), strict=True):
        found = set(np.unique(whole.labels).tolist())
        assert found <= {0, *(LABEL[name] for name in names)}
    over, stain = rendered[1][1], rendered[2][1]
    assert {LABEL[name] for name in ("fold", "blur", "pen_black", "bubble", "coverslip")} <= set(np.unique(over.labels))
    assert stain.labels.min() > 0  # the stain is all over the slide
    assert (over.mask[over.labels == LABEL["fold"]] == 1).mean() > 0.98
    assert (stain.mask[stain.labels == LABEL["fat"]] == 1).mean() > 0.9
    pen = over.labels == LABEL["pen_black"]
    assert 0 < over.mask[pen].mean() < 1  # over glass and tissue
    # A stroke leaves 0.3 to 1.2 of a density of 1.4: exp(-0.4) = 0.67 of the light comes through the thinnest of it.
    assert over.image[pen].mean() < 0.67 * 240


def test_pale_tissue_has_about_three_percent_contrast(atlases):
    for seed in range(3):
        made = Renderer(SlideRecipe("slide", *SHAPE, seed, 0.5, ("pale",)), atlases).render(Window.of(0, 0, *SHAPE))
        tissue = made.mask == 1
        contrast = 1 - made.image[tissue].mean() / made.image[~tissue].mean()
        assert 0.01 < contrast < 0.07


def test_blur_takes_away_detail_and_leaves_the_mask(atlases):
    sharp, soft = (
        Renderer(SlideRecipe("slide", *SHAPE, 8, 0.5, artefacts), atlases).render(Window.of(0, 0, *SHAPE))
        for artefacts in (("plain",), ("blur",))
    )
    np.testing.assert_array_equal(sharp.mask, soft.mask)
    inside = (soft.labels == LABEL["blur"]) & (soft.mask == 1)
    assert inside.any()
    detail = [np.abs(ndimage.laplace(made.image[..., 1].astype(float)))[inside].mean() for made in (sharp, soft)]
    assert detail[1] < 0.35 * detail[0]


def test_a_window_may_reach_beyond_the_slide(atlases):
    made = Renderer(SlideRecipe("slide", *SHAPE, 1), atlases).render(Window.of(-50, 1290, 100, 60))
    assert made.image.shape == (100, 60, 3)


@pytest.mark.parametrize(("shape", "artefacts"), [((10, 500), ("plain",)), ((500, 500), ("fog",))])
def test_a_recipe_that_cannot_be_made_is_refused(shape, artefacts):
    with pytest.raises(ValueError, match=r"64 x 64 px|unknown artefacts \['fog'\]"):
        SlideRecipe("slide", *shape, 1, 0.5, artefacts)


def test_every_artefact_has_a_name_here():
    assert {name for names in EVERYTHING.values() for name in names} | {"pale", "pen_blue"} == set(NAMES)
