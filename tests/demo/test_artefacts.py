import itertools

import numpy as np
import pytest

from gigaslide.demo import artefacts, shapes

SHAPE = (2560, 3072)


def layout(names, seed=0, shape=SHAPE):
    random = np.random.default_rng(seed)
    return artefacts.lay_out(random, names, shape, 0.5, shapes.lay_pieces(random, *shape, 0.5))


def test_labels_fit_a_byte_and_none_is_zero():
    assert artefacts.LABEL["plain"] == 0
    assert sorted(artefacts.LABEL.values()) == list(range(len(artefacts.NAMES)))
    assert {*artefacts.PENS, *artefacts.WHOLE_SLIDE} < set(artefacts.NAMES)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_asked_for_is_there_and_nothing_else(seed):
    made = layout(("pen_blue", "fold", "blur", "bubble", "coverslip"), seed)
    assert {name for name, _ in made.strokes} == {"pen_blue"}
    assert {name for name, _ in made.circles} <= {"pen_blue"}
    assert made.folds
    assert made.blurs
    assert made.bubbles
    assert made.edge is not None
    bare = layout(("plain",), seed)
    assert not (bare.strokes or bare.circles or bare.folds or bare.blurs or bare.bubbles or bare.edge)


def test_bubbles_do_not_touch():
    for seed in range(20):
        for one, other in itertools.combinations(layout(("bubble",), seed).bubbles, 2):
            assert np.hypot(one.y - other.y, one.x - other.x) > one.radius_px + other.radius_px


def test_the_coverslip_ends_inside_the_slide_near_one_side():
    for seed in range(20):
        edge = layout(("coverslip",), seed).edge
        corners = np.array([(y, x) for y in (0, SHAPE[0]) for x in (0, SHAPE[1])])
        beyond = corners @ (edge.down, edge.right) - edge.offset_px
        assert (beyond > 0).sum() == 2
        assert edge.down * SHAPE[0] / 2 + edge.right * SHAPE[1] / 2 < edge.offset_px


def test_a_larger_slide_has_more_of_it_out_of_focus():
    assert len(layout(("blur",), 1, (16000, 64000)).blurs) > 3 * len(layout(("blur",), 1).blurs)
