"""Stored samples of a TIFF page to 8-bit RGB: one fixed rule per slide, never one per window.

Samples of 1 to 16 bits become 0 to 255 linearly, rounded to nearest: from the full range of their type, or
from the range the file gives, in this order: MinSampleValue and MaxSampleValue (one range for all colours, so
that none is tinted), OME's SignificantBits, BitsPerSample. 8-bit samples stay as they are. Values outside the range
are clipped. Grey is repeated to R, G and B; white-is-zero is inverted; a palette is looked up.

Alpha (ExtraSamples) is laid over white, associated or not; where it is 0 the pixel is not valid. A fourth
sample without a stated meaning is left out.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gigaslide.slides.arrays import Bytes, Flags, all_true
from gigaslide.slides.source import WHITE, composite

MIN_IS_WHITE, MIN_IS_BLACK, RGB, PALETTE, YCBCR = 0, 1, 2, 3, 6
_ASSOCIATED, _UNASSOCIATED = 1, 2
_MOST_BITS = 16


def scale_table(bits: int, low: int = 0, high: int | None = None) -> Bytes:
    """Return what each value of `bits` becomes, uint8 (2 ** bits,): `low` is 0, `high` 255."""
    high = (1 << bits) - 1 if high is None else high
    values = np.arange(1 << bits, dtype=np.int64).clip(low, high) - low
    return ((values * 255 + (high - low) // 2) // (high - low)).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Samples:
    """How the samples of a page become colours; `colour` is uint8 (values,) or, of a palette, (values, 3)."""

    channels: int
    colour: Bytes
    alpha: Bytes | None = None
    associated: bool = False

    def to_rgb(self, stored: np.ndarray[Any, Any]) -> tuple[Bytes, Flags]:
        """Turn stored samples (y, x, sample) into rgb uint8 (y, x, 3) and valid bool (y, x)."""
        if stored.dtype == np.bool_:
            stored = stored.view(np.uint8)
        rgb = stored[..., : self.channels]
        if not np.array_equal(self.colour, np.arange(256)):
            rgb = self.colour[rgb]
        if self.colour.ndim > 1:
            rgb = rgb[..., 0, :]
        elif self.channels == 1:
            rgb = np.repeat(rgb, 3, axis=2)
        if self.alpha is None:
            return np.ascontiguousarray(rgb), all_true(rgb.shape[:2])
        return composite(rgb, self.alpha[stored[..., self.channels]], WHITE, self.associated)


def _tag_range(page: Any, channels: int) -> tuple[int, int] | None:
    """Return the range in MinSampleValue and MaxSampleValue, over the colours; None when they give none."""
    ends = []
    for name, choose in (("MinSampleValue", min), ("MaxSampleValue", max)):
        value = page.tags.valueof(name)
        values = value if isinstance(value, tuple) else () if value is None else (value,)
        if not all(isinstance(number, int) for number in values):
            return None
        ends.append(choose(values[:channels]) if values else None)
    low, high = ends
    if low is None and high is None:
        return None
    most = (1 << int(page.bitspersample)) - 1
    low, high = 0 if low is None else low, most if high is None else high
    return (low, high) if 0 <= low < high <= most else None


def samples_of(page: Any, planes: int, significant_bits: int | None) -> Samples | str:
    """Return how the samples of a tifffile page become colours, or, in words, why they cannot.

    Args:
        page: the key frame.
        planes: how many pages make up the image, one channel each; 1 when the page holds all.
        significant_bits: how many bits OME says are used.
    """
    count = planes if planes > 1 else int(page.samplesperpixel)
    bits, kind = int(page.bitspersample), page.dtype.kind if page.dtype is not None else "?"
    if kind not in "bu" or not 1 <= bits <= _MOST_BITS or (planes > 1 and page.samplesperpixel != 1):
        name = page.dtype if page.dtype is not None else f"of {bits} bits"
        return f"its samples are {name}, expected whole numbers of 8 or 16 bits without sign"
    if page.photometric not in (MIN_IS_WHITE, MIN_IS_BLACK, RGB, PALETTE, YCBCR):
        return f"its colours are stored as {getattr(page.photometric, 'name', page.photometric)}, expected RGB or grey"
    channels, extra = (3, count - 3) if count >= 3 else (1, count - 1)
    if extra not in (0, 1):
        return f"it has {count} channels, expected 1 (grey) or 3 (RGB), and alpha"
    low, high = 0, (1 << bits) - 1
    if bits > 8:
        if significant_bits is not None and 1 < significant_bits < bits:
            high = (1 << significant_bits) - 1
        low, high = _tag_range(page, channels) or (low, high)
    colour = scale_table(bits, low, high)
    if page.photometric == MIN_IS_WHITE:
        colour = np.subtract(255, colour, dtype=np.uint8)
    if page.photometric == PALETTE:
        if page.colormap is None or page.colormap.shape != (3, 1 << bits):
            return "it has no usable palette (ColorMap)"
        colour = np.ascontiguousarray(scale_table(16)[page.colormap].T)
    meaning = int(page.extrasamples[0]) if extra and page.extrasamples else 0
    if meaning not in (_ASSOCIATED, _UNASSOCIATED):
        return Samples(channels, colour)
    alpha_high = (1 << significant_bits) - 1 if significant_bits and 1 < significant_bits < bits else None
    return Samples(channels, colour, scale_table(bits, 0, alpha_high), meaning == _ASSOCIATED)
