"""The colour of a slide's empty glass: what the scanner's lamp, the glass and the white balance make of nothing.

It differs by more from slide to slide (230 to 255) than pale tissue differs from the glass it lies on. Divided by it,
empty glass is 1 on every slide, and what was added around an image by padding is glass, not a frame.

Glass is the brightest colour that is common: the brightest peak in the histogram of the bright pixels.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

NO_GLASS = (255, 255, 255)

_DARKEST_GLASS = 190  # smallest channel of a pixel that may be glass
_LEAST_SHARE = 0.005  # of all pixels; a slide with less bright ones has no glass to measure
_PEAK_SHARE = 0.1  # of the highest peak; a lower one, or a bump of less on its slope, is not common
_SMOOTHING = 9  # width of a window over the histogram of r + g + b
_NEIGHBOURHOOD = 4  # how far from the peak, in r + g + b, a pixel still is of its colour
_STEP_PX = 4  # one pixel of so many squared is looked at
_BRIGHTNESSES = 3 * 255 + 1


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _sum_up(
    rgb: NDArray[np.uint8], valid: NDArray[np.bool_], bright: NDArray[np.int64], colour: NDArray[np.int64]
) -> int:
    pixels = 0
    for y in range(0, rgb.shape[0], _STEP_PX):
        for x in range(0, rgb.shape[1], _STEP_PX):
            if not valid[y, x]:
                continue
            pixels += 1
            red, green, blue = np.int64(rgb[y, x, 0]), np.int64(rgb[y, x, 1]), np.int64(rgb[y, x, 2])
            if min(red, green, blue) >= _DARKEST_GLASS:
                brightness = red + green + blue
                bright[brightness] += 1
                colour[brightness, 0] += red
                colour[brightness, 1] += green
                colour[brightness, 2] += blue
    return pixels


def _peaks(heights: NDArray[np.float64], least: float) -> list[int]:
    """Return where peaks are at least that high, and that prominent; 0 at both ends.

    A flat top is one peak, at its middle, rounded down. As `scipy.signal.find_peaks`, whose import takes longer than
    the reading of a small slide.
    """
    found = []
    start = 1
    while start < len(heights) - 1:
        stop = start
        while stop < len(heights) - 1 and heights[stop + 1] == heights[start]:
            stop += 1
        if heights[start - 1] < heights[start] > heights[min(stop + 1, len(heights) - 1)] and heights[start] >= least:
            higher = np.flatnonzero(heights > heights[start])
            left = max((int(place) for place in higher[higher < start]), default=-1)
            right = min((int(place) for place in higher[higher > stop]), default=len(heights))
            base = max(heights[left + 1 : start + 1].min(), heights[stop:right].min())
            if heights[start] - base >= least:
                found.append((start + stop) // 2)
        start = stop + 1
    return found


class GlassMeter:
    """Sums up the bright pixels of a slide, window by window, and finds the colour of its glass in the sums."""

    def __init__(self) -> None:
        self._pixels = 0
        self._bright = np.zeros(_BRIGHTNESSES)  # number of bright pixels by r + g + b
        self._colour = np.zeros((_BRIGHTNESSES, 3))  # sums of their colours

    def add(self, rgb: NDArray[np.uint8], valid: NDArray[np.bool_]) -> None:
        """Look at a window.

        Args:
            rgb: (y, x, 3) uint8.
            valid: (y, x), where the window shows something.
        """
        bright, colour = np.zeros(_BRIGHTNESSES, np.int64), np.zeros((_BRIGHTNESSES, 3), np.int64)
        self._pixels += int(_sum_up(rgb, valid, bright, colour))
        self._bright += bright
        self._colour += colour

    def merge(self, other: "GlassMeter") -> None:
        """Add what another meter saw; the sums are whole numbers, so their order plays no part."""
        self._pixels += other._pixels
        self._bright += other._bright
        self._colour += other._colour

    def as_json(self) -> dict[str, Any]:
        """Return the sums as plain values: of each brightness that was seen, its number of pixels and their colours."""
        seen = np.flatnonzero(self._bright)
        return {
            "pixels": self._pixels,
            "bright": np.column_stack([seen, self._bright[seen], self._colour[seen]]).astype(np.int64).tolist(),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "GlassMeter":
        """Return what `as_json` was made of."""
        meter = cls()
        meter._pixels = values["pixels"]
        rows = np.array(values["bright"], np.int64).reshape(-1, 5)
        meter._bright[rows[:, 0]] = rows[:, 1]
        meter._colour[rows[:, 0]] = rows[:, 2:]
        return meter

    def colour(self) -> tuple[int, int, int]:
        """Return the colour (r, g, b) of empty glass; white where there is too little of it to tell."""
        if self._bright.sum() <= _LEAST_SHARE * self._pixels:
            return NO_GLASS
        # Room at both ends: glass may be as bright as a pixel can be, and a peak needs two slopes, each of them to 0.
        smooth = np.convolve(np.pad(self._bright, 1), np.ones(_SMOOTHING) / _SMOOTHING, mode="full")
        least = _PEAK_SHARE * smooth.max()
        peak = _peaks(smooth, least)[-1] - _SMOOTHING // 2 - 1
        near = slice(max(0, peak - _NEIGHBOURHOOD), peak + _NEIGHBOURHOOD + 1)
        red, green, blue = np.rint(self._colour[near].sum(axis=0) / self._bright[near].sum()).astype(int).tolist()
        return red, green, blue
