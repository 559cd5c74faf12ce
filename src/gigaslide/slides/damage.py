"""Reading around what cannot be decoded: the tiles that fail become background and invalid, and are counted."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gigaslide.geometry import Interval, Window
from gigaslide.slides.arrays import Bytes, Flags
from gigaslide.slides.source import Level, UnreadableError

Read = Callable[[Window], tuple[Bytes, Flags]]


@dataclass
class Damage:
    """What was lost of a slide: tiles as (level, row, column), pixels of the grid that was read, the first reason."""

    tiles: set[tuple[int, int, int]] = field(default_factory=set)
    lost_px: int = 0
    first: str = ""

    def merge(self, other: "Damage") -> None:
        """Add what was lost of another part of the slide."""
        self.tiles |= other.tiles
        self.lost_px += other.lost_px
        self.first = self.first or other.first

    def in_words(self, pixels: int) -> str:
        """Return what could not be decoded of an area of so many pixels."""
        return f"{len(self.tiles)} corrupt tile(s), {self.lost_px / pixels:.2%} of the pixels ({self.first})"


def _halves(interval: Interval, step_px: int) -> tuple[Interval, Interval] | None:
    """Cut at the tile border nearest to the middle; None when the interval lies in one tile."""
    first, last = interval.start // step_px, (interval.stop - 1) // step_px
    if first == last:
        return None
    border = (first + last + 1) // 2 * step_px
    return Interval(interval.start, border), Interval(border, interval.stop)


def _pieces(window: Window, tile: tuple[int, int]) -> list[Window]:
    """Cut a window in two along its axis of more tiles; nothing when it lies in one tile."""
    y, x = _halves(window.y, tile[0]), _halves(window.x, tile[1])
    if y is not None and (x is None or window.y.size * tile[1] >= window.x.size * tile[0]):
        return [Window(half, window.x) for half in y]
    return [] if x is None else [Window(window.y, half) for half in x]


def read_around(
    read: Read, number: int, level: Level, window: Window, background: tuple[int, int, int], damage: Damage
) -> tuple[Bytes, Flags, Flags | None]:
    """Read a window of a level; where that fails, its halves, down to single tiles.

    Returns:
        rgb: uint8 (y, x, 3).
        valid: bool (y, x).
        lost: bool (y, x), where a tile could not be decoded; None when all could.
    """
    try:
        rgb, valid = read(window)
        return rgb, valid, None
    except UnreadableError as error:
        damage.first = damage.first or str(error)
    rgb = np.full((*window.shape, 3), background, np.uint8)
    valid, lost = np.zeros(window.shape, bool), np.ones(window.shape, bool)
    pieces = _pieces(window, level.tile)
    if not pieces:
        damage.tiles.add((number, window.y.start // level.tile[0], window.x.start // level.tile[1]))
    for piece in pieces:
        here = piece.shift(-window.y.start, -window.x.start).slices
        rgb[here], valid[here], lost_here = read_around(read, number, level, piece, background, damage)
        lost[here] = False if lost_here is None else lost_here
    return rgb, valid, lost
