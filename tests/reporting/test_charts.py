import io

import numpy as np
import pytest
from PIL import Image

from gigaslide.reporting import charts
from gigaslide.reporting.charts import Bar

RANDOM = np.random.default_rng(0)
STEPS = [
    {
        "step": step,
        "loss": 1 / (1 + step),
        "soft_dice": 1 - 1 / (2 + step),
        "step_time_s": 0.4,
        "megapixels_per_s": 19.0,
        "memory_gb": 2.0,
    }
    for step in range(90)
]
EPOCHS = [{"epoch": epoch, "validation_dice": 0.5 + epoch / 20, "is_best": epoch < 7} for epoch in range(9)]


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def count(png, colour, near=12):
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((np.abs(pixels(png) - rgb).max(axis=-1) <= near).sum())


@pytest.mark.parametrize("steps, epochs", [(STEPS, EPOCHS), (STEPS[:1], EPOCHS[:1])])
def test_training_draws_curves_and_marks_the_best_epoch(steps, epochs):
    png = charts.training(steps, epochs)
    assert count(png, "#D55E00") > 20
    assert pixels(png).shape[1] == 11 * 160


def test_training_without_a_best_epoch_marks_none():
    assert count(charts.training(STEPS, [row | {"is_best": False} for row in EPOCHS]), "#D55E00") == 0


def test_longer_bars_have_more_colour():
    def drawn(network):
        return count(charts.artefacts([Bar("pen", network, 0.5)], [Bar("pen", 0.5, 0.5)]), charts.NETWORK_COLOUR)

    # The classical bar keeps the scale the same.
    assert drawn(0.4) > 1.1 * drawn(0.05)


def test_an_artefact_without_tissue_has_no_dice_bar():
    def drawn(dice):
        return count(charts.artefacts([Bar("dust", 1, 1)], [Bar("dust", dice, dice)]), charts.CLASSICAL_COLOUR)

    assert drawn(None) < drawn(1.0)


def test_slides_draw_both_methods():
    png = charts.slides([Bar("a", 0.98, 0.9), Bar("b", 0.99, 0.95)])
    assert count(png, charts.NETWORK_COLOUR) > 50
    assert count(png, charts.CLASSICAL_COLOUR) > 50


def test_the_same_numbers_give_the_same_bytes():
    assert charts.training(STEPS, EPOCHS) == charts.training(STEPS, EPOCHS)
