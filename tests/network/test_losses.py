import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gigaslide.network import losses


def _random(seed: int, shape: tuple[int, int]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    random = np.random.default_rng(seed)
    logits = random.normal(0, 3, shape).astype(np.float32)
    return logits, random.choice(np.array([0, 1, 255], np.uint8), shape)


def _oracle(logits: NDArray[np.float32], mask: NDArray[np.uint8]) -> list[float]:
    valid = mask != 255
    z, y = logits[valid].astype(float), (mask[valid] == 1).astype(float)
    p = 1 / (1 + np.exp(-z))
    nats = np.logaddexp(0, z) - y * z
    return [(p * y).sum(), p.sum(), y.sum(), nats.sum(), float(valid.sum())]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 40))
def test_statistics_equal_numpy_float64(seed: int, height: int, width: int) -> None:
    logits, mask = _random(seed, (height, width))
    totals = [float(x) for x in losses.statistics(logits, mask)]
    # Rows are float32 sums of at most 40 terms, each right to a few ulp of 2^-24.
    assert totals == pytest.approx(_oracle(logits, mask), rel=40 * 2**-22, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 39))
def test_statistics_of_parts_add_up(seed: int, cut: int) -> None:
    logits, mask = _random(seed, (40, 16))
    whole = losses.statistics(logits, mask)
    upper, lower = losses.statistics(logits[:cut], mask[:cut]), losses.statistics(logits[cut:], mask[cut:])
    # The same row sums, added in float64.
    for total, a, b in zip(whole, upper, lower, strict=True):
        assert float(a + b) == pytest.approx(float(total), rel=1e-14)


def test_gradient_against_differences() -> None:
    logits, mask = _random(3, (4, 5))
    z = tf.Variable(logits.astype(np.float64))
    with tf.GradientTape() as tape:
        value = losses.loss(losses.statistics(z, mask), 0.7, 0.3)
    gradient = tape.gradient(value, z).numpy()
    h = 1e-6
    for y, x in np.ndindex(logits.shape):
        shifted = np.zeros_like(gradient)
        shifted[y, x] = h
        up, down = (
            float(losses.loss(losses.statistics(tf.constant(logits.astype(float) + sign * shifted), mask), 0.7, 0.3))
            for sign in (1, -1)
        )
        # Central difference in float64: truncation h^2, rounding 1e-16 / h.
        assert gradient[y, x] == pytest.approx((up - down) / (2 * h), abs=1e-8)
        if mask[y, x] == 255:
            assert gradient[y, x] == 0


def test_perfect_worst_and_empty() -> None:
    mask = np.array([[0, 1, 1, 0]], np.uint8)
    right = np.where(mask == 1, 50, -50).astype(np.float32)
    assert float(losses.loss(losses.statistics(right, mask), 1, 1)) == pytest.approx(0, abs=1e-6)
    assert float(losses.soft_dice(losses.statistics(-right, mask))) == pytest.approx(1 / 5)
    nothing = losses.statistics(np.full((2, 2), -50, np.float32), np.zeros((2, 2), np.uint8))
    assert float(losses.soft_dice(nothing)) == pytest.approx(1)
    invalid = losses.statistics(np.zeros((2, 2), np.float32), np.full((2, 2), 255, np.uint8))
    assert float(losses.loss(invalid, 1, 1)) == 0


def test_the_mean_is_over_the_valid_pixels_even_if_it_is_one() -> None:
    mask = np.full((3, 4), 255, np.uint8)
    mask[1, 2] = 1
    totals = losses.statistics(np.full((3, 4), -2.0), mask)
    assert float(losses.mean_cross_entropy(totals)) == pytest.approx(np.logaddexp(0, 2))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([(0.7, 0.3), (1.0, 0.0), (0.0, 1.0)]))
def test_the_gradient_written_out_is_that_of_the_tape(seed: int, weights: tuple[float, float]) -> None:
    logits, mask = _random(seed, (6, 7))
    z = tf.Variable(logits.astype(np.float64))
    with tf.GradientTape() as tape:
        value = losses.loss(losses.statistics(z, mask), *weights)
    found, slopes = losses.slopes(losses.statistics(z, mask), *weights)
    assert float(found) == float(value)
    # Four roundings each, of numbers no larger than the largest gradient a logit can have.
    assert losses.logit_gradient(z, mask, slopes).numpy() == pytest.approx(
        tape.gradient(value, z).numpy(), rel=1e-12, abs=1e-17
    )
