"""Against brute force: one pixel after the other is set in a row of zeros, and Keras shows where it is seen."""

from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gigaslide.geometry import Interval
from gigaslide.network.graph import Axis, Kind, Op
from gigaslide.network.receptive import aligned, extent, needed, padding_before, taps

layers = keras.layers
KINDS: list[Kind] = [
    "conv",
    "depthwise",
    "max_pool",
    "average_pool",
    "transposed",
    "nearest",
    "bilinear",
    "pad",
    "crop",
]


@st.composite
def axes(draw: st.DrawFn, kind: Kind) -> Axis:
    if kind in ("pad", "crop"):
        return Axis(before=draw(st.integers(0, 3)), after=draw(st.integers(0, 3)))
    if kind in ("nearest", "bilinear"):
        return Axis(stride=draw(st.integers(1, 4)))
    stride = draw(st.integers(1, 5))
    dilation = draw(st.integers(1, 3)) if kind in ("conv", "depthwise") and stride == 1 else 1
    return Axis(draw(st.integers(1, 7)), stride, dilation, draw(st.booleans()))


def keras_layer(kind: Kind, axis: Axis) -> Any:
    """Return the layer that does along x what `axis` says, and nothing along y; weights are 1."""
    padding = "same" if axis.same else "valid"
    if kind in ("nearest", "bilinear"):
        return layers.UpSampling2D((1, axis.stride), interpolation=kind)
    if kind == "pad":
        return layers.ZeroPadding2D(((0, 0), (axis.before, axis.after)))
    if kind == "crop":
        return layers.Cropping2D(((0, 0), (axis.before, axis.after)))
    if kind in ("max_pool", "average_pool"):
        make = layers.MaxPooling2D if kind == "max_pool" else layers.AveragePooling2D
        return make((1, axis.kernel), (1, axis.stride), padding)
    if kind == "transposed":
        return layers.Conv2DTranspose(1, (1, axis.kernel), (1, axis.stride), padding, kernel_initializer="ones")
    if kind == "depthwise":
        # TensorFlow has them with equal strides only; one row stays one row.
        return layers.DepthwiseConv2D(
            (1, axis.kernel), axis.stride, padding, dilation_rate=(1, axis.dilation), depthwise_initializer="ones"
        )
    return layers.Conv2D(
        1, (1, axis.kernel), (1, axis.stride), padding, dilation_rate=(1, axis.dilation), kernel_initializer="ones"
    )


def seen_by(layer: Any, size: int) -> NDArray[np.bool_]:
    """Return (output pixel, input pixel): whether the one sees the other. All layers here are linear, or a maximum."""
    return layer(np.eye(size, dtype=np.float32).reshape(size, 1, size, 1)).numpy()[:, 0, :, 0].T != 0


@settings(max_examples=200)
@given(st.data(), st.sampled_from(KINDS), st.integers(1, 12))
def test_extent_and_needed_pixels(data: st.DataObject, kind: Kind, size: int) -> None:
    axis = data.draw(axes(kind))
    op = Op("op", kind, ("image",), 1, x=axis)
    outputs = extent(op, axis, size)
    assume(outputs > 0)
    seen = seen_by(keras_layer(kind, axis), size)
    assert seen.shape[0] == outputs

    start = data.draw(st.integers(0, outputs - 1))
    out = Interval(start, data.draw(st.integers(start + 1, outputs)))
    computed = aligned(op, axis, out)
    assert computed.start <= out.start
    assert computed.stop >= out.stop
    window = needed(op, axis, computed, size)
    pixels = np.flatnonzero(seen[out.slice].any(axis=0))
    if pixels.size:
        assert window.start <= pixels[0]
        assert window.stop > pixels[-1]
    if kind in ("conv", "depthwise", "max_pool", "average_pool", "nearest", "crop") and axis.dilation == 1:
        # And not a pixel too much inside the map.
        pixels = np.flatnonzero(seen[computed.slice].any(axis=0))
        inside = window.clip(Interval(0, size))
        assert (inside.start, inside.stop - 1) == (pixels[0], pixels[-1])


@settings(max_examples=60)
@given(axes("conv"), st.integers(1, 12))
def test_what_lies_beyond_the_edge_is_what_keras_pads(axis: Axis, size: int) -> None:
    op = Op("op", "conv", ("image",), 1, x=axis)
    outputs = extent(op, axis, size)
    assume(outputs > 0)
    window = needed(op, axis, Interval(0, outputs), size)
    assert max(-window.start, 0) == padding_before(axis, size)
    # Explicit zeros and a `valid` convolution give the same numbers.
    layer = keras_layer("conv", axis)
    values = np.random.default_rng(size).normal(size=size).astype(np.float32)
    padded = np.pad(values, (max(-window.start, 0), max(window.stop - size, 0)))
    padded = padded[max(window.start, 0) :][: window.size]
    expected = layer(values.reshape(1, 1, -1, 1)).numpy().ravel()
    layer.padding = "valid"
    assert layer(padded.reshape(1, 1, -1, 1)).numpy().ravel() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@settings(max_examples=60)
@given(axes("transposed"))
def test_taps_are_the_blocks_that_a_pixel_spreads_over(axis: Axis) -> None:
    size = 15
    reached = np.flatnonzero(seen_by(keras_layer("transposed", axis), size)[:, size // 2])
    blocks = reached // axis.stride - size // 2
    assert (blocks[0], blocks[-1]) == taps(axis)
