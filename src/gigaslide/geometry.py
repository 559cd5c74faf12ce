"""Half-open windows and grids in whole pixels, one axis at a time, always row before column: (y, x).

A two-dimensional window is two intervals that know nothing of each other, so everything is said once, for one axis.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class Interval:
    """Pixels `start <= i < stop` of one axis."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        """Refuse an interval that ends before it starts."""
        if self.stop < self.start:
            raise ValueError(f"an interval ends at or after its start; received start={self.start}, stop={self.stop}")

    @property
    def size(self) -> int:
        """Number of pixels."""
        return self.stop - self.start

    @property
    def slice(self) -> slice:
        """The same pixels as an array index."""
        return slice(self.start, self.stop)

    def shift(self, by: int) -> "Interval":
        """Move by `by` pixels."""
        return Interval(self.start + by, self.stop + by)

    def clip(self, to: "Interval") -> "Interval":
        """Return the part inside `to`; an empty interval at its nearer edge when there is none."""
        start = min(max(self.start, to.start), to.stop)
        return Interval(start, max(start, min(self.stop, to.stop)))


@dataclass(frozen=True, order=True, slots=True)
class Window:
    """A rectangle of pixels: rows `y`, columns `x`."""

    y: Interval
    x: Interval

    @classmethod
    def of(cls, top: int, left: int, height: int, width: int) -> "Window":
        """Build a window from its first row and column and its size."""
        return cls(Interval(top, top + height), Interval(left, left + width))

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width)."""
        return self.y.size, self.x.size

    @property
    def slices(self) -> tuple[slice, slice]:
        """Index of these pixels in an array (y, x, ...)."""
        return self.y.slice, self.x.slice

    def shift(self, y: int, x: int) -> "Window":
        """Move by `y` rows and `x` columns."""
        return Window(self.y.shift(y), self.x.shift(x))

    def clip(self, to: "Window") -> "Window":
        """Return the part inside `to`."""
        return Window(self.y.clip(to.y), self.x.clip(to.x))


def split(size: int, step: int) -> list[Interval]:
    """Cut `0 <= i < size` into intervals of `step` pixels, the last one shorter where `step` does not divide `size`."""
    if size < 0 or step < 1:
        raise ValueError(f"size is at least 0 and step at least 1; received size={size}, step={step}")
    return [Interval(start, min(start + step, size)) for start in range(0, size, step)]


def grid(shape: tuple[int, int], step: tuple[int, int]) -> Iterator[Window]:
    """Cut an area of `shape` (y, x) into windows of `step` (y, x), row by row; every pixel is in exactly one."""
    for y in split(shape[0], step[0]):
        for x in split(shape[1], step[1]):
            yield Window(y, x)


def round_up(size: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is at least `size`."""
    return -(-size // multiple) * multiple
