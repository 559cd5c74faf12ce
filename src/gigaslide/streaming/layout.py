"""An area of one shape, cut into the tiles of every segment."""

from collections.abc import Sequence
from dataclasses import dataclass

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
