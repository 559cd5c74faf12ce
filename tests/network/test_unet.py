from pathlib import Path

import numpy as np
import pytest

from gigaslide import config
from gigaslide.network import unet

NETWORK = config.load(Path(__file__).parents[2] / "params.yaml").network


def test_the_default_network_has_the_papers_4492_parameters() -> None:
    assert unet.build(NETWORK, seed=0).count_params() == 4492


def test_parameters_by_hand() -> None:
    # k=3, s=2, filters 4 and 5, head 6: weights + biases, layer by layer.
    network = NETWORK.model_copy(update={"kernel_size": 3, "stride": 2, "filters": [4, 5], "head_filters": 6})
    layers = [(3, 4), (4, 5), (5, 5), (5, 4), (4 + 4, 6)]
    expected = sum(9 * a * b + b for a, b in layers) + (6 + 1)
    assert unet.build(network, seed=0).count_params() == expected


@pytest.mark.parametrize(("kernel_size", "stride", "depth"), [(11, 4, 2), (4, 4, 1), (5, 3, 3), (2, 2, 2)])
def test_logits_have_the_size_of_the_image(kernel_size: int, stride: int, depth: int) -> None:
    network = NETWORK.model_copy(update={"kernel_size": kernel_size, "stride": stride, "depth": depth})
    shape = (2 * network.total_stride, 3 * network.total_stride)
    assert unet.build(network, 0)(np.zeros((1, *shape, 3), np.float32)).shape == (1, *shape, 1)


def test_same_seed_same_weights_and_no_two_layers_start_equal() -> None:
    network = NETWORK.model_copy(update={"filters": [2], "depth": 3})
    first, again, other = (unet.build(network, seed).get_weights() for seed in (7, 7, 8))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    kernels = [w for w in first if w.ndim == 4]
    assert not any(np.array_equal(a, b) for a, b in zip(kernels, [w for w in other if w.ndim == 4], strict=True))
    same_shape = [w for w in kernels if w.shape == (11, 11, 2, 2)]
    assert len(same_shape) >= 3
    assert all(not np.array_equal(a, b) for i, a in enumerate(same_shape) for b in same_shape[:i])


@pytest.mark.parametrize("activation", ["leaky_relu", "relu", "elu"])
def test_activation_is_the_one_asked_for(activation: str) -> None:
    model = unet.build(NETWORK.model_copy(update={"activation": activation, "negative_slope": 0.25}), 0)
    layer = model.get_layer("core_activation")
    value = float(layer(np.array([[[[-1.0, -1.0]]]], np.float32))[0, 0, 0, 0])
    assert value == pytest.approx({"leaky_relu": -0.25, "relu": 0, "elu": np.expm1(-1)}[activation])
