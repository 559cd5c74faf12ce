import numpy as np
import pytest

from gigaslide.demo.artefacts import LABEL, PENS
from gigaslide.demo.noise import lattice
from gigaslide.demo.overlays import overlays, stripes
from gigaslide.geometry import Window
from tests.demo.test_artefacts import SHAPE, layout

ALL = (*PENS, "bubble", "coverslip", "stitching")
WHOLE = Window.of(0, 0, *SHAPE)


def draw(made, window):
    y, x = lattice(window.y.start, window.y.stop), lattice(window.x.start, window.x.stop)
    labels = np.zeros((len(y), len(x)), dtype=np.uint8)
    return overlays(made, y, x, labels), labels


@pytest.mark.parametrize("seed", range(3))
def test_a_window_is_the_crop_of_the_slide(seed):
    made = layout(ALL, seed)
    density, labels = draw(made, WHOLE)
    for top, left in np.random.default_rng(seed).integers(0, 140, (12, 2)):
        part, part_labels = draw(made, Window.of(16 * top, 16 * left, 256, 512))
        crop = slice(4 * top, 4 * top + 65), slice(4 * left, 4 * left + 129)
        np.testing.assert_array_equal(part_labels, labels[crop])
        for channel in range(3):
            expected = density[channel][crop]
            np.testing.assert_array_equal(part[channel] if part else np.zeros_like(expected), expected)


@pytest.mark.parametrize(("pen", "most"), [("pen_black", {0, 1, 2}), ("pen_green", {1}), ("pen_blue", {2})])
def test_pens_have_their_colours(pen, most):
    density, labels = draw(layout((pen,), 4), WHOLE)
    inked = labels == LABEL[pen]
    assert 0.01 < inked.mean() < 0.5
    through = [np.exp(-channel[inked]).mean() for channel in density]
    assert int(np.argmax(through)) in most
    assert min(through) < 0.35  # dense, and yet not opaque everywhere
    assert through[2 if pen == "pen_blue" else 1] > 0.05
    # Nothing but the soft rim lies outside the label.
    assert np.abs(density[0][~inked]).mean() < 0.02


def test_nothing_above_the_tissue_is_an_empty_list():
    density, labels = draw(layout(("plain",)), WHOLE)
    assert density == []
    assert not labels.any()


def test_bubbles_have_a_dark_rim_and_a_clear_inside():
    made = layout(("bubble",), 2)
    density, labels = draw(made, WHOLE)
    bubble = max(made.bubbles, key=lambda b: b.radius_px)
    node = tuple(int(np.clip(round(c / 4), 0, n - 1)) for c, n in zip((bubble.y, bubble.x), labels.shape, strict=True))
    assert density[0][node] < 0.05
    assert density[0].max() > 0.4
    assert labels[node] == LABEL["bubble"]


def test_stripes_step_and_stay_small():
    y, x = lattice(0, 1024), lattice(0, 8192)
    factor = stripes(layout(("stitching",), 1), y, x, 0)
    assert factor.shape == (len(y), len(x))
    assert 0.85 < factor.min() < factor.max() <= 1
    steps = np.abs(np.diff(factor[0]))
    # The largest jumps are where a stripe of 2048 px meets the next.
    assert sorted(np.argsort(steps)[-4:] * 4 + 4) == [2048, 4096, 6144, 8192]
