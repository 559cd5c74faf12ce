"""A U-Net of large kernels and high strides, a few thousand parameters in all.

    image ─ conv/s ─ map 1 ───────────────┐ skip
                     └ conv/s ─ map 2     │
                                └ conv ─ up·s ─ concat ─ up·s ─ conv 1x1 ─ logits

With the default settings (kernel 11, stride 4, two levels) it has exactly 4492 parameters, the number of the paper's
network (arXiv 2304.12149). The paper's list of layers is not public, so this is *a* network of that size and kind.

Every convolution is `same`: a map at stride s of an image whose height and width are multiples of the total stride has
exactly 1/s of its size, and there is no layer that mixes pixels farther apart than the kernels reach.
"""

from typing import TYPE_CHECKING

import keras
import numpy as np

if TYPE_CHECKING:
    from gigaslide.config import Network


def build(network: "Network", seed: int, dtype: str = "float32") -> keras.Model:
    """Build the network with freshly drawn weights.

    Weights are drawn by He et al. (2015, arXiv 1502.01852), biases are zero. The same seed gives the same weights.

    Input shape:
        (1, height, width, 3), `dtype`, of `pixels.network_input`: glass is 0, and so is the padding at the
        border. Height and width are multiples of `network.total_stride`.

    Output shape:
        (1, height, width, 1), `dtype`, logits: above 0 is tissue.
    """
    seeds = np.random.default_rng(seed)

    def he() -> keras.initializers.Initializer:
        # Every layer draws from its own seed: two layers of one shape must not start equal.
        return keras.initializers.HeNormal(seed=int(seeds.integers(2**31)))

    def activation(name: str) -> keras.layers.Layer:
        if network.activation == "leaky_relu":
            return keras.layers.LeakyReLU(negative_slope=network.negative_slope, dtype=dtype, name=name)
        return keras.layers.Activation(network.activation, dtype=dtype, name=name)

    def conv(filters: int, stride: int, name: str) -> keras.layers.Layer:
        return keras.layers.Conv2D(
            filters,
            network.kernel_size,
            stride,
            padding="same",
            kernel_initializer=he(),
            dtype=dtype,
            name=name,
        )

    def up(filters: int, name: str) -> keras.layers.Layer:
        return keras.layers.Conv2DTranspose(
            filters,
            network.kernel_size,
            network.stride,
            padding="same",
            kernel_initializer=he(),
            dtype=dtype,
            name=name,
        )

    filters = network.level_filters
    image = keras.Input((None, None, 3), batch_size=1, dtype=dtype, name="image")
    maps, x = [], image
    for level in range(network.depth):
        x = activation(f"down{level + 1}_activation")(conv(filters[level], network.stride, f"down{level + 1}")(x))
        maps.append(x)
    x = activation("core_activation")(conv(filters[-1], 1, "core")(x))
    for level in reversed(range(1, network.depth)):
        x = activation(f"up{level + 1}_activation")(up(filters[level - 1], f"up{level + 1}")(x))
        x = keras.layers.Concatenate(dtype=dtype, name=f"skip{level}")([x, maps[level - 1]])
    x = activation("up1_activation")(up(network.head_filters, "up1")(x))
    logits = keras.layers.Conv2D(1, 1, padding="same", kernel_initializer=he(), dtype=dtype, name="head")(x)
    return keras.Model(image, logits, name="unet")
