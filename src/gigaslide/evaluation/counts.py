"""Pixels right and wrong, and the ratios made of them.

Counts add up: over windows to a slide, over slides to a cohort ("pooled"). Only then do they become Dice,
IoU, precision and recall. Pixels that are labelled invalid are in no count.

Source: Dice, Ecology 26 (1945) 297; Jaccard, New Phytologist 11 (1912) 37. Conventions where a ratio is
0/0: with no tissue in the truth and none predicted, every ratio is 1; otherwise a ratio of nothing is 0 (a
slide whose tissue was missed entirely has precision 0, so that Dice stays the harmonic mean of precision
and recall).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gigaslide.classes import GLASS, TISSUE


@dataclass(frozen=True, slots=True)
class Counts:
    """Valid pixels by prediction and truth; "positive" is tissue."""

    true_positive: int = 0
    false_positive: int = 0
    false_negative: int = 0
    true_negative: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.true_positive + other.true_positive,
            self.false_positive + other.false_positive,
            self.false_negative + other.false_negative,
            self.true_negative + other.true_negative,
        )

    @property
    def pixels(self) -> int:
        """Valid pixels."""
        return self.true_positive + self.false_positive + self.false_negative + self.true_negative

    @property
    def tissue_pixels(self) -> int:
        """Pixels that are tissue in the truth."""
        return self.true_positive + self.false_negative

    @property
    def dice(self) -> float:
        """2 TP / (2 TP + FP + FN), 0 to 1."""
        return self._ratio(2 * self.true_positive, 2 * self.true_positive + self._wrong)

    @property
    def iou(self) -> float:
        """TP / (TP + FP + FN), 0 to 1."""
        return self._ratio(self.true_positive, self.true_positive + self._wrong)

    @property
    def precision(self) -> float:
        """TP / (TP + FP): how much of the predicted tissue is tissue, 0 to 1."""
        return self._ratio(self.true_positive, self.true_positive + self.false_positive)

    @property
    def recall(self) -> float:
        """TP / (TP + FN): how much of the tissue was found, 0 to 1."""
        return self._ratio(self.true_positive, self.true_positive + self.false_negative)

    @property
    def error_share(self) -> float:
        """(FP + FN) / valid pixels, 0 to 1; it says something also where there is no tissue."""
        return self._wrong / self.pixels if self.pixels else 0.0

    @property
    def _wrong(self) -> int:
        return self.false_positive + self.false_negative

    def _ratio(self, numerator: int, denominator: int) -> float:
        if self.true_positive + self._wrong == 0:
            return 1.0
        return numerator / denominator if denominator else 0.0


def compare(predicted: NDArray[np.bool_], mask: NDArray[np.uint8]) -> Counts:
    """Count the pixels of one window.

    Args:
        predicted: bool (y, x), True is tissue.
        mask: uint8 (y, x), the truth: 0 glass, 1 tissue, anything else is not counted.
    """
    if predicted.shape != mask.shape:
        raise ValueError(f"prediction and mask have the same shape; received {predicted.shape} and {mask.shape}")
    tissue, glass = mask == TISSUE, mask == GLASS
    tissue_pixels, glass_pixels = int(np.count_nonzero(tissue)), int(np.count_nonzero(glass))
    true_positive = int(np.count_nonzero(predicted & tissue))
    false_positive = int(np.count_nonzero(predicted & glass))
    return Counts(true_positive, false_positive, tissue_pixels - true_positive, glass_pixels - false_positive)


def count(probability: NDArray[np.floating[Any]], mask: NDArray[np.uint8], threshold: float) -> Counts:
    """Count the pixels of one window; predicted tissue is a probability of at least `threshold`.

    Args:
        probability: float (y, x) of tissue, 0 to 1.
        mask: uint8 (y, x), the truth: 0 glass, 1 tissue, 255 not counted.
        threshold: above 0 and below 1.
    """
    return compare(probability >= threshold, mask)


def compare_regions(
    predicted: NDArray[np.bool_], mask: NDArray[np.uint8], regions: NDArray[np.uint8]
) -> dict[int, Counts]:
    """Count the pixels of one window for each value of `regions`; values without a valid pixel are left out.

    Args:
        predicted: bool (y, x), True is tissue.
        mask: uint8 (y, x), the truth: 0 glass, 1 tissue, anything else is not counted.
        regions: uint8 (y, x), any labels.
    """
    valid = mask <= TISSUE
    code = regions[valid].astype(np.uint16) * 4 + mask[valid] * 2 + predicted[valid]
    cells = np.bincount(code, minlength=4 * 256).reshape(256, 4)
    return {
        int(label): Counts(int(both), int(only_predicted), int(only_true), int(neither))
        for label, (neither, only_predicted, only_true, both) in enumerate(cells)
        if neither + only_predicted + only_true + both
    }
