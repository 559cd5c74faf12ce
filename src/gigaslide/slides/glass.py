"""The colour of a slide's empty glass: what the scanner's lamp, the glass and the white balance make of nothing.

It differs by more from slide to slide (230 to 255) than pale tissue differs from the glass it lies on. Divided by it,
empty glass is 1 on every slide, and what was added around an image by padding is glass, not a frame.

Glass is the brightest colour that is common: the brightest peak in the histogram of the bright pixels.
"""

from typing import Any

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
        sample = np.ascontiguousarray(rgb[::_STEP_PX, ::_STEP_PX])
        seen = valid[::_STEP_PX, ::_STEP_PX]
        red, green, blue = (sample[..., channel] for channel in range(3))
        bright = (np.minimum(np.minimum(red, green), blue) >= _DARKEST_GLASS) & seen
        self._pixels += int(np.count_nonzero(seen))
        # Others count as 0, which no bright pixel is.
        brightness = (red.astype(np.intp) + green + blue) * bright
        counts, reds, greens = (
            np.bincount(brightness.ravel(), of if of is None else of.ravel(), _BRIGHTNESSES)
            for of in (None, red, green)
        )
        counts[0] = reds[0] = greens[0] = 0
        self._bright += counts
        self._colour += np.stack([reds, greens, counts * np.arange(_BRIGHTNESSES) - reds - greens], axis=1)

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
        # A quarter of a second, which a worker that never gets here need not spend.
        from scipy.signal import find_peaks

        if self._bright.sum() <= _LEAST_SHARE * self._pixels:
            return NO_GLASS
        # Room at both ends: glass may be as bright as a pixel can be, and a peak needs two slopes, each of them to 0.
        smooth = np.convolve(np.pad(self._bright, 1), np.ones(_SMOOTHING) / _SMOOTHING, mode="full")
        least = _PEAK_SHARE * smooth.max()
        peaks, _ = find_peaks(smooth, height=least, prominence=least)
        peak = int(peaks[-1]) - _SMOOTHING // 2 - 1
        near = slice(max(0, peak - _NEIGHBOURHOOD), peak + _NEIGHBOURHOOD + 1)
        red, green, blue = np.rint(self._colour[near].sum(axis=0) / self._bright[near].sum()).astype(int).tolist()
        return red, green, blue
