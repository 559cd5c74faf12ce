"""The first look at a slide: every pixel once, for what the prediction has to know beforehand.

The colour of empty glass is measured as `prepare` measures it, on all of the slide, so that a prediction from the file
is that from a prepared store. Where the slide shows nothing (not scanned, or lost to tiles that cannot be decoded) is
kept too: the network is not asked there, and the pixels need not be decoded a second time to know.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gigaslide.errors import SlideError
from gigaslide.geometry import Interval, Window, grid, split
from gigaslide.slides.arrays import Flags
from gigaslide.slides.damage import Damage
from gigaslide.slides.glass import GlassMeter
from gigaslide.slides.reader import SlideReader
from gigaslide.slides.side_by_side import in_order

# A multiple of the glass meter's step: it has to look at the same pixels in windows of any size.
WINDOW_PX = 2048
_LEVEL = 1  # of zlib: rows of one value are most of it


def _unpacked(packed: bytes, shape: tuple[int, int]) -> Flags:
    bits = np.frombuffer(zlib.decompress(packed), np.uint8)
    return np.unpackbits(bits, count=shape[0] * shape[1]).reshape(shape).astype(bool)


class Validity:
    """Where a slide shows something, as compressed bits of those windows in which some pixel does not."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self._windows: dict[tuple[int, int], bytes] = {}
        self._empty: set[tuple[int, int]] = set()
        self.invalid_px = 0

    def add(self, window: Window, valid: Flags) -> None:
        """Note a window of the grid of `WINDOW_PX`; `valid` is bool (y, x)."""
        missing = valid.size - int(np.count_nonzero(valid))
        if missing:
            self.invalid_px += missing
            key = window.y.start // WINDOW_PX, window.x.start // WINDOW_PX
            if missing == valid.size:
                self._empty.add(key)
                return
            self._windows[key] = zlib.compress(np.packbits(valid).tobytes(), _LEVEL)

    def any_in(self, window: Window) -> bool:
        """Whether something may be shown in a window; False only where it lies in windows that show nothing."""
        rows, columns = (
            range(pixels.start // WINDOW_PX, -(-pixels.stop // WINDOW_PX)) for pixels in (window.y, window.x)
        )
        return any((row, column) not in self._empty for row in rows for column in columns)

    def rows(self, rows: Interval) -> Flags | None:
        """Return the flags of whole rows, bool (y, x); None where all of them are valid."""
        found = None
        for row in range(rows.start // WINDOW_PX, -(-rows.stop // WINDOW_PX)):
            y = Interval(row * WINDOW_PX, min((row + 1) * WINDOW_PX, self.shape[0]))
            part = y.clip(rows)
            for column, x in enumerate(split(self.shape[1], WINDOW_PX)):
                packed = self._windows.get((row, column))
                if packed is None and (row, column) not in self._empty:
                    continue
                if found is None:
                    found = np.ones((rows.size, self.shape[1]), bool)
                here = found[part.shift(-rows.start).slice, x.slice]
                here[:] = False if packed is None else _unpacked(packed, (y.size, x.size))[part.shift(-y.start).slice]
        return found


@dataclass(frozen=True)
class Survey:
    """What a first look found: the colour (r, g, b) of empty glass, where the slide shows something, what is lost."""

    glass_rgb: tuple[int, int, int]
    validity: Validity
    damage: Damage


def survey(reader: SlideReader, max_corrupt_fraction: float, threads: int, progress: Callable[[float], None]) -> Survey:
    """Look at all of a slide, on the reader's grid; `progress` is told the share that is done, 0 to 1.

    Args:
        reader: the slide.
        max_corrupt_fraction: of the pixels, which may be lost to tiles that cannot be decoded; 0: not one tile.
        threads: that decode at once; each holds a few windows.
        progress: told the share that is done, 0 to 1.

    Raises:
        SlideError: the slide cannot be read, or more of it is lost than may be.
    """
    glass, validity, damage = GlassMeter(), Validity(reader.shape), Damage()
    most_px = max_corrupt_fraction * math.prod(reader.shape)

    def look(window: Window) -> tuple[GlassMeter, Flags | None, Damage]:
        lost = Damage()
        rgb, valid = (reader.counting(lost) if max_corrupt_fraction > 0 else reader).read(window)
        meter = GlassMeter()
        meter.add(rgb, valid)
        return meter, None if valid.all() else valid, lost

    windows = list(grid(reader.shape, (WINDOW_PX, WINDOW_PX)))
    looked = in_order(look, windows, lambda: threads)
    for number, (window, (meter, valid, lost)) in enumerate(zip(windows, looked, strict=True), start=1):
        glass.merge(meter)
        if valid is not None:
            validity.add(window, valid)
        damage.merge(lost)
        if damage.lost_px > most_px:
            raise SlideError(
                f"{reader.path} has at least {damage.in_words(math.prod(reader.shape))}, more than the share of "
                f"{max_corrupt_fraction:g} that may be lost: copy the slide again, or allow more"
            )
        progress(number / len(windows))
    return Survey(glass.colour(), validity, damage)
