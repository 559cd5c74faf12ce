"""Do a slide's colours look like a stained slide's? DICOM files with wrong tags come out tinted or with red and blue
swapped, and no reader says so.

Two statistics of an overview from the smallest level, in grey values and optical density (-ln of the value
over 255):

* Tint: glass and the gaps in tissue are near white, so the brightest 1 % of the pixels are. Their mean colour has
  channels that differ by more than 48: RGB taken for YCbCr turns white to (255, 120, 255), YCbCr taken for
  RGB to (255, 128, 128).
* Red and blue swapped: in all stains with haematoxylin the densest tissue, the nuclei, absorbs more red than the paler
  rest does. The tilt of a pixel is (density of red - density of blue) / density of green. The mean tilt of the densest
  tenth of the tissue is below -0.1 and more than 0.1 below that of the paler half. Pixels that absorb blue most are left
  out: brown, from DAB or pigment, is no nucleus.

Known shortfalls: both say only "implausible". A red chromogen (AEC) can look swapped; a slide with less than 0.1 % of
stained pixels, or none that is bright, is not judged.
"""

import numpy as np

from gigaslide.slides.arrays import Bytes, Flags
from gigaslide.slides.reader import SlideReader

_OVERVIEW_PX = 1_000_000
_VENDOR = "dicom"
_BRIGHTEST_SHARE = 0.01
_MOST_TINT = 48.0
_LEAST_BRIGHTNESS = 120.0  # below it the brightest pixels are no glass, only a dark picture
_LEAST_GREEN_DENSITY = 0.15
_LEAST_STAINED = 0.001
_DENSEST_SHARE = 0.1
_LEAST_TILT = 0.1


def tint(rgb: Bytes, valid: Flags) -> tuple[float, float, float] | None:
    """Return the mean colour of the brightest 1 % of the valid pixels, if it is no near-white; else None.

    Args:
        rgb: uint8 (y, x, 3).
        valid: bool (y, x).
    """
    pixels = rgb[valid].astype(np.float64)
    if not len(pixels):
        return None
    brightness = pixels.mean(axis=1)
    brightest = pixels[brightness >= np.quantile(brightness, 1 - _BRIGHTEST_SHARE)].mean(axis=0)
    if brightest.mean() < _LEAST_BRIGHTNESS or np.ptp(brightest) <= _MOST_TINT:
        return None
    red, green, blue = brightest.tolist()
    return red, green, blue


def is_swapped(rgb: Bytes, valid: Flags) -> bool:
    """Tell whether red and blue look swapped; arguments as of `tint`."""
    pixels = rgb[valid]
    density = -np.log(np.maximum(pixels, 1) / 255.0)
    red, green, blue = density.T
    stained = (green >= _LEAST_GREEN_DENSITY) & (green >= red) & (green >= blue)
    if stained.sum() <= _LEAST_STAINED * len(pixels):
        return False
    total = density[stained].sum(axis=1)
    tilt = (red[stained] - blue[stained]) / green[stained]
    densest = tilt[total >= np.quantile(total, 1 - _DENSEST_SHARE)].mean()
    paler = tilt[total <= np.median(total)].mean()
    return bool(densest < -_LEAST_TILT and densest < paler - _LEAST_TILT)


def implausible_colours(reader: SlideReader) -> str | None:
    """Return, in one sentence, what is implausible in the colours of a DICOM slide; None for what looks right."""
    if reader.vendor != _VENDOR:
        return None
    smallest = min(reader.levels, key=lambda level: level.shape[0] * level.shape[1])
    rgb, valid = reader.at_shape(smallest.shape).overview(_OVERVIEW_PX)
    found = tint(rgb, valid)
    if found is not None:
        colour = ", ".join(f"{value:.0f}" for value in found)
        what = f"its brightest parts are not near white but ({colour}) in R, G, B"
    elif is_swapped(rgb, valid):
        what = "its nuclei are redder than the tissue around them, as if red and blue were swapped"
    else:
        return None
    return (
        f"the colours of {reader.path.name} are implausible: {what}; compare it with its scanner's own viewer, and "
        "write its PhotometricInterpretation and ICC profile anew if they differ"
    )
