"""Bytes of a prediction, and the plan for it: no map is kept, so memory does not grow with the slide. No TensorFlow.

    peak = runtime + tiles in flight + windows read ahead + results that wait + rows

    in flight    of each tile that is computed: the most that is alive at once, since TensorFlow lets go of a map after
                 its last reader
    results      probabilities of tiles that are done and wait for their turn
    rows         one row of tiles as wide as the slide, from which outlines and pyramids are made

A prediction has one sweep, in which keeping maps saves little: what tiles compute twice costs less than writing maps
and reading them back (16000 x 16000 px, two cores: 2.0 s without cuts, 1.9 s with all).
"""

from dataclasses import dataclass

from gigaslide.memory import cost, planner
from gigaslide.memory.model import HEAP, HEAP_BYTES_PER_OP, largest_tile, tile_count
from gigaslide.memory.planner import DoesNotFit
from gigaslide.network.graph import IMAGE, Graph
from gigaslide.streaming.plan import READ_AHEAD, Plan, Segment, segments
from gigaslide.streaming.tiles import Tile, extents, padded_shape

# Of a process that has TensorFlow and a network loaded, 0.70 GB, and the traced functions. Measured on Linux.
RUNTIME_BYTES = 720_000_000
# Per pixel of a row of tiles: labels, validity, and the same again while one is handed on.
_ROW_BYTES_PER_PX = 4
_PROBABILITY_BYTES = 4
_PIXEL_BYTES = 4  # colours and validity of a window, before they become the network's input


@dataclass(frozen=True)
class PredictionPlan:
    """How a slide is visited, and the most bytes that the process is expected to take."""

    plan: Plan
    peak_bytes: int


def choose(
    graph: Graph, shape: tuple[int, int], cores: int, budget_bytes: float, runtime_bytes: int = RUNTIME_BYTES
) -> PredictionPlan:
    """Return the plan for a slide of `shape` (y, x): the fastest that fits.

    Raises:
        DoesNotFit: none does; the message says by how much.
    """
    plans = [found.plan for found in planner.candidates(graph, shape, cores) if not found.plan.cuts]
    found = [PredictionPlan(plan, peak_bytes(graph, shape, plan, runtime_bytes)) for plan in plans]
    fitting = [candidate for candidate in found if candidate.peak_bytes <= budget_bytes]
    if fitting:
        return min(fitting, key=lambda candidate: cost.step_s(graph, shape, candidate.plan, cores))
    smallest = min(found, key=lambda candidate: candidate.peak_bytes)
    raise DoesNotFit(
        f"predicting {shape[0]} x {shape[1]} px does not fit {budget_bytes / 1e9:.2f} GB: it needs "
        f"{smallest.peak_bytes / 1e9:.2f} GB; give a larger --budget-gb, fewer --jobs, or a coarser --mpp"
    )


def peak_bytes(graph: Graph, shape: tuple[int, int], plan: Plan, runtime_bytes: int = RUNTIME_BYTES) -> int:
    """Return the most bytes that predicting a slide of `shape` (y, x) takes at once, of a plan without cuts."""
    padded = padded_shape(graph, shape)
    sizes = extents(graph, padded)
    (segment,) = segments(graph, plan.cuts)
    tile = largest_tile(graph, segment, plan, padded, sizes)
    count = tile_count(segment, plan, padded)
    running = min(plan.workers, count)
    waiting = min(count, plan.workers * (1 + READ_AHEAD) + 1)
    owned_px = tile.owned.shape[0] * tile.owned.shape[1]
    (image,) = (window for name, window in zip(segment.inputs, tile.reads, strict=True) if name == IMAGE)
    image_px = image.shape[0] * image.shape[1]
    in_flight = running * (HEAP * _alive_bytes(graph, segment, tile) + HEAP_BYTES_PER_OP * len(segment.ops))
    reading = running * image_px * _PIXEL_BYTES
    held = waiting * (image_px * 3 * 4 + owned_px * _PROBABILITY_BYTES)
    rows = tile.owned.shape[0] * padded[1] * _ROW_BYTES_PER_PX
    return round(runtime_bytes + in_flight + reading + held + rows)


def _alive_bytes(graph: Graph, segment: Segment, tile: Tile) -> int:
    """Return the most bytes of maps that are alive at once, in float32; an operation's inputs live while it runs."""
    sizes = {
        name: window.shape[0] * window.shape[1] * graph.by_name[name].channels * 4
        for name, window in zip(segment.ops, tile.holds, strict=True)
    }
    last_reader: dict[str, int] = {}
    for number, name in enumerate(segment.ops):
        for source in graph.by_name[name].inputs:
            last_reader[source] = number
    most, alive = 0, 0
    for number, name in enumerate(segment.ops):
        alive += sizes[name]
        most = max(most, alive)
        for source in set(graph.by_name[name].inputs) & sizes.keys():
            if last_reader[source] == number:
                alive -= sizes[source]
    return most
