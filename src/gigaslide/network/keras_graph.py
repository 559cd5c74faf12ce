"""A Keras functional model as a graph; a layer that cannot be computed tile by tile is refused by name.

What can be tiled: every layer whose output pixel depends on a bounded neighbourhood of input pixels, in the same way
everywhere. What cannot: statistics over the image (batch normalisation while it trains, group and instance
normalisation, global pooling), weights per position, and random draws.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras

from gigaslide.errors import UsageError
from gigaslide.network.graph import IMAGE, SPARE_THEIR_INPUT, Axis, Graph, Op

_SPATIAL = "its mean and variance are taken over the whole image"
_REFUSED = {
    "BatchNormalization": f"{_SPATIAL} while it trains; freeze it (trainable=False) or leave it out",
    "GroupNormalization": _SPATIAL,
    "SpectralNormalization": "it changes its weights at every call",
    "GlobalAveragePooling2D": "it sees the whole image at once",
    "GlobalMaxPooling2D": "it sees the whole image at once",
    "Flatten": "it has one output for the whole image",
    "Lambda": "what it computes is not known",
}
_RANDOM = ("Dropout", "GaussianNoise", "GaussianDropout", "AlphaDropout")
_ELEMENTWISE = ("ReLU", "LeakyReLU", "ELU", "Identity")
_POINTWISE = (*_ELEMENTWISE, "Activation", "Rescaling", "Dense")
# Keras' activation functions that take all channels of a pixel together; its others are functions of one value.
_ACROSS_CHANNELS = ("softmax", "log_softmax", "sparsemax", "glu")
_MERGES = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")


def from_model(model: keras.Model) -> tuple[Graph, dict[str, Any]]:
    """Return the graph of `model`, and for every operation's name the Keras layer behind it.

    Raises:
        UsageError: the model has more than one input or output, its input is not three planes of floating point
            numbers, a layer cannot be tiled, or the output is not one channel of logits at the size of the image.
    """
    if not hasattr(model, "inputs"):
        raise UsageError(
            f"the network has to be a functional or sequential Keras model, whose layers can be seen; "
            f"{model.name} is a {type(model).__name__}"
        )
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise UsageError(
            f"a segmentation network takes one image and gives one map; {model.name} has {len(model.inputs)} inputs "
            f"and {len(model.outputs)} outputs"
        )
    image = model.inputs[0]
    if len(image.shape) != 4 or image.shape[-1] != 3 or image.dtype not in ("float32", "float64"):
        raise UsageError(
            f"the input of {model.name} is an image of three planes, (None, None, 3), in float32; received "
            f"{tuple(image.shape[1:])} in {image.dtype}"
        )
    reader = _Reader(image.dtype)
    reader.ops.append(Op(IMAGE, "image", (), 3))
    reader.names[id(image)] = IMAGE
    reader.visit(model.outputs[0])
    graph = Graph(tuple(reader.ops))
    _check_output(model, graph, reader.layers)
    return graph, reader.layers


def _check_output(model: keras.Model, graph: Graph, layers: dict[str, Any]) -> None:
    scale = graph.scales[graph.output.name]
    if scale != ((1, 1), (1, 1)) or graph.output.channels != 1:
        raise UsageError(
            f"the output of {model.name} is one channel of the image's size; layer {graph.output.layer!r} gives "
            f"{graph.output.channels} channel(s), a pixel of it is {scale[0][0] / scale[0][1]:g} x "
            f"{scale[1][0] / scale[1][1]:g} pixels of the image"
        )
    last = layers[graph.output.name]  # a layer, or the function that is the activation of one
    function = getattr(getattr(last, "activation", last), "__name__", "")
    if graph.output.kind == "pointwise" and function in ("sigmoid", "hard_sigmoid"):
        raise UsageError(
            f"the output of {model.name} is logits (above 0 is tissue), from which the loss takes the sigmoid itself: "
            f"remove the {function} of layer {graph.output.layer!r}"
        )


class _Reader:
    """Walks from the output back to the image, and notes every operation after its inputs."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self.ops: list[Op] = []
        self.layers: dict[str, Any] = {}
        self.names: dict[int, str] = {}  # of a Keras tensor, by its identity
        self._counted: set[int] = set()

    def visit(self, tensor: Any) -> str:
        """Return the name of the operation that gives `tensor`."""
        waiting = [tensor]  # not by recursion: a network may be deeper than Python's stack
        while waiting:
            layer, node_index, output_index = waiting[-1]._keras_history
            arguments = layer._inbound_nodes[node_index].arguments.keras_tensors
            unknown = [argument for argument in arguments if id(argument) not in self.names]
            if id(waiting[-1]) in self.names:
                waiting.pop()
            elif unknown:
                waiting.extend(reversed(unknown))
            else:
                found = waiting.pop()
                inputs = tuple(self.names[id(argument)] for argument in arguments)
                self.names[id(found)] = self._add(layer, inputs, int(found.shape[-1] or 0), output_index)
        return self.names[id(tensor)]

    def _add(self, layer: Any, inputs: tuple[str, ...], channels: int, output_index: int) -> str:
        if not isinstance(layer, keras.Model):
            return self._read(layer, inputs, channels)
        if not hasattr(layer, "inputs"):
            raise _refusal(layer, "it is no functional model, so its layers cannot be seen")
        # A model used as a layer: what it was called with here takes the place of its own input.
        inner = _Reader(self._dtype)
        inner.ops, inner.layers, inner._counted = self.ops, self.layers, self._counted
        inner.names = {id(tensor): name for tensor, name in zip(layer.inputs, inputs, strict=True)}
        return inner.visit(layer.outputs[output_index])

    def _read(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        kind = type(layer).__name__
        if getattr(layer, "data_format", "channels_last") not in ("channels_last", None):
            raise _refusal(layer, "its data_format is channels_first: gigaslide works on (y, x, channel)")
        if getattr(layer, "compute_dtype", self._dtype) != self._dtype:
            raise _refusal(layer, f"it computes in {layer.compute_dtype}, and the network's input is {self._dtype}")
        _check_activation(layer)
        handler: Callable[[Any, tuple[str, ...], int], str] | None = getattr(self, f"_read_{kind.lower()}", None)
        if handler is not None:
            return handler(layer, inputs, channels)
        if kind in _MERGES and len(inputs) > 1:
            return self._op(layer, Op(layer.name, "merge", inputs, channels))
        if kind in _POINTWISE:
            return self._pointwise(layer, inputs, channels)
        if kind.removeprefix("Spatial").removesuffix("2D") in _RANDOM:
            if getattr(layer, "rate", getattr(layer, "stddev", 1)) == 0:
                return self._pointwise(layer, inputs, channels)
            raise _refusal(layer, "it draws random numbers, and a tile would draw others than the whole image")
        raise _refusal(layer, _REFUSED.get(kind, "gigaslide does not know how far its output pixels look"))

    def _op(self, layer: Any, op: Op, activation: bool = False) -> str:
        """Note `op`, and a second operation for the activation that is part of the layer."""
        name, number = op.name, 1
        while op.name in self.layers:
            number += 1
            op = replace(op, name=f"{name}#{number}")
        op = replace(op, layer=layer.name, parameters=self._new_weights(layer))
        self.ops.append(_with_function(op, layer) if op.kind == "pointwise" else op)
        self.layers[op.name] = layer
        if activation and getattr(layer.activation, "__name__", "") != "linear":
            after = f"{op.name}/activation"
            pointwise = Op(after, "pointwise", (op.name,), op.channels, layer=layer.name)
            self.ops.append(_with_function(pointwise, layer.activation))
            self.layers[after] = layer.activation
            return after
        return op.name

    def _new_weights(self, layer: Any) -> int:
        """Return the trainable weights of `layer` the first time it is asked for, 0 later: it may be used twice."""
        if id(layer) in self._counted:
            return 0
        self._counted.add(id(layer))
        return sum(math.prod(weight.shape) for weight in getattr(layer, "trainable_weights", ()))

    def _pointwise(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        return self._op(layer, Op(layer.name, "pointwise", inputs, channels))

    def _read_conv2d(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        if layer.groups != 1:
            raise _refusal(layer, f"it has groups={layer.groups}, which TensorFlow cannot train on a CPU")
        y, x = _axes(layer, layer.kernel_size, layer.strides)
        return self._op(layer, Op(layer.name, "conv", inputs, channels, y, x), activation=True)

    def _read_depthwiseconv2d(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        y, x = _depthwise_axes(layer)
        return self._op(layer, Op(layer.name, "depthwise", inputs, channels, y, x), activation=True)

    def _read_separableconv2d(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        y, x = _depthwise_axes(layer)
        middle = int(layer.depthwise_kernel.shape[-2] * layer.depthwise_kernel.shape[-1])
        depthwise = self._op(layer, Op(f"{layer.name}/depthwise", "depthwise", inputs, middle, y, x))
        return self._op(layer, Op(layer.name, "conv", (depthwise,), channels), activation=True)

    def _read_conv2dtranspose(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        if tuple(layer.dilation_rate) != (1, 1) or layer.output_padding is not None:
            raise _refusal(layer, "it has a dilation_rate or an output_padding")
        y, x = _axes(layer, layer.kernel_size, layer.strides)
        return self._op(layer, Op(layer.name, "transposed", inputs, channels, y, x), activation=True)

    def _read_maxpooling2d(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        y, x = _axes(layer, layer.pool_size, layer.strides)
        return self._op(layer, Op(layer.name, "max_pool", inputs, channels, y, x))

    def _read_averagepooling2d(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        y, x = _axes(layer, layer.pool_size, layer.strides)
        return self._op(layer, Op(layer.name, "average_pool", inputs, channels, y, x))

    def _read_upsampling2d(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        if layer.interpolation not in ("nearest", "bilinear"):
            raise _refusal(layer, f"of its interpolations nearest and bilinear are known, not {layer.interpolation}")
        y, x = (Axis(stride=int(factor)) for factor in layer.size)
        return self._op(layer, Op(layer.name, layer.interpolation, inputs, channels, y, x))

    def _read_zeropadding2d(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        y, x = (Axis(before=int(a), after=int(b)) for a, b in layer.padding)
        return self._op(layer, Op(layer.name, "pad", inputs, channels, y, x))

    def _read_cropping2d(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        y, x = (Axis(before=int(a), after=int(b)) for a, b in layer.cropping)
        return self._op(layer, Op(layer.name, "crop", inputs, channels, y, x))

    def _read_concatenate(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        if layer.axis not in (-1, 3):
            raise _refusal(layer, f"it joins along axis {layer.axis}: only channels (-1) can be joined")
        return self._op(layer, Op(layer.name, "concat", inputs, channels))

    def _read_softmax(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        if layer.axis not in (-1, 3):
            raise _refusal(layer, f"its axis {layer.axis} is not the channels (-1)")
        return self._pointwise(layer, inputs, channels)

    def _read_prelu(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        if sorted(layer.shared_axes or ()) != [1, 2]:
            raise _refusal(layer, "it has a weight per position: give it shared_axes=[1, 2]")
        return self._pointwise(layer, inputs, channels)

    def _read_layernormalization(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        axes = [layer.axis] if isinstance(layer.axis, int) else list(layer.axis)
        if axes not in ([-1], [3]):
            raise _refusal(layer, f"{_SPATIAL}; over the channels alone (axis=-1) it can be tiled")
        return self._pointwise(layer, inputs, channels)

    _read_rmsnormalization = _read_unitnormalization = _read_layernormalization

    def _read_batchnormalization(self, layer: Any, inputs: tuple[str, ...], channels: int) -> str:
        if layer.trainable:
            raise _refusal(layer, _REFUSED["BatchNormalization"])
        if layer.axis not in (-1, 3):
            raise _refusal(layer, f"its axis {layer.axis} is not the channels (-1)")
        return self._pointwise(layer, inputs, channels)


def _axes(layer: Any, kernel: tuple[int, int], strides: tuple[int, int]) -> tuple[Axis, Axis]:
    if layer.padding not in ("same", "valid"):
        raise _refusal(layer, f"its padding is {layer.padding!r}, not same or valid")
    dilation = getattr(layer, "dilation_rate", (1, 1))
    y, x = (
        Axis(int(k), int(s), int(d), layer.padding == "same") for k, s, d in zip(kernel, strides, dilation, strict=True)
    )
    return y, x


def _depthwise_axes(layer: Any) -> tuple[Axis, Axis]:
    y, x = _axes(layer, layer.kernel_size, layer.strides)
    if y.stride != x.stride and (y.dilation, x.dilation) == (1, 1):
        raise _refusal(layer, f"TensorFlow has none whose strides {y.stride} and {x.stride} differ")
    return y, x


def _refusal(layer: Any, reason: str) -> UsageError:
    return UsageError(
        f"layer {layer.name!r} ({type(layer).__name__}) cannot be computed tile by tile: {reason} (memory.plan: whole "
        "takes any network, in one piece)"
    )


def _check_activation(layer: Any) -> None:
    """Refuse an activation of which only its author knows whether it looks at one pixel at a time."""
    activation = getattr(layer, "activation", None)
    if activation is None or _is_elementwise(activation):
        return
    if not getattr(activation, "__module__", "").startswith(("keras.src.activations", "tensorflow.")):
        raise _refusal(
            layer,
            f"its activation {getattr(activation, '__name__', type(activation).__name__)} is not one of "
            "keras.activations; a layer is put after it as a layer of its own",
        )


def _is_elementwise(layer: Any) -> bool:
    """Whether a layer, or the activation function of one, is a function of each value alone."""
    if isinstance(layer, keras.layers.Activation):
        return _is_elementwise(layer.activation)
    name = getattr(layer, "__name__", "")
    is_keras_function = bool(name) and layer.__module__.startswith("keras.src.activations")
    return type(layer).__name__ in _ELEMENTWISE or (is_keras_function and name not in _ACROSS_CHANNELS)


def _with_function(op: Op, layer: Any) -> Op:
    """Return a pointwise operation with what is known of its function."""
    return replace(op, elementwise=_is_elementwise(layer), spares_input=_spares_input(layer))


def _spares_input(layer: Any) -> bool:
    """Whether TensorFlow computes the gradient of a layer, or of an activation function, from its output."""
    if isinstance(layer, keras.layers.Activation):
        return _spares_input(layer.activation)
    if isinstance(layer, keras.layers.ReLU):
        return not layer.negative_slope and not layer.threshold
    return _is_elementwise(layer) and getattr(layer, "__name__", "") in SPARE_THEIR_INPUT
