"""One operation of a graph on a window of its input: what the whole image has there, to rounding.

The engine hands over exactly the input pixels that the output window needs; where these lie beyond the edge of the map
`padding` says how many pixels are missing. Every convolution then runs without padding of its own.
"""

from typing import Any

import keras
import tensorflow as tf

from gigaslide.network.graph import Op
from gigaslide.network.receptive import taps, transposed_offset

# Above this many values per block of an up-sampled map, a product over all channels of the block wastes more time on
# its zeros than it saves.
_MAX_BLOCK_CHANNELS = 64
# TensorFlow's filter gradient on x86 takes 40 to 100 times as long for a kernel of 15 columns or more.
_MAX_KERNEL_WIDTH = 14


def run(op: Op, layer: Any, inputs: list[tf.Tensor], padding: list[tf.Tensor | None]) -> tf.Tensor:
    """Return the output window, (1, y, x, channel).

    Args:
        op: the operation.
        layer: the Keras layer, or function, behind it; its weights are used, and the gradient flows into them.
        inputs: (1, y, x, channel) each.
        padding: per input, int32 (2, 2): rows before and after, columns before and after, that lie beyond the edge;
            None where there are none.
    """
    x, pad = inputs[0], padding[0]
    match op.kind:
        case "conv":
            kernel = layer.pointwise_kernel if hasattr(layer, "pointwise_kernel") else layer.kernel
            kernel = tf.cast(kernel, x.dtype)
            dilations = (op.y.dilation, op.x.dilation)
            # Not `conv2d`, which on a CPU has no gradient where it is dilated.
            x = _convolved(_padded(x, pad), kernel, (op.y.stride, op.x.stride), dilations)
            return _biased(x, layer)
        case "depthwise":
            return _depthwise(op, layer, _padded(x, pad))
        case "transposed":
            return depth_to_space(transposed_blocks(op, layer, x, pad), op.y.stride, op.x.stride)
        case "max_pool":
            window = (op.y.kernel, op.x.kernel)
            return tf.nn.max_pool2d(_padded(x, pad, x.dtype.min), window, (op.y.stride, op.x.stride), "VALID")
        case "average_pool":
            return _average_pool(op, x, pad)
        case "nearest":
            return tf.repeat(tf.repeat(x, op.y.stride, axis=1), op.x.stride, axis=2)
        case "bilinear":
            return _bilinear(op, x, pad)
        case "pad" | "crop":
            return _padded(x, pad)
        case "concat":
            return tf.concat(inputs, axis=-1)
        case "merge":
            # A layer takes a list; what `a + b` makes takes each.
            return tf.cast(layer(inputs) if isinstance(layer, keras.Layer) else layer(*inputs), x.dtype)
        case "pointwise":
            return tf.cast(layer(x), x.dtype)
    raise ValueError(f"no operation has the kind {op.kind!r}")


def transposed_blocks(op: Op, layer: Any, x: tf.Tensor, padding: tf.Tensor | None) -> tf.Tensor:
    """Return a transposed convolution's output, block by block: (1, y / stride, x / stride, stride * stride * channel).

    A transposed convolution is an ordinary one with a small kernel that gives all pixels of a block as channels (Shi et
    al. 2016, arXiv 1609.05158, and its note arXiv 1609.07009). The order of the channels is (row, column, channel).
    """
    kernel = tf.cast(layer.kernel, x.dtype)  # (y, x, out, in)
    sizes = []
    for number, axis in enumerate((op.y, op.x)):
        first, last = taps(axis)
        offset = transposed_offset(axis)
        before = -(axis.stride * first + offset)
        after = axis.stride * (last + 1) - 1 + offset - (axis.kernel - 1)
        paddings = [[0, 0]] * 4
        paddings[number] = [before, after]
        kernel = tf.pad(kernel, paddings)
        sizes += [last - first + 1, axis.stride]
    outputs, inputs = layer.kernel.shape[2], layer.kernel.shape[3]
    # Distance first..last, entry within the block, for y and x; a correlation takes the distances the other way round.
    kernel = tf.reshape(kernel, (*sizes, outputs, inputs))[::-1, :, ::-1]
    kernel = tf.transpose(kernel, (0, 2, 5, 1, 3, 4))
    kernel = tf.reshape(kernel, (sizes[0], sizes[2], inputs, op.y.stride * op.x.stride * outputs))
    blocks = tf.nn.conv2d(_padded(x, padding), kernel, 1, "VALID")
    if layer.use_bias:
        bias = tf.cast(layer.bias, x.dtype)
        blocks = tf.nn.bias_add(blocks, tf.tile(bias, (op.y.stride * op.x.stride,)))
    return blocks


def depth_to_space(blocks: tf.Tensor, by_y: int, by_x: int) -> tf.Tensor:
    """(1, y / by_y, x / by_x, by_y * by_x * channel) -> (1, y, x, channel)."""
    if by_y == by_x:
        return tf.nn.depth_to_space(blocks, by_y) if by_y > 1 else blocks
    height, width, channels = tf.shape(blocks)[1], tf.shape(blocks)[2], blocks.shape[-1] // (by_y * by_x)
    x = tf.reshape(blocks, (1, height, width, by_y, by_x, channels))
    x = tf.transpose(x, (0, 1, 3, 2, 4, 5))
    return tf.reshape(x, (1, height * by_y, width * by_x, channels))


def conv_in_blocks(layer: Any, blocks: tf.Tensor, block: int) -> tf.Tensor:
    """Return a 1x1 convolution of a map held as blocks of `block` pixels, (1, y, x, block * channel), in that order.

    As one product of matrices: a convolution of two channels is slow on every processor, its gradient most of all.
    """
    kernel = tf.reshape(tf.cast(layer.kernel, blocks.dtype), layer.kernel.shape[2:])
    inputs, outputs = kernel.shape
    shape = tf.shape(blocks)
    if block * max(inputs, outputs) <= _MAX_BLOCK_CHANNELS:
        eye = tf.eye(block, dtype=kernel.dtype)
        kernel = tf.reshape(eye[:, None, :, None] * kernel[None, :, None, :], (block * inputs, block * outputs))
    x = tf.matmul(tf.reshape(blocks, (-1, kernel.shape[0])), kernel)
    x = tf.reshape(x, (1, shape[1], shape[2], block * outputs))
    if layer.use_bias:
        x = tf.nn.bias_add(x, tf.tile(tf.cast(layer.bias, x.dtype), (block,)))
    return x


def _convolved(x: tf.Tensor, kernel: tf.Tensor, strides: tuple[int, int], dilations: tuple[int, int]) -> tf.Tensor:
    """Convolve without padding; a wide kernel as the sum of narrower ones."""
    width = kernel.shape[1]
    parts = -(-width // _MAX_KERNEL_WIDTH)
    outputs = (tf.shape(x)[2] - (width - 1) * dilations[1] - 1) // strides[1] + 1
    total = None
    for part in range(parts):
        start, stop = width * part // parts, width * (part + 1) // parts
        columns = x
        if parts > 1:
            reach = (outputs - 1) * strides[1] + (stop - start - 1) * dilations[1] + 1
            columns = x[:, :, start * dilations[1] : start * dilations[1] + reach]
        found = tf.nn.convolution(columns, kernel[:, start:stop], strides, "VALID", dilations=dilations)
        total = found if total is None else total + found
    return total


def _padded(x: tf.Tensor, padding: tf.Tensor | None, value: float = 0) -> tf.Tensor:
    if padding is None:
        return x
    none = tf.zeros((1, 2), tf.int32)
    return tf.pad(x, tf.concat([none, padding, none], axis=0), constant_values=value)


def _biased(x: tf.Tensor, layer: Any) -> tf.Tensor:
    return tf.nn.bias_add(x, tf.cast(layer.bias, x.dtype)) if layer.use_bias else x


def _depthwise(op: Op, layer: Any, x: tf.Tensor) -> tf.Tensor:
    separable = hasattr(layer, "pointwise_kernel")
    kernel = tf.cast(layer.depthwise_kernel if separable else layer.kernel, x.dtype)
    dilations = (op.y.dilation, op.x.dilation)
    # TensorFlow ignores the strides of a dilated one, as Keras knows: it leaves out rows and columns afterwards.
    is_dilated = dilations != (1, 1)
    strides = (1, 1) if is_dilated else (op.y.stride, op.x.stride)
    x = tf.nn.depthwise_conv2d(x, kernel, (1, *strides, 1), "VALID", dilations=dilations)
    if is_dilated and (op.y.stride, op.x.stride) != (1, 1):
        x = x[:, :: op.y.stride, :: op.x.stride]
    return x if separable else _biased(x, layer)


def _average_pool(op: Op, x: tf.Tensor, padding: tf.Tensor | None) -> tf.Tensor:
    window, strides = (op.y.kernel, op.x.kernel), (op.y.stride, op.x.stride)
    mean = tf.nn.avg_pool2d(_padded(x, padding), window, strides, "VALID")
    if padding is None:
        return mean
    # The mean is over the pixels inside the map.
    inside = tf.nn.avg_pool2d(_padded(tf.ones_like(x[..., :1]), padding), window, strides, "VALID")
    return mean / inside


def _bilinear(op: Op, x: tf.Tensor, padding: tf.Tensor | None) -> tf.Tensor:
    """Interpolate between pixel centres, as Keras' UpSampling2D; `x` has one more pixel on each side."""
    if padding is not None:
        none = tf.zeros((1, 2), tf.int32)
        x = tf.pad(x, tf.concat([none, padding, none], axis=0), mode="SYMMETRIC")
    for axis, factor in ((1, op.y.stride), (2, op.x.stride)):
        size = tf.shape(x)[axis] - 2
        before, here, after = (_rows(x, axis, start, size) for start in range(3))
        phases = []
        for phase in range(factor):
            # The centre of output pixel `phase` of a block, seen from the centre of the input pixel.
            distance = (phase + 0.5) / factor - 0.5
            neighbour = before if distance < 0 else after
            phases.append(here * (1 - abs(distance)) + neighbour * abs(distance))
        shape = tf.tensor_scatter_nd_update(tf.shape(x), [[axis]], [size * factor])
        x = tf.reshape(tf.stack(phases, axis=axis + 1), shape)
    return x


def _rows(x: tf.Tensor, axis: int, start: int, size: tf.Tensor) -> tf.Tensor:
    return x[:, start : start + size] if axis == 1 else x[:, :, start : start + size]
