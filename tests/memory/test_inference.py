import itertools
from pathlib import Path

import pytest

from gigaslide import config
from gigaslide.memory import inference
from gigaslide.memory.planner import DoesNotFit
from gigaslide.network.describe import describe
from gigaslide.streaming.plan import Plan

NETWORK = config.load(Path(__file__).parents[2] / "params.yaml").network
GRAPH = describe(NETWORK)


def test_memory_does_not_grow_with_the_height_and_little_with_the_width():
    square, wide, tall = ((20_000, 20_000), (20_000, 100_000), (100_000, 20_000))
    a, b, c = (inference.choose(GRAPH, shape, 2, 8e9).peak_bytes for shape in (square, wide, tall))
    # Tiles are balanced: a few pixels more or fewer.
    assert abs(a - c) < 0.05 * a
    # Only rows are as wide as the slide.
    assert b - a <= 80_000 * 2048 * inference._ROW_BYTES_PER_PX + 0.05 * a


@pytest.mark.parametrize("shape", [(16_000, 64_000), (100_000, 100_000)])
def test_a_whole_slide_fits_two_gibibytes(shape):
    chosen = inference.choose(GRAPH, shape, 2, 2 * 2**30)
    assert chosen.peak_bytes <= 2 * 2**30
    assert chosen.plan.cuts == ()


def test_less_memory_means_smaller_tiles_and_in_the_end_a_refusal():
    shape = (100_000, 100_000)
    budgets = [8e9, 1.4e9, 1.0e9]
    chosen = [inference.choose(GRAPH, shape, 2, budget) for budget in budgets]
    assert all(found.peak_bytes <= budget for found, budget in zip(chosen, budgets, strict=True))
    areas = [max(y * x for y, x in found.plan.tiles.values()) for found in chosen]
    assert all(later <= earlier for earlier, later in itertools.pairwise(areas))
    assert areas[-1] < areas[0]
    with pytest.raises(DoesNotFit, match=r"does not fit 0\.50 GB: it needs 0\.\d\d GB; give a larger --budget-gb"):
        inference.choose(GRAPH, shape, 2, 0.5e9)


def test_what_is_alive_at_once_by_hand():
    # 64 x 64 px in one tile. down1 3 x 16^2 and down1_activation are needed until skip1; the most is alive at the end:
    # up1 and up1_activation, 2 channels of all pixels each, in float32.
    plan = Plan("one", (), {GRAPH.output.name: (64, 64)})
    bytes_of = inference.peak_bytes(GRAPH, (64, 64), plan, runtime_bytes=0)
    alive = 2 * (2 * 64 * 64 * 4)
    ops = len(GRAPH.ops) - 1
    others = 64 * 64 * (4 + 3 * 4 + 4 + inference._ROW_BYTES_PER_PX)  # read, waiting, rows
    assert bytes_of == round(1.3 * alive + 4_500_000 * ops) + others
