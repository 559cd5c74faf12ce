from pathlib import Path

from gigaslide import config
from gigaslide.benchmarks.operations import step_operations
from gigaslide.network.describe import describe

PARAMS = Path(__file__).parents[2] / "params.yaml"


def test_the_default_network_by_hand() -> None:
    # Multiplications per pixel of the image, layer by layer: kernel, channels in and out, pixels of the map.
    down1, down2, core = 121 * 3 * 3 / 16, 121 * 3 * 2 / 256, 121 * 2 * 2 / 256
    up2, up1, head = 121 * 2 * 3 / 256, 121 * 6 * 2 / 16, 2
    # The image has no gradient.
    expected = 2 * (2 * down1 + 3 * (down2 + core + up2 + up1 + head))
    graph = describe(config.load(PARAMS).network)
    assert step_operations(graph, (16000, 64000)) == expected * 16000 * 64000


def test_an_area_is_padded_to_the_stride() -> None:
    graph = describe(config.load(PARAMS).network)
    assert step_operations(graph, (1001, 1)) == step_operations(graph, (1008, 16))
