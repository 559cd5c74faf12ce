import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.slides.source import composite

BYTE = st.integers(0, 255)


@given(BYTE, BYTE, BYTE)
def test_composite_is_alpha_blending(alpha, colour, background):
    rgb, valid = composite(np.full((2, 3, 3), colour, np.uint8), np.full((2, 3), alpha, np.uint8), (background, 0, 255))
    share = alpha / 255
    for channel, under in enumerate((background, 0, 255)):
        blended = colour * share + under * (1 - share)
        assert np.abs(rgb[..., channel] - blended).max() <= 0.5
    assert (valid == (alpha > 0)).all()


@given(BYTE, BYTE)
def test_associated_colours_were_multiplied_before(alpha, colour):
    multiplied = round(colour * alpha / 255)
    rgb, valid = composite(
        np.full((2, 3, 3), multiplied, np.uint8), np.full((2, 3), alpha, np.uint8), (255, 255, 255), associated=True
    )
    # Half a grey value from rounding the product, half from rounding the sum.
    assert np.abs(rgb - (colour * alpha / 255 + 255 - alpha)).max() <= 1
    assert (valid == (alpha > 0)).all()
