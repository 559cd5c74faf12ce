import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from gigaslide.errors import UsageError
from gigaslide.network.keras_graph import from_model
from tests import networks

layers = keras.layers
Make = Callable[[Any], Any]


def conv(x: Any, **options: Any) -> Any:
    return layers.Conv2D(options.pop("filters", 2), 3, padding="same", **options)(x)


def model_of(layer: Any) -> keras.Model:
    """Return a network with `layer` in its middle."""
    image = keras.Input((8, 8, 3))  # some of the layers can be built for one size alone
    return keras.Model(image, networks.head(layer(conv(image))), name="network")


def whole_mean(x: Any) -> Any:
    return x - tf.reduce_mean(x, axis=(1, 2), keepdims=True)


REFUSED = {
    "mean and variance are taken over the whole image while it trains; freeze it": lambda: layers.BatchNormalization(),
    "its axis 1 is not the channels": lambda: layers.BatchNormalization(axis=1, trainable=False),
    "mean and variance are taken over the whole image": lambda: layers.GroupNormalization(2),
    "over the channels alone (axis=-1) it can be tiled": lambda: layers.LayerNormalization(axis=(1, 2, 3)),
    "it changes its weights at every call": lambda: layers.SpectralNormalization(layers.Conv2D(2, 1)),
    "what it computes is not known": lambda: layers.Lambda(lambda x: x, output_shape=lambda shape: shape),
    "it draws random numbers": lambda: layers.Dropout(0.1),
    "it draws random numbers, and": lambda: layers.SpatialDropout2D(0.1),
    "draws random numbers": lambda: layers.GaussianNoise(0.1),
    "it has groups=2": lambda: layers.Conv2D(2, 3, groups=2),
    "its data_format is channels_first": lambda: layers.Conv2D(2, 3, data_format="channels_first", padding="same"),
    "it has a dilation_rate or an output_padding": lambda: layers.Conv2DTranspose(2, 3, dilation_rate=2),
    "or an output_padding": lambda: layers.Conv2DTranspose(2, 3, strides=2, output_padding=1),
    "its interpolations nearest and bilinear are known, not bicubic": lambda: layers.UpSampling2D(
        2, interpolation="bicubic"
    ),
    "it has a weight per position: give it shared_axes=[1, 2]": lambda: layers.PReLU(shared_axes=[1]),
    "its axis 2 is not the channels": lambda: layers.Softmax(axis=2),
    "TensorFlow has none whose strides 1 and 2 differ": lambda: layers.DepthwiseConv2D(3, (1, 2)),
    "whose strides 2 and 3 differ": lambda: layers.SeparableConv2D(2, 3, (2, 3)),
    "its activation PReLU is not one of keras.activations": lambda: layers.Dense(2, activation=layers.PReLU()),
    "its activation whole_mean is not one of keras.activations": lambda: layers.Conv2D(2, 1, activation=whole_mean),
    "is not one of keras.activations": lambda: layers.Activation(lambda x: x),
    "its activation Softmax is not": lambda: layers.Activation(layers.Softmax()),
    "does not know how far its output pixels look": lambda: layers.RandomFlip(),
    "it computes in float16, and the network's input is float32": lambda: layers.Conv2D(2, 3, dtype="mixed_float16"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_tiled_is_refused_by_name_and_reason(reason: str) -> None:
    layer = REFUSED[reason]()
    with pytest.raises(UsageError, match=re.escape(reason)) as error:
        from_model(model_of(layer))
    assert f"layer {layer.name!r} ({type(layer).__name__}) cannot be computed tile by tile" in str(error.value)
    assert "memory.plan: whole" in str(error.value)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (layers.GlobalAveragePooling2D(), "it sees the whole image at once"),
        (layers.GlobalMaxPooling2D(keepdims=True), "it sees the whole image at once"),
        (layers.Flatten(), "it has one output for the whole image"),
    ],
)
def test_a_layer_with_one_output_for_the_image_is_refused(layer: Any, reason: str) -> None:
    image = keras.Input((None, None, 3))
    with pytest.raises(UsageError, match=re.escape(f"layer {layer.name!r}") + f".*{reason}"):
        from_model(keras.Model(image, layer(conv(image))))


class Subclassed(keras.Model):
    def call(self, x: Any) -> Any:
        return x


def test_a_model_whose_layers_cannot_be_seen_is_refused() -> None:
    with pytest.raises(UsageError, match=r"functional or sequential.*Subclassed"):
        from_model(Subclassed())
    with pytest.raises(UsageError, match=r"\(Subclassed\).*it is no functional model"):
        from_model(model_of(Subclassed()))


def test_more_than_one_input_or_output_is_refused() -> None:
    one, two = keras.Input((None, None, 3)), keras.Input((None, None, 3))
    with pytest.raises(UsageError, match="2 inputs and 1 outputs"):
        from_model(keras.Model([one, two], networks.head(layers.Add()([one, two]))))
    with pytest.raises(UsageError, match="1 inputs and 2 outputs"):
        from_model(keras.Model(one, [networks.head(one), conv(one, filters=1)]))


@pytest.mark.parametrize(
    ("shape", "dtype"), [((None, None, 4), "float32"), ((None, None, 3), "uint8"), ((None, 3), "float32")]
)
def test_another_input_than_an_image_is_refused(shape: tuple[int | None, ...], dtype: str) -> None:
    image = keras.Input(shape, dtype=dtype)
    with pytest.raises(UsageError, match=rf"three planes.*received .* in {dtype}"):
        from_model(keras.Model(image, layers.Dense(1)(image)))


def test_another_output_than_a_map_of_the_images_size_is_refused() -> None:
    image = keras.Input((None, None, 3))
    with pytest.raises(UsageError, match=r"layer 'two' gives 2 channel\(s\), a pixel of it is 1 x 1 pixels"):
        from_model(keras.Model(image, conv(image, name="two")))
    half = layers.Conv2D(1, 3, (2, 1), padding="same", name="half")
    with pytest.raises(UsageError, match=r"layer 'half' gives 1 channel\(s\), a pixel of it is 2 x 1 pixels"):
        from_model(keras.Model(image, half(image)))


@pytest.mark.parametrize(
    "last",
    [
        lambda: layers.Conv2D(1, 1, activation="sigmoid", name="last"),
        lambda: layers.Dense(1, activation="hard_sigmoid", name="last"),
        lambda: keras.Sequential([layers.Conv2D(1, 1), layers.Activation("sigmoid", name="last")]),
    ],
)
def test_a_probability_as_output_is_refused(last: Callable[[], Any]) -> None:
    image = keras.Input((None, None, 3))
    with pytest.raises(UsageError, match=r"is logits.*remove the (hard_)?sigmoid of layer 'last'"):
        from_model(keras.Model(image, last()(image)))


# Image pixels per pixel of the coarsest map, by hand.
STRIDES = {
    "dilated": (1, 1),
    "depthwise": (6, 6),
    "separable": (2, 2),
    "average_pools": (2, 6),
    "max_pools": (2, 6),
    "up_samplings": (6, 4),
    "merges": (1, 1),
    "pads_and_crops": (1, 1),
    "pointwise": (2, 2),
    "used_twice": (2, 2),
    "nested": (2, 2),
    "anisotropic": (2, 6),
    "valid_transposed": (2, 2),
    "gaps": (6, 4),
    "many_head_channels": (4, 4),
}


@pytest.mark.parametrize("make", networks.USER_MADE, ids=lambda make: make.__name__)
def test_a_graph_has_all_weights_and_the_models_sizes(make: Make) -> None:
    model = networks.build(make)
    graph, found = from_model(model)
    assert graph.parameters == sum(np.prod(w.shape) for w in model.trainable_weights)
    assert graph.total_stride == STRIDES[make.__name__]
    assert set(found) == {op.name for op in graph.ops[1:]}
    assert [op.name for op in graph.ops if op.kind == "image"] == ["image"]
    before: set[str] = set()
    for op in graph.ops:
        assert before.issuperset(op.inputs)
        before.add(op.name)


def test_a_layer_used_twice_is_two_operations_and_counts_once() -> None:
    shared = layers.Conv2D(3, 3, padding="same", name="shared")
    image = keras.Input((None, None, 3))
    graph, found = from_model(keras.Model(image, networks.head(shared(shared(image)))))
    assert [(op.name, op.inputs, op.parameters) for op in graph.ops[1:3]] == [
        ("shared", ("image",), 84),
        ("shared#2", ("shared",), 0),
    ]
    assert found["shared"] is found["shared#2"]


@pytest.mark.parametrize(
    ("layer", "elementwise"),
    [
        (layers.ReLU(), True),
        (layers.LeakyReLU(), True),
        (layers.Activation("elu"), True),
        (layers.Activation("softmax"), False),
        (layers.Activation("sparsemax"), False),
        (layers.Activation(layers.LeakyReLU()), True),
        (layers.Activation(tf.nn.softmax), False),
        (layers.PReLU(shared_axes=[1, 2]), False),
        (layers.Dense(2), False),
    ],
    ids=str,
)
def test_elementwise_is_what_looks_at_one_value(layer: Any, elementwise: bool) -> None:
    op = from_model(model_of(layer))[0].by_name[layer.name]
    assert op.kind == "pointwise"
    assert op.elementwise == elementwise


def test_weights_that_are_frozen_are_not_counted() -> None:
    model = model_of(layers.Conv2D(2, 1))
    model.trainable = False
    assert from_model(model)[0].parameters == 0


def test_a_network_may_be_as_deep_as_keras_can_build_it() -> None:
    image = x = keras.Input((None, None, 3))
    for _ in range(800):  # Keras itself goes back by recursion, and ends near 950
        x = layers.Identity()(x)
    assert len(from_model(keras.Model(image, networks.head(x)))[0].ops) == 802
