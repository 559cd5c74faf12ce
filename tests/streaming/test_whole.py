from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from gigaslide import config
from gigaslide.errors import GigaslideError
from gigaslide.geometry import Window
from gigaslide.network import losses, unet
from gigaslide.network.pixels import network_input
from gigaslide.streaming.whole import WholeImage
from tests.streaming.areas import ArrayArea, random_area

NETWORK = config.load(Path(__file__).parents[2] / "params.yaml").network.model_copy(
    update={"kernel_size": 5, "stride": 2}
)


def _engine(dtype: str = "float32") -> WholeImage:
    return WholeImage(unet.build(NETWORK, 1, dtype), NETWORK.total_stride, 0.6, 0.4)


def test_gradient_against_differences_in_float64() -> None:
    engine, area = _engine("float64"), random_area(0, 16, 20)
    result = engine.step(area)
    weights = engine.model.get_weights()
    random = np.random.default_rng(0)
    direction = [random.normal(size=w.shape) for w in weights]
    h = 1e-6

    def loss(sign: int) -> float:
        engine.model.set_weights([w + sign * h * d for w, d in zip(weights, direction, strict=True)])
        return engine.step(area).loss

    slope = sum(float((g * d).sum()) for g, d in zip(result.gradients, direction, strict=True))
    # Central difference: truncation of order h^2, rounding of order 1e-15 / h; few kinks of leaky ReLU lie within h.
    assert (loss(1) - loss(-1)) / (2 * h) == pytest.approx(slope, rel=1e-5)


def test_loss_is_that_of_the_models_own_output() -> None:
    engine, area = _engine(), random_area(1, 16, 24)
    logits = engine.model(network_input(area.image, area.density_table))[0, :, :, 0]
    totals = losses.statistics(logits, area.mask)
    result = engine.step(area)
    assert result.loss == pytest.approx(float(losses.loss(totals, 0.6, 0.4)), rel=1e-6)
    assert result.soft_dice == pytest.approx(float(losses.soft_dice(totals)), rel=1e-6)


@pytest.mark.parametrize("shape", [(13, 18), (1, 1), (4, 5)])
def test_an_extent_that_the_stride_does_not_divide_is_glass_and_invalid_beyond_its_edge(
    shape: tuple[int, int],
) -> None:
    engine, area = _engine(), random_area(2, *shape)
    below, right = (-size % NETWORK.total_stride for size in shape)
    padded = ArrayArea(
        np.stack(
            [np.pad(area.image[..., c], [(0, below), (0, right)], constant_values=area.glass_rgb[c]) for c in range(3)],
            -1,
        ),
        np.pad(area.mask, [(0, below), (0, right)], constant_values=255),
    )
    ours, theirs = engine.step(area), engine.step(padded)
    assert ours.loss == theirs.loss
    assert all(np.array_equal(a, b) for a, b in zip(ours.gradients, theirs.gradients, strict=True))
    ((window, probability),) = engine.predict(area)
    ((_, whole),) = engine.predict(padded)
    assert window == Window.of(0, 0, *shape)
    assert np.array_equal(probability, whole[: shape[0], : shape[1]])


def test_slides_of_different_sizes_share_one_trace() -> None:
    engine = _engine()
    for height in (8, 12, 13, 40):
        engine.step(random_area(0, height, 16))
    assert engine._step.experimental_get_tracing_count() == 1


def test_an_area_too_large_for_one_tensor_is_refused_before_it_is_read() -> None:
    class Huge(ArrayArea):
        @property
        def shape(self) -> tuple[int, int]:
            return 40_000, 40_000

    with pytest.raises(GigaslideError, match=r"prepare\.region_px"):
        _engine().step(Huge(np.zeros((1, 1, 3), np.uint8), np.zeros((1, 1), np.uint8)))


def test_two_steps_are_the_same_to_the_bit() -> None:
    tf.config.experimental.enable_op_determinism()
    engine, area = _engine(), random_area(3, 64, 64)
    first, second = engine.step(area), engine.step(area)
    assert first.loss == second.loss
    assert all(np.array_equal(a, b) for a, b in zip(first.gradients, second.gradients, strict=True))
