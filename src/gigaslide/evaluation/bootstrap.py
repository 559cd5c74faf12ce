"""Percentile bootstrap interval of a mean over slides.

Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13. The slides are what is
drawn again, not the pixels: pixels of one slide are anything but independent. With a handful of slides the
interval is too narrow (for n slides about by the factor sqrt((n - 1) / n), and the tails are those of the
slides at hand): read it as the least there is to doubt.
"""

from collections.abc import Sequence

import numpy as np

_BLOCK_VALUES = 1 << 20


def mean_interval(values: Sequence[float], samples: int, seed: int, level: float = 0.95) -> tuple[float, float] | None:
    """Return (low, high) of the mean of `values`, or None for fewer than two: no spread is known then.

    Args:
        values: one per slide.
        samples: how many cohorts of the same size are drawn, with replacement.
        seed: of the drawing; same values, samples and seed give the same interval.
        level: share of the drawn means inside the interval.
    """
    if len(values) < 2:
        return None
    numbers = np.asarray(values, np.float64)
    generator = np.random.default_rng(seed)
    block = max(1, _BLOCK_VALUES // len(numbers))
    means = [
        numbers[generator.integers(len(numbers), size=(min(block, samples - start), len(numbers)))].mean(axis=1)
        for start in range(0, samples, block)
    ]
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)
