from typing import Any

import keras
import numpy as np
import pytest

from gigaslide.network.keras_graph import from_model
from gigaslide.streaming.buffers import BufferPool
from gigaslide.streaming.plan import segments
from gigaslide.streaming.segment import SegmentFunctions
from gigaslide.streaming.tiles import extents, tiles
from tests import networks

layers = keras.layers


def unchanged(image: Any) -> Any:
    """Operations that hand on what they get, between two that do not."""
    x = layers.Conv2D(2, 3, padding="same", name="stem")(image)
    x = layers.Identity(name="identity")(x)
    x = layers.Dropout(0.0, name="dropout")(x)
    x = layers.Cropping2D(0, name="crop")(x)
    return networks.head(x)


@pytest.mark.parametrize("kept", ["identity", "dropout", "crop"])
def test_what_a_tile_gave_stays_when_its_buffers_are_used_again(kept: str) -> None:
    model = networks.build(unchanged)
    graph, found = from_model(model)
    names = [op.name for op in graph.ops]
    segment = segments(graph, (names[names.index(kept) - 1], kept))[1]
    functions = SegmentFunctions(graph, segment, found, model)
    tile = tiles(graph, segment, extents(graph, (8, 8)), (4, 4))[0]
    inputs, gradient = (BufferPool().take((1, 4, 4, 2), np.dtype("float64")) for _ in range(2))
    inputs[:], gradient[:] = 1, 2
    output = functions.forward(tile, [inputs])
    _, (pulled_back,) = functions.backward(tile, [inputs], gradient)
    inputs[:], gradient[:] = 0, 0
    assert (output == 1).all()
    assert (pulled_back == 2).all()
