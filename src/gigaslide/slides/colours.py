"""Whether the colours of a slide can be those of a stained one.

DICOM files with wrong tags come out tinted, or with red and blue swapped, and no reader says so.

Two statistics of an overview from the smallest level, in grey values and optical density (-ln of the value
over 255):

* Tint: glass and the gaps in tissue are near white, so the brightest 1 % of the pixels are. Their mean colour has
  channels that differ by more than 48: RGB taken for YCbCr turns white to (255, 120, 255), YCbCr taken for
  RGB to (255, 128, 128).
* Red and blue swapped: with haematoxylin and eosin the palest tissue absorbs mostly green, and the densest, the
  nuclei, tilts from blue to red: tilt = (density of red - density of blue) / density of green. Swapped when the
  mean tilt of the densest tenth is below 0 and at least 0.15 below that of the palest third (on the real slide of
  the demo it is 0.28 above), and the palest third absorbs less than 0.7 of red per green (its eosin, swapped: 0.65;
  haematoxylin beside DAB, whose brown tilts the same way: 0.8 to 1).

Known shortfalls: both say only "implausible", and of swapped colours only strongly stained slides are found. A red
chromogen (AEC) can look swapped; a slide with less than 0.1 % of stained pixels, or none that is bright, is not judged.
"""

import numpy as np

from gigaslide.slides.arrays import Bytes, Flags
from gigaslide.slides.reader import SlideReader

_OVERVIEW_PX = 1_000_000
_VENDOR = "dicom"
_BRIGHTEST_SHARE = 0.01
_MOST_TINT = 48.0
_LEAST_BRIGHTNESS = 120.0  # below it the brightest pixels are no glass, only a dark picture
_LEAST_DENSITY = 0.15
_LEAST_STAINED = 0.001
_MOST_PER_GREEN = 1.2  # of red or blue; beyond it are pen, brown and pigment
_MOST_EOSIN_RED = 0.7  # per green
_DENSEST_SHARE, _PALEST_SHARE = 0.1, 0.3
_LEAST_TILT = 0.15


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
    density = -np.log(np.maximum(rgb[valid], 1) / 255.0)
    red, green, blue = density.T
    stained = (green >= _LEAST_DENSITY) & (np.maximum(red, blue) <= _MOST_PER_GREEN * green)
    if stained.sum() <= _LEAST_STAINED * len(density):
        return False
    total, red_per_green = density[stained].sum(axis=1), red[stained] / green[stained]
    tilt = red_per_green - blue[stained] / green[stained]
    densest, palest = total >= np.quantile(total, 1 - _DENSEST_SHARE), total <= np.quantile(total, _PALEST_SHARE)
    if red_per_green[palest].mean() >= _MOST_EOSIN_RED:
        return False
    densest_tilt = tilt[densest].mean()
    return bool(densest_tilt < 0 and tilt[palest].mean() - densest_tilt >= _LEAST_TILT)


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
