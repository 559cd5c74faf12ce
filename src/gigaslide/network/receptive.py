"""Which input pixels an output pixel needs: receptive fields by arithmetic, one axis at a time.

Kernel, stride and padding are known, so nothing is probed. For an operation on an axis of `size` pixels:

    extent(op, axis, size)          how many pixels its output has
    aligned(op, axis, out)          the smallest interval of output that holds `out` and can be computed in one go
    needed(op, axis, out, size)     the input pixels for `out`; they may lie beyond the edge, where padding is

`same` padding follows TensorFlow: the output has ceil(size / stride) pixels, and what is missing is added half before
and half after, the odd pixel after. See also Araujo, Norris and Sim 2019, "Computing Receptive Fields of Convolutional
Neural Networks", https://distill.pub/2019/computing-receptive-fields.
"""

from gigaslide.geometry import Interval
from gigaslide.network.graph import UPSAMPLING, Axis, Op


def span(axis: Axis) -> int:
    """Return the pixels from the first to the last that a kernel touches."""
    return (axis.kernel - 1) * axis.dilation + 1


def extent(op: Op, axis: Axis, size: int) -> int:
    """Return the output's number of pixels for an input of `size`; 0 or less when the input is too small."""
    match op.kind:
        case "conv" | "depthwise" | "max_pool" | "average_pool":
            return -(-size // axis.stride) if axis.same else (size - span(axis)) // axis.stride + 1
        case "transposed":
            return size * axis.stride + (0 if axis.same else max(span(axis) - axis.stride, 0))
        case "nearest" | "bilinear":
            return size * axis.stride
        case "pad":
            return size + axis.before + axis.after
        case "crop":
            return size - axis.before - axis.after
        case _:
            return size


def aligned(op: Op, axis: Axis, out: Interval) -> Interval:
    """Return the interval that is computed to get `out`: whole blocks where one input pixel makes a block."""
    if op.kind not in UPSAMPLING:
        return out
    return Interval(out.start // axis.stride * axis.stride, -(-out.stop // axis.stride) * axis.stride)


def needed(op: Op, axis: Axis, out: Interval, size: int) -> Interval:
    """Return the input pixels that the output pixels `out` depend on, of an input of `size` pixels.

    `out` is aligned and not empty. The result is not clipped: what lies before 0 or at or after `size` is padding.
    """
    match op.kind:
        case "conv" | "depthwise" | "max_pool" | "average_pool":
            start = out.start * axis.stride - padding_before(axis, size)
            return Interval(start, start + (out.size - 1) * axis.stride + span(axis))
        case "transposed":
            first, last = taps(axis)
            return Interval(out.start // axis.stride - last, (out.stop - 1) // axis.stride - first + 1)
        case "nearest":
            return Interval(out.start // axis.stride, out.stop // axis.stride)
        case "bilinear":
            return Interval(out.start // axis.stride - 1, out.stop // axis.stride + 1)
        case "pad":
            return out.shift(-axis.before)
        case "crop":
            return out.shift(axis.before)
        case _:
            return out


def padding_before(axis: Axis, size: int) -> int:
    """Return the pixels that `same` padding puts before the first one, for an input of `size`."""
    if not axis.same:
        return 0
    outputs = -(-size // axis.stride)
    return max((outputs - 1) * axis.stride + span(axis) - size, 0) // 2


def transposed_offset(axis: Axis) -> int:
    """Return how many pixels of a transposed convolution's full output `same` padding cuts off at its start."""
    return max(axis.kernel - axis.stride, 0) // 2 if axis.same else 0


def taps(axis: Axis) -> tuple[int, int]:
    """Return first and last block distance at which an input pixel of a transposed convolution has an effect.

    Output block q, of `stride` pixels, gets something from input pixel j when first <= q - j <= last: pixel r of the
    block takes the kernel's entry stride * (q - j) + r + offset.
    """
    offset = transposed_offset(axis)
    return -((axis.stride - 1 + offset) // axis.stride), (axis.kernel - 1 - offset) // axis.stride
