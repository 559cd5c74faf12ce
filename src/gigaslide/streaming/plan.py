"""How an area is visited: which maps are kept, and the tiles in which each segment of the network streams.

A **cut** is an operation whose whole output map is kept. Each cut, and the logits, ends one **segment**: the operations
between it and the cuts (or the image) before it. Operations that two segments need are computed in both, which costs
time and no exactness.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gigaslide.geometry import round_up
from gigaslide.network.graph import IMAGE, Graph

Storage = Literal["ram", "disk"]
READ_AHEAD = 2  # tiles that are read ahead of those computed, per worker
WHOLE = "whole"  # the name of the plan without cuts and with one tile, as in the paper


@dataclass(frozen=True)
class Plan:
    """A way to visit an area. Sizes are (y, x) in pixels of the image."""

    name: str
    cuts: tuple[str, ...]
    tiles: Mapping[
        str, tuple[int, int]
    ]  # of each segment, by the operation that ends it; multiples of the total stride
    storage: Storage = "ram"  # where kept maps live; disk: files, for maps larger than the budget
    workers: int = 1  # tiles computed at once


def whole_plan() -> Plan:
    """Return the plan that holds everything at once."""
    return Plan(WHOLE, (), {})


@dataclass(frozen=True)
class Segment:
    """A part of the network: operations from kept maps to one that is kept, or to the logits."""

    output: str
    inputs: tuple[str, ...]  # kept maps, or the image
    ops: tuple[str, ...]  # in the graph's order; the last is `output`


def segments(graph: Graph, cuts: tuple[str, ...]) -> tuple[Segment, ...]:
    """Return the segments that `cuts` divide the network into, in an order in which they can be computed.

    Raises:
        ValueError: a cut is no operation of the graph, or is the image or the logits, which are never kept.
    """
    for name in cuts:
        if name not in graph.by_name or name in (IMAGE, graph.output.name):
            raise ValueError(f"a cut is an operation between image and logits; received {name!r}")
    kept = {IMAGE, *cuts}
    ends = [op.name for op in graph.ops if op.name in cuts] + [graph.output.name]
    return tuple(_segment(graph, kept, end) for end in ends)


def _segment(graph: Graph, kept: set[str], end: str) -> Segment:
    inside, inputs, waiting = {end}, set(), [end]
    while waiting:
        for name in graph.by_name[waiting.pop()].inputs:
            if name in kept:
                inputs.add(name)
            elif name not in inside:
                inside.add(name)
                waiting.append(name)
    order = [op.name for op in graph.ops]
    return Segment(end, tuple(n for n in order if n in inputs), tuple(n for n in order if n in inside))


def balanced_tile(area: tuple[int, int], tile: tuple[int, int], multiple: tuple[int, int]) -> tuple[int, int]:
    """Return a tile no larger than `tile`, of which as many as needed cover `area` in nearly equal parts."""
    height, width = (
        round_up(-(-size // -(-size // most)), step) for size, most, step in zip(area, tile, multiple, strict=True)
    )
    return height, width
