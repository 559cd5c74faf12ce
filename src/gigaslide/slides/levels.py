"""Which level of a pyramid serves which grid; every scale is that of the real sizes, per axis."""

from collections.abc import Sequence

Shape = tuple[int, int]

# Levels whose size is this near to the wanted one are used as they are.
LEVEL_TOLERANCE = 0.01


def shape_at(scale: tuple[float, float], levels: Sequence[Shape]) -> Shape:
    """Return the grid (y, x) with `scale` (y, x) pixels of level 0 to a pixel; that of a level within 1 % of it."""
    level0 = levels[0]
    for level in levels:
        ratios = [full / size / factor for full, size, factor in zip(level0, level, scale, strict=True)]
        if all(abs(ratio - 1) <= LEVEL_TOLERANCE for ratio in ratios):
            return level
    height, width = (max(1, min(full, round(full / factor))) for full, factor in zip(level0, scale, strict=True))
    return height, width


def best_level(shape: Shape, levels: Sequence[Shape]) -> int:
    """Return the number of the coarsest level that is not coarser than a grid of `shape`."""
    fitting = [
        number
        for number, level in enumerate(levels)
        if all(size >= wanted * (1 - LEVEL_TOLERANCE) for size, wanted in zip(level, shape, strict=True))
    ]
    return min(fitting, key=lambda number: levels[number], default=0)
