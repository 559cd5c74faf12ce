"""An area of one shape, cut into the tiles of every segment."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gigaslide.geometry import Window
from gigaslide.network.graph import Graph
from gigaslide.streaming.plan import Plan, Segment
from gigaslide.streaming.tiles import Tile, extents, owned_shape, padded_shape, tiles


@dataclass(frozen=True)
class Layout:
    """What is computed where. All areas of one shape are visited by the same layout."""

    sizes: dict[str, tuple[int, int]]  # of every map
    tiles: dict[str, tuple[Tile, ...]]  # of every segment, by its output


def lay_out(graph: Graph, segments: Sequence[Segment], plan: Plan, shape: tuple[int, int]) -> Layout:
    """Return the tiles for an area of `shape` (y, x).

    Raises:
        UsageError: as `tiles.extents`.
    """
    padded = padded_shape(graph, shape)
    sizes = extents(graph, padded)
    found = {}
    for segment in segments:
        owned = owned_shape(graph, segment, plan.tiles[segment.output], padded, sizes)
        found[segment.output] = tiles(graph, segment, sizes, owned)
    return Layout(sizes, found)


def stitched(
    tiles: Sequence[Tile],
    shape: tuple[int, int],
    wanted: Callable[[Window], bool] | None,
    compute: Callable[[Sequence[int]], Iterator[NDArray[np.float32]]],
) -> Iterator[tuple[Window, NDArray[np.float32]]]:
    """Yield windows that tile an area of `shape`, row by row, with values (y, x) float32; 0 where none are `wanted`.

    Args:
        tiles: of the area, which may go on beyond it.
        shape: of the area, (y, x).
        wanted: told a window, whether it is to be computed; None: all are.
        compute: gives the values of those tiles, by their numbers, in their order.
    """
    inside = Window.of(0, 0, *shape)
    owned = [(number, tile.owned.clip(inside)) for number, tile in enumerate(tiles)]
    owned = [(number, window) for number, window in owned if window.y.size and window.x.size]
    chosen = [number for number, window in owned if wanted is None or wanted(window)]
    computed, coming = compute(chosen), set(chosen)
    for number, window in owned:
        if number in coming:
            yield window, next(computed)[: window.y.size, : window.x.size]
        else:
            yield window, np.zeros(window.shape, np.float32)
