"""Boundary F-score: how much of the outline is where it should be, within a tolerance.

A *boundary pixel* is a tissue pixel with glass in at least one of its 4 neighbours. Beyond the edge of the
image, and on invalid pixels, there is neither tissue nor glass, so the edge of an image or of an invalid
area makes no boundary. A boundary pixel of the prediction is *matched* when a boundary pixel of the truth
lies within the tolerance (Euclidean distance between pixel centres, at most), and the other way round.
Precision is the matched share of the predicted boundary, recall that of the true one, F their harmonic
mean.

Source: Csurka, Larlus, Perronnin, "What is a good evaluation measure for semantic segmentation?", BMVC 2013
(matching by distance), after Martin, Fowlkes, Malik, PAMI 26 (2004) 530, who match one to one: there a
pixel counts at most once, here a ragged outline close to a smooth one is matched in full. A boundary pixel
near an invalid area may miss the match that lies inside it.

Whether a pixel is matched depends on the labels no farther away than the tolerance plus one pixel. So
windows that are read with that halo add up to exactly the numbers of the whole image.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from gigaslide.classes import GLASS, TISSUE
from gigaslide.geometry import Window


@dataclass(frozen=True, slots=True)
class BoundaryCounts:
    """Boundary pixels of the prediction and of the truth, and how many of each are matched."""

    predicted: int = 0
    predicted_matched: int = 0
    true: int = 0
    true_matched: int = 0

    def __add__(self, other: "BoundaryCounts") -> "BoundaryCounts":
        return BoundaryCounts(
            self.predicted + other.predicted,
            self.predicted_matched + other.predicted_matched,
            self.true + other.true,
            self.true_matched + other.true_matched,
        )

    @property
    def precision(self) -> float:
        """Matched share of the predicted boundary, 0 to 1; 1 without any boundary, 0 with none predicted."""
        return self._share(self.predicted_matched, self.predicted)

    @property
    def recall(self) -> float:
        """Matched share of the true boundary, 0 to 1; 1 with no boundary at all, 0 with none in the truth."""
        return self._share(self.true_matched, self.true)

    @property
    def f_score(self) -> float:
        """Harmonic mean of precision and recall, 0 to 1."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    def _share(self, matched: int, pixels: int) -> float:
        if self.predicted + self.true == 0:
            return 1.0
        return matched / pixels if pixels else 0.0


def boundary(labels: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return the boundary pixels of `labels`, uint8 (y, x): 0 glass, 1 tissue, else neither; bool (y, x)."""
    glass = labels == GLASS
    beside: NDArray[np.bool_] = np.zeros(labels.shape, bool)
    beside[1:] |= glass[:-1]
    beside[:-1] |= glass[1:]
    beside[:, 1:] |= glass[:, :-1]
    beside[:, :-1] |= glass[:, 1:]
    beside &= labels == TISSUE
    return beside


def halo_px(tolerance_px: float) -> int:
    """Return the pixels around a window that `count_boundary` needs: the tolerance and one more."""
    return math.floor(tolerance_px) + 1


def count_boundary(
    predicted: NDArray[np.uint8], truth: NDArray[np.uint8], owned: Window, tolerance_px: float
) -> BoundaryCounts:
    """Count the boundary pixels inside `owned`, and those of them that are matched.

    Args:
        predicted: uint8 (y, x), 0 glass, 1 tissue, 255 invalid; `owned` and its halo, clipped at the image.
        truth: the same pixels.
        owned: the window to count, in the arrays' own coordinates.
        tolerance_px: at least 0.
    """
    if predicted.shape != truth.shape:
        raise ValueError(f"prediction and truth have the same shape; received {predicted.shape} and {truth.shape}")
    # Where there is one sort of pixel, there is no boundary.
    predicted_edge = np.argwhere(boundary(predicted))
    true_edge = np.argwhere(boundary(truth))
    predicted_owned = predicted_edge[_inside(predicted_edge, owned)]
    true_owned = true_edge[_inside(true_edge, owned)]
    return BoundaryCounts(
        len(predicted_owned),
        _matched(predicted_owned, true_edge, tolerance_px),
        len(true_owned),
        _matched(true_owned, predicted_edge, tolerance_px),
    )


def _inside(points: NDArray[np.intp], window: Window) -> NDArray[np.bool_]:
    y, x = points[:, 0], points[:, 1]
    inside: NDArray[np.bool_] = (
        (y >= window.y.start) & (y < window.y.stop) & (x >= window.x.start) & (x < window.x.stop)
    )
    return inside


def _matched(points: NDArray[np.intp], others: NDArray[np.intp], tolerance_px: float) -> int:
    if not len(points) or not len(others):
        return 0
    # The tree's bound is exclusive; distances between whole pixels are roots of integers, compared here
    # themselves.
    distance, _ = cKDTree(others).query(points, distance_upper_bound=tolerance_px + 1)
    return int(np.count_nonzero(np.round(distance**2) <= tolerance_px**2))
