"""The colour of a slide's empty glass: what the scanner's lamp, the glass and the white balance make of nothing.

It differs by more from slide to slide (230 to 255) than pale tissue differs from the glass it lies on. Divided by it,
empty glass is 1 on every slide, and what was added around an image by padding is glass, not a frame.

Glass is the brightest colour that is common: the brightest peak in the histogram of the bright pixels.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.signal import find_peaks

_DARKEST_GLASS = 190  # smallest channel of a pixel that may be glass
_LEAST_SHARE = 0.005  # of all pixels; a slide with less bright ones has no glass to measure
_PEAK_SHARE = 0.1  # of the highest peak; a lower one, or a bump of less on its slope, is not common
_SMOOTHING = 9  # width of a window over the histogram of r + g + b
_NEIGHBOURHOOD = 4  # how far from the peak, in r + g + b, a pixel still is of its colour
NO_GLASS = (255, 255, 255)


def glass_colour(overview: NDArray[np.uint8], valid: NDArray[np.bool_]) -> tuple[int, int, int]:
    """Return the colour (r, g, b) of empty glass; white where there is too little of it to tell.

    Args:
        overview: (y, x, 3) uint8, the slide at a low resolution.
        valid: (y, x), where the overview shows something.
    """
    pixels = overview[valid].astype(np.int64)
    bright = pixels[pixels.min(axis=1, initial=255) >= _DARKEST_GLASS]
    if len(bright) <= _LEAST_SHARE * len(pixels):
        return NO_GLASS
    brightness = bright.sum(axis=1)
    histogram = np.bincount(brightness, minlength=3 * 255 + 1)
    # Room at both ends: glass may be as bright as a pixel can be, and a peak needs two slopes.
    smooth = np.convolve(histogram, np.ones(_SMOOTHING) / _SMOOTHING, mode="full")
    least = _PEAK_SHARE * smooth.max()
    peaks, _ = find_peaks(smooth, height=least, prominence=least)
    peak = int(peaks[-1]) - _SMOOTHING // 2
    colour = np.median(bright[np.abs(brightness - peak) <= _NEIGHBOURHOOD], axis=0)
    red, green, blue = (int(round(channel)) for channel in colour)
    return red, green, blue
