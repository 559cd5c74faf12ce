"""Networks that a user might bring: every kind of layer that can be computed tile by tile is in one of them."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers


class UpSampling2D(layers.UpSampling2D):
    """Keras' own layer, but bilinear interpolation in the input's own type: TensorFlow's is always float32."""

    def call(self, inputs: Any) -> Any:
        if self.interpolation != "bilinear":
            return super().call(inputs)
        for axis, factor in zip((1, 2), self.size, strict=True):
            size = tf.shape(inputs)[axis]
            centre = (tf.range(size * factor, dtype=inputs.dtype) + 0.5) / factor - 0.5
            after = centre - tf.floor(centre)
            shape = tf.concat([tf.ones(axis, tf.int32), [size * factor], tf.ones(3 - axis, tf.int32)], 0)
            after = tf.reshape(after, shape)
            first = tf.cast(tf.floor(centre), tf.int32)
            here, there = (tf.gather(inputs, tf.clip_by_value(first + i, 0, size - 1), axis=axis) for i in (0, 1))
            inputs = here * (1 - after) + there * after
        return inputs


def build(make: Callable[[Any], Any], dtype: str = "float64", seed: int = 0) -> keras.Model:
    """Return the model whose logits `make` makes of the image; its weights, biases too, are random."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        image = keras.Input((None, None, 3), batch_size=1, dtype=dtype, name="image")
        model = keras.Model(image, make(image), name=make.__name__)
    finally:
        keras.config.set_dtype_policy(before)
    return randomise(model, seed)


def randomise(model: keras.Model, seed: int) -> keras.Model:
    """Draw all weights anew, zero-mean but for variances, so that no padding and no bias is without effect."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        fan_in = np.prod(weight.shape[:-1]) if len(weight.shape) > 1 else 4
        value = random.normal(0, 1 / np.sqrt(fan_in), weight.shape)
        weight.assign(np.abs(value) + 0.2 if "variance" in weight.path else value)
    return model


def head(x: Any) -> Any:
    return layers.Conv2D(1, 1, name="head")(x)


def standard_unet(up: str) -> Callable[[Any], Any]:
    """Ronneberger et al. 2015 (arXiv 1505.04597) with `same` padding: two 3x3 convolutions a level, four poolings."""

    def double(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        return x

    def make(image: Any) -> Any:
        filters, skips, x = (2, 3, 3, 4, 4), [], image
        for level, count in enumerate(filters[:-1], 1):
            skips.append(double(x, count))
            x = layers.MaxPooling2D(2, name=f"pool{level}")(skips[-1])
        x = double(x, filters[-1])
        for level, skip in reversed(list(enumerate(skips, 1))):
            if up == "transposed":
                x = layers.Conv2DTranspose(filters[level - 1], 2, 2)(x)
            else:
                x = UpSampling2D(2, interpolation=up)(x)
            x = double(layers.Concatenate(name=f"join{level}")([skip, x]), filters[level - 1])
        return head(x)

    make.__name__ = f"unet_{up}"
    return make


def dilated(image: Any) -> Any:
    x = layers.Conv2D(3, 3, padding="same", dilation_rate=2, activation="tanh")(image)
    x = layers.Conv2D(2, (3, 2), padding="same", dilation_rate=(1, 5))(x)
    x = layers.Conv2D(2, (1, 16), padding="same", dilation_rate=(1, 2))(x)
    return head(layers.ELU()(x))


def depthwise(image: Any) -> Any:
    x = layers.DepthwiseConv2D(4, 2, padding="same", depth_multiplier=2, activation="softplus")(image)
    x = layers.DepthwiseConv2D(3, padding="same", dilation_rate=(2, 3))(x)
    x = layers.DepthwiseConv2D((2, 3), 3, padding="same", dilation_rate=2)(x)
    x = layers.Conv2DTranspose(3, 6, 6, padding="same")(x)
    return head(layers.Activation("softmax")(x))


def separable(image: Any) -> Any:
    x = layers.SeparableConv2D(4, (2, 5), 2, padding="same", depth_multiplier=2, activation="silu")(image)
    x = layers.SeparableConv2D(3, 3, padding="same", dilation_rate=2)(x)
    x = layers.UpSampling2D(2)(x)
    return layers.SeparableConv2D(1, 3, padding="same", use_bias=False)(x)


def average_pools(image: Any) -> Any:
    x = layers.Conv2D(3, 2, padding="same")(image)
    x = layers.AveragePooling2D((3, 2), 2, padding="same")(x)
    x = layers.Activation("tanh")(x)
    x = layers.AveragePooling2D((2, 5), 1, padding="same")(x)
    x = layers.AveragePooling2D((1, 3))(layers.Conv2D(3, 3, padding="same")(x))
    return head(layers.UpSampling2D((2, 6))(x))


def max_pools(image: Any) -> Any:
    x = layers.Conv2D(3, 2, padding="same")(image)
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    x = layers.Conv2D(3, 2, padding="same")(x)
    x = layers.MaxPooling2D((2, 4), (1, 3), padding="same")(x)
    x = layers.MaxPooling2D((1, 2), 1, padding="same")(x)
    return head(layers.Conv2DTranspose(2, (3, 6), (2, 6), padding="same")(x))


def up_samplings(image: Any) -> Any:
    x = layers.Conv2D(3, 3, (6, 4), padding="same")(image)
    x = UpSampling2D((3, 1), interpolation="bilinear")(x)
    x = layers.Conv2D(3, 2, padding="same", activation="relu")(x)
    x = UpSampling2D((1, 2))(x)
    x = layers.Conv2D(2, 2, padding="same", activation="relu")(x)
    return head(UpSampling2D(2, interpolation="bilinear")(x))


def merges(image: Any) -> Any:
    a, b = layers.Conv2D(2, 3, padding="same")(image), layers.Conv2D(2, 2, padding="same")(image)
    c, d = layers.Add()([a, b, a]), layers.Multiply()([a, b])
    e, f = layers.Maximum()([a, d]), layers.Average()([c, b, e := layers.Subtract()([c, d])])
    g = layers.Conv2D(2, (1, 3), padding="same")(layers.Minimum()([e, f]))
    gate = layers.Conv2D(1, (3, 1), padding="same", activation="sigmoid")(g)
    return head(layers.Concatenate()([layers.Multiply()([g, gate]), layers.Add()([g, g]), a * c - d, image]))


def pads_and_crops(image: Any) -> Any:
    x = layers.ZeroPadding2D(((1, 2), (3, 0)))(image)
    x = layers.Conv2D(3, 4, activation="relu")(x)
    x = layers.ZeroPadding2D(((0, 9), (8, 1)))(x)
    x = layers.Conv2D(2, 2, padding="same")(x)
    x = layers.Cropping2D(((4, 5), (3, 6)))(x)
    return head(x)


def pointwise(image: Any) -> Any:
    x = layers.Rescaling(2.0, 0.1)(image)
    x = layers.Conv2D(4, 2, 2, padding="same")(x)
    x = layers.BatchNormalization(trainable=False)(x)
    x = layers.PReLU(shared_axes=[1, 2])(x)
    x = layers.Dense(5, activation="gelu")(x)
    x = layers.LayerNormalization()(x)
    x = layers.RMSNormalization()(layers.Dropout(0.0)(x))
    x = layers.Conv2DTranspose(4, 3, 2, padding="same")(x)
    x = layers.UnitNormalization()(layers.Activation("softmax")(x))
    x = layers.Conv2D(3, 1, activation="log_softmax")(x)
    x = layers.Softmax()(layers.ReLU(negative_slope=0.2)(x))
    return layers.Dense(1)(x)


def used_twice(image: Any) -> Any:
    stem = layers.Conv2D(2, 3, padding="same", activation="relu")(image)
    conv = layers.Conv2D(2, 3, padding="same", activation="tanh")
    pool, up = layers.MaxPooling2D(2), layers.Conv2DTranspose(2, 3, 2, padding="same")
    x = conv(conv(stem))
    x = up(conv(pool(x)))
    return head(layers.Concatenate()([x, conv(x), up(pool(stem))]))


def nested(image: Any) -> Any:
    inner_image = keras.Input((None, None, 3), dtype=image.dtype)
    x = layers.Conv2D(3, 3, padding="same", activation="tanh")(inner_image)
    inner = keras.Model(inner_image, layers.Conv2D(3, 2, padding="same")(x), name="inner")
    sequence = keras.Sequential(
        [layers.MaxPooling2D(2), layers.Conv2D(3, 2, padding="same"), layers.UpSampling2D(2)], name="sequence"
    )
    return head(layers.Add()([inner(inner(image)), sequence(inner(image))]))


def anisotropic(image: Any) -> Any:
    x = layers.Conv2D(3, (3, 5), (2, 3), padding="same", activation="relu")(image)
    x = layers.Conv2D(2, (2, 1), (1, 2), padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(3, (5, 4), (1, 2), padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(2, (5, 4), (2, 3), padding="same", activation="elu")(x)
    return head(layers.LeakyReLU()(x))


def valid_transposed(image: Any) -> Any:
    x = layers.ZeroPadding2D(((0, 3), (2, 1)))(image)
    x = layers.Conv2D(3, 3, 2)(x)
    x = layers.Conv2DTranspose(2, (5, 4), 2)(x)
    x = layers.ReLU()(x)
    return head(layers.Cropping2D(((2, 3), (1, 3)))(x))


def smaller_inside(image: Any) -> Any:
    """Maps that are smaller than the image by a margin: needs an image of 5 x 6 pixels."""
    x = layers.Conv2D(3, (5, 2), activation="relu")(image)
    x = layers.Conv2D(2, (1, 5), activation="relu")(x)
    x = layers.ZeroPadding2D(((3, 1), (0, 5)))(x)
    return head(x)


def gaps(image: Any) -> Any:
    """Strides above the kernels: pixels between the kernels are never seen, or get only the bias."""
    x = layers.Conv2D(3, (2, 1), (3, 2), padding="same")(image)
    x = layers.MaxPooling2D(1, 2)(x)
    x = layers.Conv2DTranspose(2, (1, 3), (2, 2), padding="same")(x)
    return layers.Conv2DTranspose(1, (2, 1), (3, 2), padding="same")(x)


def many_head_channels(image: Any) -> Any:
    """A head so wide that a block's product over all its zeros would be slower."""
    x = layers.Conv2D(3, 4, 4, padding="same")(image)
    x = layers.Conv2DTranspose(5, 5, 4, padding="same", activation="tanh")(x)
    return head(layers.Conv2D(6, 1, activation="relu")(x))


USER_MADE = (
    dilated,
    depthwise,
    separable,
    average_pools,
    max_pools,
    up_samplings,
    merges,
    pads_and_crops,
    pointwise,
    used_twice,
    nested,
    anisotropic,
    valid_transposed,
    gaps,
    many_head_channels,
)
