"""Seconds of one training step, predicted from the operations of a plan. No TensorFlow.

Arithmetic is counted tile by tile, with what tiles compute twice; rates are those of one core of one x86 server. They
order plans well; as a forecast they hold for that kind of machine, to the 40 % by which its speed drifts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gigaslide.geometry import Window
from gigaslide.memory.model import WHOLE_LOSS_BYTES, largest_tile, tile_count
from gigaslide.network.graph import IMAGE, Graph, Op
from gigaslide.network.receptive import taps
from gigaslide.streaming.plan import WHOLE, Plan, Segment, segments
from gigaslide.streaming.tiles import extents, padded_shape

# Of one core of a server of these years. A constant, not a measurement: the choice of a plan, and with it the last bits
# of a gradient, must not depend on what else the machine did at that moment.
CORE_FLOPS = 120e9
_LANES = 16  # float32 values of one vector register: a convolution to 3 channels uses 3 of 16
# Measured on one core with tiles in its cache; bytes per second.
_CACHE_BYTES_PER_S = 40e9  # element by element, read and written
_FRESH_BYTES_PER_S = 3.2e9  # the whole image's maps: every page is new
_MAP_BYTES_PER_S = 4e9  # windows of kept maps, copied
_DISK_BYTES_PER_S = 0.8e9
# Seconds per pixel: out of the store and into the network's input; labels.
_IMAGE_S = 3.0e-9
_LABELS_S = 0.6e-9
_STATISTICS_S = 2.6e-9
_LOSS_GRADIENT_S = 1.3e-9
_TILE_S = 0.5e-3  # Python, TensorFlow's call, threads
_SHARED = 0.8  # of a core's speed when the others work too
_FILTER_RATE = 0.5  # of a filter gradient, at best


def step_s(graph: Graph, shape: tuple[int, int], plan: Plan, cores: int, flops: float = CORE_FLOPS) -> float:
    """Return the predicted seconds of a step.

    Args:
        graph: the network.
        shape: of the area, (y, x) in pixels.
        plan: how it is visited.
        cores: that work on it.
        flops: float32 operations of one core per second, in a product of matrices.
    """
    padded = padded_shape(graph, shape)
    sizes = extents(graph, padded)
    if plan.name == WHOLE:
        return _whole_s(graph, sizes, flops) / cores
    total = 0.0
    for segment in segments(graph, plan.cuts):
        seconds = tile_s(graph, segment, plan, padded, sizes, flops)
        total += (seconds.forward_s + seconds.backward_s) * tile_count(segment, plan, padded)
    workers = min(plan.workers, cores)
    return total / (workers * shared_speed(workers))


@dataclass(frozen=True)
class TileSeconds:
    """Seconds of one tile of a segment, by one core that nobody else slows down."""

    forward_s: float  # in the sweep before the loss is known: its map, or its part of the statistics
    backward_s: float


def shared_speed(workers: int) -> float:
    """Return the part of a core's speed that each of `workers` has on a machine that they share."""
    return _SHARED if workers > 1 else 1.0


def tile_s(
    graph: Graph,
    segment: Segment,
    plan: Plan,
    padded: tuple[int, int],
    sizes: Mapping[str, tuple[int, int]],
    flops: float = CORE_FLOPS,
) -> TileSeconds:
    """Return the predicted seconds of a tile in the middle of an area of `padded` px, whose maps have these `sizes`."""
    needs = _depends_on_weights(graph)
    tile = largest_tile(graph, segment, plan, padded, sizes)
    is_last = segment.output == graph.output.name
    ops = [graph.by_name[name] for name in segment.ops]
    forward = {op.name: _forward_s(graph, op, w, flops) for op, w in zip(ops, tile.holds, strict=True)}
    backward = sum(_backward_s(graph, op, w, flops, needs) for op, w in zip(ops, tile.holds, strict=True))
    # The value of a linear operation is not needed to pull a gradient back through it.
    linear_end = ops[-1].kind in ("conv", "depthwise", "transposed") and not is_last
    again = sum(forward.values()) - (forward[ops[-1].name] if linear_end else 0)
    pixels = tile.owned.shape[0] * tile.owned.shape[1]
    first_s, second_s = sum(forward.values()) + _TILE_S, again + backward + _TILE_S
    for name, window in zip(segment.inputs, tile.reads, strict=True):
        first_s += _read_s(graph, plan, name, window)
        second_s += _read_s(graph, plan, name, window)
        if name != IMAGE:
            second_s += 2 * _map_s(graph, plan, name, window)  # its gradient is read, added to, and written
    if is_last:
        first_s += pixels * (_STATISTICS_S + _LABELS_S)
        second_s += pixels * (_LOSS_GRADIENT_S + _LABELS_S)
    else:
        first_s += _map_s(graph, plan, segment.output, tile.owned)
        second_s += _map_s(graph, plan, segment.output, tile.owned)
    return TileSeconds(first_s, second_s)


def _whole_s(graph: Graph, sizes: Mapping[str, tuple[int, int]], flops: float) -> float:
    needs = _depends_on_weights(graph)
    total, values = 0.0, 0
    for op in graph.ops[1:]:
        window = Window.of(0, 0, *sizes[op.name])
        values += sizes[op.name][0] * sizes[op.name][1] * op.channels
        total += _forward_s(graph, op, window, flops) + _backward_s(graph, op, window, flops, needs)
    height, width = sizes[IMAGE]
    fresh = 2 * (4 * values + height * width * WHOLE_LOSS_BYTES)
    return total + fresh / _FRESH_BYTES_PER_S + height * width * (_IMAGE_S + _LABELS_S)


def _depends_on_weights(graph: Graph) -> set[str]:
    """Return the operations whose gradient is needed: those that come after a weight."""
    found: set[str] = set()
    for op in graph.ops:
        if op.parameters or found.intersection(op.inputs):
            found.add(op.name)
    return found


def _forward_s(graph: Graph, op: Op, out: Window, flops: float) -> float:
    count = _operations(graph, op, out)
    if count:
        return count / (flops * _use(_block_channels(op)))
    return _moved_bytes(op, out) / _CACHE_BYTES_PER_S


def _backward_s(graph: Graph, op: Op, out: Window, flops: float, needs: set[str]) -> float:
    if op.name not in needs:
        return 0.0
    count = _operations(graph, op, out)
    if not count:
        return _moved_bytes(op, out) / _CACHE_BYTES_PER_S
    use = _use(_block_channels(op))
    seconds = count / (flops * min(use, _FILTER_RATE)) if op.parameters else 0.0
    if needs.intersection(op.inputs):
        seconds += count / (flops * _use(graph.by_name[op.inputs[0]].channels))
    return seconds


def _operations(graph: Graph, op: Op, out: Window) -> int:
    """Return multiplications and additions of a convolution; 0 of anything else."""
    pixels = out.shape[0] * out.shape[1]
    inputs = graph.by_name[op.inputs[0]].channels
    match op.kind:
        case "conv":
            return 2 * pixels * op.y.kernel * op.x.kernel * inputs * op.channels
        case "depthwise":
            return 2 * pixels * op.y.kernel * op.x.kernel * op.channels
        case "transposed":
            (a, b), (c, d) = taps(op.y), taps(op.x)
            return 2 * pixels * (b - a + 1) * (d - c + 1) * inputs * op.channels
        case _:
            return 0


def _moved_bytes(op: Op, out: Window) -> int:
    times = 3 if op.kind in ("max_pool", "average_pool", "bilinear") else 1
    return times * 8 * out.shape[0] * out.shape[1] * op.channels


def _block_channels(op: Op) -> int:
    return op.channels * op.y.stride * op.x.stride if op.kind == "transposed" else op.channels


def _use(channels: int) -> float:
    """Return the part of the vector units that a convolution to so many channels keeps busy."""
    return channels / (_LANES * -(-channels // _LANES))


def _read_s(graph: Graph, plan: Plan, name: str, window: Window) -> float:
    if name == IMAGE:
        return window.shape[0] * window.shape[1] * _IMAGE_S
    return _map_s(graph, plan, name, window)


def _map_s(graph: Graph, plan: Plan, name: str, window: Window) -> float:
    rate = _DISK_BYTES_PER_S if plan.storage == "disk" else _MAP_BYTES_PER_S
    return window.shape[0] * window.shape[1] * graph.by_name[name].channels * 4 / rate
