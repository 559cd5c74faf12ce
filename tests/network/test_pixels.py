import numpy as np
import pytest

from gigaslide.network.pixels import network_input


def test_glass_is_zero_whatever_its_colour_and_black_about_one() -> None:
    for glass in ((255, 255, 255), (230, 226, 221)):
        image = np.array([[glass, (0, 0, 0)]], np.uint8)
        values = network_input(image, np.array(glass, np.uint8)).numpy()
        assert values.shape == (1, 1, 2, 3)
        assert (values[0, 0, 0] == 0).all()
        assert values[0, 0, 1] == pytest.approx(np.arcsinh(20) / 3)


def test_darker_is_more_and_brighter_than_glass_is_negative() -> None:
    ramp = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(1, 256, 3)
    values = network_input(ramp, np.array([240, 240, 240], np.uint8), "float64").numpy()
    assert (np.diff(values, axis=2) < 0).all()
    assert (values[0, 0, 241:] < 0).all()
