import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.training.schedule import learning_rate


def test_warm_up_peak_and_floor() -> None:
    rates = [learning_rate(step, 100, 0.01, 10) for step in range(100)]
    assert rates[0] == pytest.approx(0.001)
    assert max(rates) == pytest.approx(0.01)
    assert rates[55] == pytest.approx(0.01 * (0.01 + 0.99 / 2))
    assert rates[10:] == sorted(rates[10:], reverse=True)


@given(st.integers(1, 1000), st.integers(0, 2000))
def test_rate_is_never_zero_nor_above_the_peak(steps: int, warmup: int) -> None:
    for step in range(0, steps, max(1, steps // 7)):
        assert 0 < learning_rate(step, steps, 0.5, warmup) <= 0.5
