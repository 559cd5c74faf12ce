"""Deep Zoom geometry: which pixels of which level a tile covers.

Microsoft's DZI, as OpenSlide's `DeepZoomGenerator` and OpenSeadragon have it: level `n - 1` is the slide itself, each
level below has half the pixels, rounded up, down to 1 x 1. A tile covers `tile_px` pixels and, towards each neighbour
it has, `overlap_px` more.

OpenSeadragon draws a pixel of a level over a whole number of pixels of the slide; grids of a `SlideReader` divide the
slide's size evenly. Where that does not come out even, the two differ by less than a pixel of the level.
"""

from dataclasses import dataclass

from gigaslide.geometry import Interval, Window


@dataclass(frozen=True)
class DeepZoom:
    """The pyramid of an area of `shape` (y, x)."""

    shape: tuple[int, int]
    tile_px: int
    overlap_px: int = 0

    @property
    def level_count(self) -> int:
        """Number of levels, 1 for an area of one pixel."""
        return (max(self.shape) - 1).bit_length() + 1

    def level_shape(self, level: int) -> tuple[int, int]:
        """Size (y, x) of a level; level 0 is the smallest."""
        shift = self.level_count - 1 - level
        height, width = (-(-size >> shift) for size in self.shape)
        return height, width

    def tile_counts(self, level: int) -> tuple[int, int]:
        """Number of tiles (down, across) of a level."""
        height, width = self.level_shape(level)
        return -(-height // self.tile_px), -(-width // self.tile_px)

    def window(self, level: int, column: int, row: int) -> Window | None:
        """Return the pixels of a level that a tile covers; None where there is no such tile."""
        if not 0 <= level < self.level_count:
            return None
        down, across = self.tile_counts(level)
        if not (0 <= row < down and 0 <= column < across):
            return None
        height, width = self.level_shape(level)
        return Window(self._interval(row, height), self._interval(column, width))

    def finest_level(self, max_px: int) -> int:
        """Return the finest level that has at most `max_px` pixels, level 0 if none has."""
        fitting = [
            level
            for level in range(self.level_count)
            if self.level_shape(level)[0] * self.level_shape(level)[1] <= max_px
        ]
        return max(fitting, default=0)

    def _interval(self, number: int, size: int) -> Interval:
        start, stop = number * self.tile_px - self.overlap_px, (number + 1) * self.tile_px + self.overlap_px
        return Interval(max(0, start), min(size, stop))
