"""Floating-point operations of one training step, from the network alone.

Multiplications and additions of the convolutions, forward, by the weights and by the input: what has to be computed,
once each. Not counted is what a plan computes again, what a kernel padded to the stride multiplies by zero, and all
that is element by element (some per cent).
"""

from gigaslide.memory.model import map_sizes
from gigaslide.network.graph import Graph, Op


def step_operations(graph: Graph, shape: tuple[int, int]) -> int:
    """Return the operations of a step on an area of `shape` (y, x), padded to a multiple of the total stride."""
    sizes = map_sizes(graph, shape)
    total = 0
    trained: set[str] = set()  # operations that come after a weight: a gradient goes through them
    for op in graph.ops:
        # Forward, and again for the weights' gradient, and for the input's where that leads to a weight.
        sweeps = 1 + (op.parameters > 0) + bool(trained.intersection(op.inputs))
        total += sweeps * _forward(graph, op, sizes)
        if op.parameters or trained.intersection(op.inputs):
            trained.add(op.name)
    return total


def _forward(graph: Graph, op: Op, sizes: dict[str, tuple[int, int]]) -> int:
    if op.kind not in ("conv", "depthwise", "transposed"):
        return 0
    # A transposed convolution spreads every pixel of its input, the others gather for every pixel of their output.
    height, width = sizes[op.inputs[0] if op.kind == "transposed" else op.name]
    inputs = 1 if op.kind == "depthwise" else graph.by_name[op.inputs[0]].channels
    return 2 * height * width * op.y.kernel * op.x.kernel * inputs * op.channels
