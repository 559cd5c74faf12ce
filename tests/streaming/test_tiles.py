from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide import config
from gigaslide.errors import UsageError
from gigaslide.geometry import Interval
from gigaslide.network.describe import describe
from gigaslide.network.graph import IMAGE, Axis, Graph, Op
from gigaslide.network.receptive import needed
from gigaslide.streaming.plan import segments
from gigaslide.streaming.tiles import extents, tiles

NETWORK = config.load(Path(__file__).parents[2] / "params.yaml").network
GRAPH = describe(NETWORK)  # kernel 11, stride 4 twice
SHAPE = 96, 160
CUTS = ("down1_activation", "core", "up2")
IMAGE_OP = Op(IMAGE, "image", (), 3)


def conv(name: str, source: str, axis: Axis, channels: int = 1) -> Op:
    return Op(name, "conv", (source,), channels, axis, axis, f"layer of {name}")


def test_extents_of_the_default_network() -> None:
    sizes = extents(GRAPH, SHAPE)
    assert sizes["down1"] == (24, 40)
    assert sizes["core"] == (6, 10)
    assert sizes["skip1"] == (24, 40)
    assert sizes["head"] == SHAPE


def test_an_image_that_is_too_small_is_refused_by_the_layers_name() -> None:
    graph = Graph((IMAGE_OP, conv("a", IMAGE, Axis(5))))
    with pytest.raises(UsageError, match=r"4 x 9 px is too small for layer 'layer of a'"):
        extents(graph, (4, 9))


def test_joined_maps_of_two_sizes_are_refused_by_the_layers_name() -> None:
    join = Op("join", "concat", ("a", IMAGE), 4, layer="the join")
    graph = Graph((IMAGE_OP, conv("a", IMAGE, Axis(3)), join))
    with pytest.raises(UsageError, match=r"'the join' joins maps of one size.*8 x 9 px it gets 6 x 7 and 8 x 9"):
        extents(graph, (8, 9))


def test_logits_of_another_size_than_the_image_are_refused() -> None:
    graph = Graph((IMAGE_OP, conv("a", IMAGE, Axis(3))))
    with pytest.raises(UsageError, match=r"8 x 9 px layer 'layer of a' gives 6 x 7"):
        extents(graph, (8, 9))


@given(st.integers(1, 100), st.integers(1, 100))
def test_every_pixel_of_a_map_is_owned_by_exactly_one_tile(height: int, width: int) -> None:
    sizes = extents(GRAPH, SHAPE)
    for segment in segments(GRAPH, CUTS):
        owners = np.zeros(sizes[segment.output], int)
        for tile in tiles(GRAPH, segment, sizes, (height, width)):
            assert min(tile.owned.shape) > 0
            owners[tile.owned.slices] += 1
        assert (owners == 1).all()


@given(st.integers(1, 100), st.integers(1, 100))
def test_what_a_tile_reads_lies_inside_the_map_and_is_all_that_its_pixels_need(height: int, width: int) -> None:
    sizes = extents(GRAPH, SHAPE)
    for segment in segments(GRAPH, CUTS):
        for tile in tiles(GRAPH, segment, sizes, (height, width)):
            for name, window in zip(segment.inputs, tile.reads, strict=True):
                assert window == window.clip(type(window).of(0, 0, *sizes[name]))
                assert min(window.shape) > 0


def test_reads_by_hand() -> None:
    """kernel 11, stride 4: 7 pixels are padded, 3 before. Row 2..3 of the map sees image rows 5..19."""
    sizes = extents(GRAPH, SHAPE)
    (first, *_) = segments(GRAPH, ("down1",))
    second = tiles(GRAPH, first, sizes, (2, 40))[1]
    assert second.owned.y == Interval(2, 4)
    assert second.reads[0].y == Interval(5, 20)
    assert second.reads[0].x == Interval(0, 160)
    # Edge 0 is the convolution's input: nothing is cropped; along x 3 columns are missing before and 4 after.
    assert second.table[0].tolist() == [[0, 15, 0, 0], [0, 160, 3, 4]]
    assert second.table[1].tolist() == [[0, 2, 0, 0], [0, 40, 0, 0]]
    assert second.touches_edge
    inner = tiles(GRAPH, first, sizes, (2, 2))[21]
    assert not inner.touches_edge


def test_a_tile_reads_what_its_receptive_field_says_operation_by_operation() -> None:
    sizes = extents(GRAPH, SHAPE)
    (segment,) = segments(GRAPH, ())
    # In the middle of a long image: nothing is clipped.
    sizes = extents(GRAPH, (96, 16000))
    tile = next(t for t in tiles(GRAPH, segment, sizes, (96, 64)) if t.owned.x.start == 6400)
    wanted = tile.owned.x
    for name in ("up1", "up2", "core", "down2", "down1"):
        op = GRAPH.by_name[name]
        wanted = needed(op, op.x, wanted, sizes[op.inputs[0]][1])
    assert tile.reads[0].x == wanted


def test_two_readers_of_a_map_get_their_own_parts_of_it() -> None:
    wide, narrow = conv("wide", "stem", Axis(7, same=True)), conv("narrow", "stem", Axis(3, same=True))
    graph = Graph(
        (IMAGE_OP, conv("stem", IMAGE, Axis()), wide, narrow, Op("end", "merge", ("wide", "narrow"), 1, layer="end"))
    )
    (segment,) = segments(graph, ())
    middle = tiles(graph, segment, extents(graph, (30, 30)), (10, 10))[4]
    assert middle.reads[0].y == Interval(7, 23)
    # Rows of the table: stem, wide, narrow, end (two inputs), owned. Along y.
    assert middle.table[:, 0].tolist() == [
        [0, 16, 0, 0],
        [0, 16, 0, 0],
        [2, 12, 0, 0],
        [0, 10, 0, 0],
        [0, 10, 0, 0],
        [0, 10, 0, 0],
    ]


def test_a_window_that_is_all_padding_reads_a_pixel_and_uses_none() -> None:
    far = Op("far", "pad", ("image",), 3, Axis(before=20), Axis(), "far")
    back = Op("back", "crop", ("far",), 3, Axis(after=20), Axis(), "back")
    graph = Graph((IMAGE_OP, far, back))
    (segment,) = segments(graph, ())
    first = tiles(graph, segment, extents(graph, (24, 4)), (8, 4))[0]
    assert first.reads[0].y == Interval(0, 1)
    assert first.table[0, 0].tolist() == [0, 0, 8, 0]
