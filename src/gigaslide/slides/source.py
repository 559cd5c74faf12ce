"""What every slide file offers, whichever library opens it: `Source`, and the open ones of each thread.

A source belongs to one thread. Pixels that were not scanned, and those under alpha 0, are not valid and have
the background colour.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from gigaslide.errors import SlideError
from gigaslide.geometry import Window
from gigaslide.slides.arrays import Bytes, Flags, all_true
from gigaslide.slides.resolution import Resolution

WHITE = (255, 255, 255)
_OPEN_SLIDES = 4


class UnreadableError(SlideError):
    """A part of a slide cannot be decoded; the message is the reason, the second half of a sentence."""


@dataclass(frozen=True)
class Level:
    """A level of the pyramid: its shape (y, x), and that of the pieces (tiles, strips) it is stored in."""

    shape: tuple[int, int]
    tile: tuple[int, int]


@dataclass(frozen=True)
class About:
    """What a slide file says of itself.

    `reader` names the library and its version. `levels[0]` is full resolution. `stated` are the pixel sizes
    the file gives, most trusted first; None leaves the question to OpenSlide's `properties`.
    """

    reader: str
    levels: tuple[Level, ...]
    background: tuple[int, int, int] = WHITE
    properties: tuple[tuple[str, str], ...] = ()
    stated: tuple[Resolution, ...] | None = None
    warnings: tuple[str, ...] = ()


class Source(Protocol):
    """An open slide file."""

    @property
    def about(self) -> About:
        """What the file says of itself."""

    def read(self, number: int, window: Window) -> tuple[Bytes, Flags]:
        """Read a window inside level `number`.

        Returns:
            rgb: uint8 (y, x, 3).
            valid: bool (y, x).

        Raises:
            UnreadableError: some of it cannot be decoded. The source can be read on.
        """

    def close(self) -> None:
        """Close the file."""


class Sources(threading.local):
    """The last used slides of this thread; none is ever shared between threads or processes."""

    def __init__(self, open_source: Callable[[Path], Source]) -> None:
        self._open_source = open_source
        self._open: OrderedDict[tuple[int, Path], Source] = OrderedDict()

    def get(self, path: Path) -> Source:
        """Return the slide at `path`, opened if need be."""
        key = (os.getpid(), path)
        if key not in self._open:
            self._open[key] = self._open_source(path)
            while len(self._open) > _OPEN_SLIDES:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(key)
        return self._open[key]

    def drop(self, path: Path) -> None:
        """Close the slide at `path`, if it is open."""
        source = self._open.pop((os.getpid(), path), None)
        if source is not None:
            source.close()


def composite(
    rgb: Bytes, alpha: Bytes, background: tuple[int, int, int], associated: bool = False
) -> tuple[Bytes, Flags]:
    """Lay colours over the background.

    Args:
        rgb: uint8 (y, x, 3).
        alpha: uint8 (y, x).
        background: the colour beneath.
        associated: the colours were multiplied by alpha already.

    Returns:
        rgb: uint8 (y, x, 3).
        valid: bool (y, x), alpha above 0.
    """
    rgb = np.ascontiguousarray(rgb)
    if alpha.min(initial=255) == 255:
        return rgb, all_true(alpha.shape)
    rgb = rgb.copy()
    partly = alpha < 255
    share = alpha[partly, None].astype(np.uint32)
    colours = rgb[partly].astype(np.uint32) * (255 if associated else share)
    over = (colours + np.array(background, np.uint32) * (255 - share) + 127) // 255
    rgb[partly] = np.minimum(over, 255)
    return rgb, alpha > 0
