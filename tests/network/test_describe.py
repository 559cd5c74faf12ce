from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide import config
from gigaslide.network import unet
from gigaslide.network.describe import describe
from gigaslide.network.keras_graph import from_model

NETWORK = config.load(Path(__file__).parents[2] / "params.yaml").network


@settings(max_examples=25)
@given(
    st.integers(1, 12),
    st.integers(2, 5),
    st.integers(1, 4),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from(["leaky_relu", "relu", "elu"]),
)
def test_the_description_is_that_of_the_network_that_is_built(
    kernel_size: int, stride: int, depth: int, filters: list[int], head_filters: int, activation: str
) -> None:
    network = NETWORK.model_copy(
        update={
            "kernel_size": kernel_size,
            "stride": stride,
            "depth": depth,
            "filters": filters,
            "head_filters": head_filters,
            "activation": activation,
        }
    )
    model = unet.build(network, 0)
    graph = describe(network)
    assert graph == from_model(model)[0]
    assert graph.parameters == model.count_params()
    assert graph.total_stride == (network.total_stride, network.total_stride)


def test_the_default_network() -> None:
    graph = describe(NETWORK)
    assert graph.parameters == 4492
    assert graph.output.name == "head"
    assert graph.consumers["down1_activation"] == ("down2", "skip1")
    assert graph.consumers["head"] == ()
    assert graph.scales["down2"] == ((16, 1), (16, 1))
    assert graph.scales["up2"] == ((4, 1), (4, 1))
