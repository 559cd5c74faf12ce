import numpy as np
import pytest
from numpy.typing import NDArray

from gigaslide.network.pixels import network_input
from gigaslide.slides.density import density_table


def planes(image: NDArray[np.uint8], glass: tuple[int, int, int]) -> NDArray[np.float64]:
    return network_input(image, density_table(glass), "float64")[0]


def absorb(light: NDArray[np.float64], *density: float) -> NDArray[np.float64]:
    """Light that went through one more layer; 1 is added because `network_input` counts grey values from 1."""
    return (light + 1) * np.exp(-np.array(density)) - 1


def test_against_numpy() -> None:
    random = np.random.default_rng(0)
    image, glass = random.integers(0, 256, (5, 7, 3), dtype=np.uint8), (243, 240, 238)
    red, green, blue = np.moveaxis(np.log((np.array(glass) + 1) / (image.astype(float) + 1)), -1, 0)
    expected = np.stack([(red + green + blue) / 3, green - red, green - blue], -1)
    expected = expected / (np.abs(expected) + 0.02) * (0.3, 1, 1)
    assert planes(image, glass) == pytest.approx(expected, rel=1e-12)
    single = network_input(image, density_table(glass))[0]
    assert single.dtype == np.float32
    # A density is rounded to 2^-24 of at most log(256), three are added, and 0.02 is where the curve is steepest.
    assert np.abs(single - expected).max() < 3 * np.log(256) * 2**-24 / 0.02 * 2


def test_a_pixel_does_not_depend_on_its_place_in_the_window() -> None:
    image = np.random.default_rng(1).integers(0, 256, (23, 37, 3), dtype=np.uint8)
    table = density_table((243, 240, 238))
    whole = network_input(image, table)
    for y, x in ((0, 1), (3, 5), (7, 16)):
        assert np.array_equal(network_input(image[y:, x:], table), whole[:, y:, x:])


def test_beyond_the_image_is_glass() -> None:
    image = np.random.default_rng(2).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    table = density_table((243, 240, 238))
    larger = network_input(image, table, shape=(5, 8))
    assert larger.shape == (1, 5, 8, 3)
    assert np.array_equal(larger[:, :3, :4], network_input(image, table))
    assert not larger[:, 3:].any()
    assert not larger[:, :, 4:].any()


@pytest.mark.parametrize("glass", [(255, 255, 255), (230, 226, 221)])
def test_glass_of_any_colour_is_zero(glass: tuple[int, int, int]) -> None:
    assert (planes(np.full((2, 2, 3), glass, np.uint8), glass) == 0).all()


@pytest.mark.parametrize(
    ("stain", "signs"),
    [((0.1, 0.6, 0.2), (1, 1)), ((0.6, 0.7, 0.3), (1, 1)), ((0.4, 0.6, 0.8), (1, -1)), ((1.6, 1.1, 0.4), (-1, 1))],
    ids=["eosin", "haematoxylin", "dab", "blue ink"],
)
def test_the_sign_of_a_colour_is_seen_at_any_strength_and_through_grey_ink(
    stain: tuple[float, float, float], signs: tuple[int, int]
) -> None:
    glass = np.array([243.0, 240.0, 238.0])
    for strength, ink in ((0.3, 0.0), (1.0, 0.0), (1.0, 1.0)):
        seen = absorb(absorb(glass, *(strength * d for d in stain)), ink, ink, ink)
        colour = planes(np.rint(seen).astype(np.uint8)[np.newaxis, np.newaxis], (243, 240, 238))[0, 0, 1:]
        assert (np.sign(colour) == signs).all()
        # Half or more of full scale: a faint stain is no faint signal.
        assert (np.abs(colour) > 0.5).all()
