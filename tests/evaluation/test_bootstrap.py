import numpy as np
import pytest

from gigaslide.evaluation.bootstrap import mean_interval


@pytest.mark.parametrize("values", [[], [0.9]])
def test_fewer_than_two_slides_have_no_interval(values):
    assert mean_interval(values, 1000, 0) is None


def test_equal_slides_have_an_interval_of_no_width():
    assert mean_interval([0.5, 0.5, 0.5], 100, 0) == (0.5, 0.5)


def test_same_seed_same_interval():
    values = list(np.random.default_rng(0).uniform(0.9, 1, 9))
    assert mean_interval(values, 500, 3) == mean_interval(values, 500, 3)
    assert mean_interval(values, 500, 3) != mean_interval(values, 500, 4)


def test_many_slides_agree_with_the_normal_interval():
    values = np.random.default_rng(0).normal(0.9, 0.02, 400)
    low, high = mean_interval(values, 20_000, 1)
    error = values.std() / np.sqrt(len(values))
    # A quantile q of n draws has standard error sqrt(q (1 - q) / n) / density: 0.019 standard errors of the
    # mean here. Five of them, and 0.05 for the skewness that 400 normal values have by chance (0.12 / 6 *
    # (1.96^2 - 1)).
    tolerance = (5 * 0.019 + 0.06) * error
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=tolerance)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=tolerance)


def test_blocks_do_not_lose_samples(monkeypatch):
    monkeypatch.setattr("gigaslide.evaluation.bootstrap._BLOCK_VALUES", 7)
    low, high = mean_interval([0.0, 1.0], 4001, 0)
    assert (low, high) == (0.0, 1.0)  # each end has probability 1/4, far more than the tails of 2.5 %
