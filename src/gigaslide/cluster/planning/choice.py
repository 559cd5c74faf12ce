"""The fastest plan for a cluster that fits its machines.

It is not that of one machine. Many workers want many tiles, also of the coarse maps in the middle, which are few tiles
where a tile is as large as a worker can hold; and the driver wants few. So coarse segments are tried with smaller ones.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import inf

from gigaslide.cluster.planning.forecast import Cluster, Division, Forecast, divide, forecast
from gigaslide.memory.planner import DoesNotFit, cut_sets, tile_px_of
from gigaslide.network.graph import IMAGE, Graph
from gigaslide.streaming.plan import Plan, segments
from gigaslide.streaming.tiles import padded_shape

_TILE_PX = (256, 512, 1024, 2048)  # along one side, of the finest map of a segment
# Tiles of coarser segments, along one side, at most: so many times those of the finest. None: as many pixels.
_COARSE = (1, 2, 4, None)


def divisions(graph: Graph, shape: tuple[int, int]) -> list[Division]:
    """Return every plan worth looking at for an area of `shape` (y, x), with its tiles."""
    return [divide(graph, shape, plan) for plan in _plans(graph, padded_shape(graph, shape))]


def forecasts(
    found: Sequence[Division], cluster: Cluster, budget_bytes: float = inf, at_least: int = 1
) -> list[Forecast]:
    """Return what plans are predicted to take on a cluster, fastest first.

    Of those with which every machine keeps to the budget the fastest is among them; if there are none, the smallest is.
    `at_least` so many are returned, if as many keep to it.
    """
    # Counting what is sent of maps takes longest: only where the rest leaves a plan a chance.
    rough = sorted((forecast(division, cluster, with_maps=False) for division in found), key=lambda one: one.step_s)
    exact: list[Forecast] = []
    for one in rough:
        if len(exact) >= at_least and any(
            done.step_s <= one.step_s and done.machine_bytes <= budget_bytes for done in exact
        ):
            break
        if one.machine_bytes <= budget_bytes:
            exact.append(forecast(one.division, cluster))
    if not any(one.machine_bytes <= budget_bytes for one in exact):
        exact.append(forecast(min(rough, key=lambda one: one.machine_bytes).division, cluster))
    return sorted(exact, key=lambda one: (one.step_s, one.machine_bytes))


def choose(found: Sequence[Forecast], budget_bytes: float) -> Forecast:
    """Return the fastest plan with which every machine keeps to the budget; `found` is from `forecasts`.

    Raises:
        DoesNotFit: there is none.
    """
    for one in found:
        if one.machine_bytes <= budget_bytes:
            return one
    smallest = min(found, key=lambda one: one.machine_bytes)
    shape, cluster = smallest.division.shape, smallest.cluster
    raise DoesNotFit(
        f"a training step on {shape[0]} x {shape[1]} px over {cluster.machines} machine(s) does not fit "
        f"{budget_bytes / 1e9:.2f} GB of each: the smallest plan ({smallest.division.plan.name}) needs "
        f"{smallest.machine_bytes / 1e9:.2f} GB, {smallest.store_bytes / 1e9:.2f} GB of it for maps; ask for more "
        "--workers, fewer --workers-per-machine, or a larger --budget-gb"
    )


def _plans(graph: Graph, padded: tuple[int, int]) -> Iterator[Plan]:
    seen = set()
    for cuts, tile_px, coarse in product(cut_sets(graph), _TILE_PX, _COARSE):
        name = f"cut:{'+'.join(cuts) or 'none'} tile:{tile_px}"
        most = padded
        if coarse is not None:
            name += f" coarse:{coarse * tile_px}"
            most = tile_px_of(graph, (IMAGE,), coarse * tile_px, padded)
        tiles = {}
        for segment in segments(graph, cuts):
            tile = tile_px_of(graph, segment.inputs + segment.ops, tile_px, padded)
            tiles[segment.output] = min(tile[0], most[0]), min(tile[1], most[1])
        if (cuts, *tiles.values()) not in seen:
            seen.add((cuts, *tiles.values()))
            yield Plan(name, cuts, tiles)
