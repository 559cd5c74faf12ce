"""A network as a graph of operations: what the streaming engine, the memory model and the planner know of it.

Plain values, no TensorFlow. `describe.py` makes one from `params.yaml`, `keras_graph.py` from a Keras model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd, lcm
from typing import Literal

IMAGE = "image"

Kind = Literal[
    "image",  # the input
    "conv",  # convolution with bias
    "depthwise",  # one filter, or a few, per channel
    "transposed",  # transposed convolution: each input pixel spreads over a kernel
    "max_pool",
    "average_pool",  # where the kernel leaves the map, the mean is over what is inside
    "nearest",  # up-sampling by repetition
    "bilinear",  # up-sampling by interpolation, edges repeated
    "pad",  # zeros around the map
    "crop",
    "pointwise",  # a function of each pixel alone
    "concat",  # along the channels
    "merge",  # sum, product, maximum, ... of maps of one size
]
# Windows of these are computed in whole blocks of `stride` pixels.
UPSAMPLING: frozenset[Kind] = frozenset({"transposed", "nearest", "bilinear"})
# Activation functions of which TensorFlow's gradient takes the output.
SPARE_THEIR_INPUT = frozenset({"relu", "elu", "sigmoid", "tanh"})
_SHRINKING: frozenset[Kind] = frozenset({"conv", "depthwise", "max_pool", "average_pool"})


@dataclass(frozen=True)
class Axis:
    """What an operation does along one axis, y or x."""

    kernel: int = 1
    stride: int = 1  # of a convolution or pooling; the factor of up-sampling
    dilation: int = 1
    same: bool = False  # `same` padding: the output has 1/stride of the size, zeros beyond the edges
    before: int = 0  # of pad and crop, pixels
    after: int = 0


@dataclass(frozen=True)
class Op:
    """One operation. `layer` is the Keras layer that it comes from; two ops may share one."""

    name: str
    kind: Kind
    inputs: tuple[str, ...]
    channels: int
    y: Axis = field(default_factory=Axis)
    x: Axis = field(default_factory=Axis)
    layer: str = ""
    parameters: int = 0
    elementwise: bool = False  # a pointwise function of each value alone, the same for all channels
    spares_input: bool = False  # its gradient is computed from its output, so that nobody has to keep its input for it


@dataclass(frozen=True)
class Graph:
    """Operations in an order in which each comes after its inputs; the first is the image, the last the logits."""

    ops: tuple[Op, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Op]:
        """Every operation by its name."""
        return {op.name: op for op in self.ops}

    @property
    def output(self) -> Op:
        """The operation that gives the logits."""
        return self.ops[-1]

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """For every operation, those that read its output, in order."""
        found: dict[str, list[str]] = {op.name: [] for op in self.ops}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                found[name].append(op.name)
        return {name: tuple(names) for name, names in found.items()}

    @property
    def parameters(self) -> int:
        """Number of trainable weights."""
        return sum(op.parameters for op in self.ops)

    @cached_property
    def scales(self) -> Mapping[str, tuple[tuple[int, int], tuple[int, int]]]:
        """For every operation ((y numerator, denominator), (x ...)): image pixels per pixel of its map, reduced."""
        found: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {}
        for op in self.ops:
            if not op.inputs:
                found[op.name] = ((1, 1), (1, 1))
                continue
            y, x = found[op.inputs[0]]
            found[op.name] = (_scale(op, op.y, y), _scale(op, op.x, x))
        return found

    @cached_property
    def total_stride(self) -> tuple[int, int]:
        """Image height and width are padded to multiples of this (y, x), so that maps to be joined are of one size."""
        scales = self.scales.values()
        return lcm(*(y[0] for y, _ in scales)), lcm(*(x[0] for _, x in scales))


def _scale(op: Op, axis: Axis, scale: tuple[int, int]) -> tuple[int, int]:
    numerator, denominator = scale
    if op.kind in _SHRINKING:
        numerator *= axis.stride
    elif op.kind in UPSAMPLING:
        denominator *= axis.stride
    common = gcd(numerator, denominator)
    return numerator // common, denominator // common
