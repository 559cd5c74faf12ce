"""Bytes of one training step as a formula of network, extent, plan, type and platform. No TensorFlow.

    peak = runtime + kept maps + tiles in flight + windows read ahead

    runtime      what the process holds before the first step: the libraries, and the traced functions
    kept maps    every cut's map from its segment's forward sweep until its gradient is known, and its gradient's map
    in flight    of each tile that is computed: all maps between its operations, which the backward pass needs, and
                 the gradients of the largest two; malloc keeps some of it between tiles (HEAP)
    read ahead   input windows of the tiles in flight and of those that wait

The whole-image plan has one tile, and TensorFlow's own gradient of the loss in place of ours (WHOLE_LOSS_BYTES).
`gigaslide bench memory` measures a grid of networks, extents and plans beside these predictions.
"""

import platform as host
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gigaslide.geometry import Interval, Window
from gigaslide.network.graph import IMAGE, Graph, Op
from gigaslide.streaming.plan import READ_AHEAD, WHOLE, Plan, Segment, segments
from gigaslide.streaming.tiles import Tile, extents, owned_shape, padded_shape, tile_of

Platform = Literal["onednn", "im2col", "metal", "cuda"]
# Of a training process before its first step: Python, TensorFlow 2.19, MLflow, stores and the traced functions of the
# default network, resident. Measured on Linux without an accelerator; the others are estimates.
_RUNTIME_BYTES: dict[Platform, int] = {
    "onednn": 1_100_000_000,
    "im2col": 900_000_000,
    "metal": 1_100_000_000,
    "cuda": 2_500_000_000,
}
# Values per logit that the loss and its gradient hold at once: mask, labels, probability and three products.
_LOSS_VALUES = 6
# The same for TensorFlow's automatic gradient of the sums, bytes per pixel in float32: sigmoid and cross entropy keep
# 11 maps for the backward pass. Measured: 44 to 47.
WHOLE_LOSS_BYTES = 46
# Blocks freed by one thread, or of another size, are not all of use to the next: a part of what a tile holds, and a
# little per operation. Both fitted to `gigaslide bench memory`, tiles of 512 to 2048 px.
HEAP = 1.3
HEAP_BYTES_PER_OP = 4_500_000
# Wider kernels than this leave oneDNN's fast path; the filter gradient then goes through im2col on x86 too.
_ONEDNN_KERNEL_WIDTH = 14
# Rows on their way to and from files. Measured.
_DISK_BYTES = 20_000_000


@dataclass(frozen=True)
class Prediction:
    """Bytes of a step, term by term."""

    runtime_bytes: int
    maps_bytes: int
    tiles_bytes: int
    read_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Most bytes of the process at once."""
        return self.runtime_bytes + self.maps_bytes + self.tiles_bytes + self.read_bytes


def this_platform() -> Platform:
    """Return how TensorFlow computes on this machine's CPU; an accelerator is the caller's to know."""
    x86 = host.machine().lower() in ("x86_64", "amd64")
    return "onednn" if x86 or sys.platform == "linux" else "im2col"


def predict(
    graph: Graph,
    shape: tuple[int, int],
    plan: Plan,
    itemsize: int = 4,
    platform: Platform | None = None,
    runtime_bytes: int | None = None,
) -> Prediction:
    """Return the bytes of one training step on an area of `shape` (y, x).

    Args:
        graph: the network.
        shape: of the area in pixels.
        plan: how it is visited.
        itemsize: bytes of a value: 4 for float32, 2 for bfloat16, 8 for float64.
        platform: what computes; None: this machine's CPU.
        runtime_bytes: what the process holds before its first step; None: the figure of the platform.
    """
    kind = platform or this_platform()
    runtime = _RUNTIME_BYTES[kind] if runtime_bytes is None else runtime_bytes
    padded = padded_shape(graph, shape)
    sizes = extents(graph, padded)
    if plan.name == WHOLE:
        return Prediction(runtime, 0, _whole_bytes(graph, sizes, itemsize, kind), padded[0] * padded[1] * 3 * itemsize)
    maps = 0 if plan.storage == "disk" else kept_bytes(graph, plan.cuts, sizes, itemsize)
    tiles, reads = 0, 0
    on_the_way = _DISK_BYTES if plan.storage == "disk" else 0
    for segment in segments(graph, plan.cuts):
        tile = largest_tile(graph, segment, plan, padded, sizes)
        count = tile_count(segment, plan, padded)
        is_last = segment.output == graph.output.name
        inputs = read_bytes(graph, segment, tile, itemsize) + (tile.owned.y.size * tile.owned.x.size if is_last else 0)
        running = min(plan.workers, count)
        held = HEAP * tile_bytes(graph, segment, tile, itemsize, kind) + HEAP_BYTES_PER_OP * len(segment.ops)
        tiles = max(tiles, round(running * held))
        # And one whose result is being added.
        reads = max(reads, min(count, running * (1 + READ_AHEAD) + 1) * inputs)
    return Prediction(runtime, maps, tiles, reads + on_the_way)


def kept_bytes(graph: Graph, cuts: tuple[str, ...], sizes: Mapping[str, tuple[int, int]], itemsize: int) -> int:
    """Return the most bytes that kept maps and their gradients take at once: the steps of `Streamed.step`, in bytes."""

    def size(name: str) -> int:
        height, width = sizes[name]
        return height * width * graph.by_name[name].channels * itemsize

    forward = set(cuts)
    gradients: set[str] = set()
    most = sum(map(size, forward))
    for segment in reversed(segments(graph, cuts)):
        forward.discard(segment.output)
        gradients |= set(segment.inputs) - {IMAGE}
        most = max(most, sum(map(size, forward)) + sum(map(size, gradients)))
        gradients.discard(segment.output)
    return most


def tile_bytes(graph: Graph, segment: Segment, tile: Tile, itemsize: int, platform: Platform) -> int:
    """Return what one tile holds at the height of its backward pass, without its inputs."""
    held = {
        name: window.shape[0] * window.shape[1] * graph.by_name[name].channels * itemsize
        for name, window in zip(segment.ops, tile.holds, strict=True)
        if name == segment.output or not _is_spared(graph, name)
    }
    after = sorted(held.values())[-2:]
    if segment.output == graph.output.name:
        logits = tile.owned.shape[0] * tile.owned.shape[1] * max(itemsize, 4)
        after = [max(sum(after), _LOSS_VALUES * logits)]
    scratch = 0
    if platform == "im2col":
        windows = dict(zip(segment.ops, tile.holds, strict=True))
        scratch = max(
            (_im2col_values(graph, graph.by_name[name], windows[name].shape) for name in segment.ops), default=0
        )
    return sum(held.values()) + sum(after) + scratch * itemsize


def _is_spared(graph: Graph, name: str) -> bool:
    """Whether nothing of the backward pass looks at this map."""
    consumers = graph.consumers[name]
    return bool(consumers) and all(graph.by_name[consumer].spares_input for consumer in consumers)


def read_bytes(graph: Graph, segment: Segment, tile: Tile, itemsize: int) -> int:
    """Return the bytes of a tile's input windows and, for the backward sweep, of its output's gradient."""
    windows = list(zip(segment.inputs, tile.reads, strict=True))
    if segment.output != graph.output.name:
        windows.append((segment.output, tile.owned))
    return sum(w.shape[0] * w.shape[1] * graph.by_name[name].channels * itemsize for name, w in windows)


def map_sizes(graph: Graph, shape: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Return the size (y, x) of every map for an area of `shape`."""
    return extents(graph, padded_shape(graph, shape))


def largest_tile(
    graph: Graph, segment: Segment, plan: Plan, padded: tuple[int, int], sizes: Mapping[str, tuple[int, int]]
) -> Tile:
    """Return the tile in the middle of an area of `padded` px: no edge cuts its windows short."""
    owned = owned_shape(graph, segment, plan.tiles[segment.output], padded, sizes)
    size = sizes[segment.output]
    corner = [(whole // part // 2) * part for whole, part in zip(size, owned, strict=True)]
    ends = [min(start + part, whole) for start, part, whole in zip(corner, owned, size, strict=True)]
    window = Window(Interval(corner[0], ends[0]), Interval(corner[1], ends[1]))
    return tile_of(graph, segment, sizes, window)


def tile_count(segment: Segment, plan: Plan, padded: tuple[int, int]) -> int:
    """Return the number of the segment's tiles."""
    most = plan.tiles[segment.output]
    return -(-padded[0] // most[0]) * -(-padded[1] // most[1])


def _whole_bytes(graph: Graph, sizes: Mapping[str, tuple[int, int]], itemsize: int, platform: Platform) -> int:
    held = [op for op in graph.ops if op.name != IMAGE and not _is_spared(graph, op.name)]
    values = sum(sizes[op.name][0] * sizes[op.name][1] * op.channels for op in held)
    height, width = sizes[IMAGE]
    # Pixels' labels twice: as read, and padded.
    loss = height * width * (WHOLE_LOSS_BYTES * itemsize // 4 + 1)
    scratch = max(
        (
            _im2col_values(graph, op, sizes[op.name])
            for op in graph.ops
            if platform == "im2col" or op.x.kernel > _ONEDNN_KERNEL_WIDTH
        ),
        default=0,
    )
    return values * itemsize + loss + scratch * itemsize


def _im2col_values(graph: Graph, op: Op, out: tuple[int, int]) -> int:
    """Return the values of the matrix with one row per output pixel and one column per weight that it meets."""
    if op.kind == "conv":
        return op.y.kernel * op.x.kernel * graph.by_name[op.inputs[0]].channels * out[0] * out[1]
    if op.kind == "transposed":
        return op.y.kernel * op.x.kernel * op.channels * out[0] * out[1] // (op.y.stride * op.x.stride)
    return 0
