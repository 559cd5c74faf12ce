from pathlib import Path

import pytest

from gigaslide import config
from gigaslide.network.describe import describe
from gigaslide.streaming.plan import Segment, segments

NETWORK = config.load(Path(__file__).parents[2] / "params.yaml").network
GRAPH = describe(NETWORK)
OPS = tuple(op.name for op in GRAPH.ops[1:])


def test_without_a_cut_the_network_is_one_segment() -> None:
    assert segments(GRAPH, ()) == (Segment("head", ("image",), OPS),)


def test_a_segment_goes_from_kept_maps_to_one_that_is_kept() -> None:
    first, second, last = segments(GRAPH, ("core_activation", "down1_activation"))
    assert first == Segment("down1_activation", ("image",), ("down1", "down1_activation"))
    assert second == Segment(
        "core_activation", ("down1_activation",), ("down2", "down2_activation", "core", "core_activation")
    )
    assert last.inputs == ("down1_activation", "core_activation")
    assert last.ops == ("up2", "up2_activation", "skip1", "up1", "up1_activation", "head")


def test_what_two_segments_need_is_computed_in_both() -> None:
    inner, last = segments(GRAPH, ("core",))
    assert {"down1", "down1_activation"} <= set(inner.ops) & set(last.ops)
    assert last.inputs == ("image", "core")


def test_every_operation_kept_is_a_segment_each() -> None:
    parts = segments(GRAPH, OPS[:-1])
    assert [part.ops for part in parts] == [(name,) for name in OPS]
    assert all(part.inputs == GRAPH.by_name[part.output].inputs for part in parts if part.output != "skip1")


@pytest.mark.parametrize("cut", ["image", "head", "nothing"])
def test_only_what_lies_between_image_and_logits_is_kept(cut: str) -> None:
    with pytest.raises(ValueError, match=f"between image and logits; received '{cut}'"):
        segments(GRAPH, ("core", cut))
