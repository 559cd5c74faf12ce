"""One slide, several methods: every method is measured on the same pixels of the same windows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gigaslide.classes import INVALID, TISSUE
from gigaslide.evaluation.boundary import BoundaryCounts, count_boundary, halo_px
from gigaslide.evaluation.counts import Counts, compare, compare_regions
from gigaslide.geometry import Interval, Window, grid
from gigaslide.streaming.engine import Area

_WINDOW_PX = 2048


class LabelledSlide(Area, Protocol):
    """A prepared store, or what behaves like one: an area that also knows its scale and its artefacts."""

    @property
    def mpp_um_per_px(self) -> float | None:
        """Resolution, None where the slide does not say."""

    @property
    def region_names(self) -> Sequence[str]:
        """The k-th name belongs to value k of the regions, from 1 on."""

    def read_regions(self, window: Window) -> NDArray[np.uint8] | None:
        """Return artefact labels, (y, x) uint8, 0 for none; None if the slide has no such labels."""


Prediction = Callable[[Window], NDArray[np.bool_]]
"""The predicted tissue in a window, bool (y, x)."""

ELSEWHERE = "elsewhere"
"""The name of the pixels in no artefact."""


@dataclass(frozen=True)
class Outcome:
    """What one method did on one slide; outcomes add up over slides."""

    counts: Counts = field(default_factory=Counts)
    boundary: BoundaryCounts = field(default_factory=BoundaryCounts)
    artefacts: dict[str, Counts] = field(default_factory=dict)

    def __add__(self, other: "Outcome") -> "Outcome":
        artefacts = dict(self.artefacts)
        for name, counts in other.artefacts.items():
            artefacts[name] = artefacts.get(name, Counts()) + counts
        return Outcome(self.counts + other.counts, self.boundary + other.boundary, artefacts)


def _grown(interval: Interval, halo: int, size: int) -> Interval:
    return Interval(interval.start - halo, interval.stop + halo).clip(Interval(0, size))


def _artefacts(
    predicted: NDArray[np.bool_], mask: NDArray[np.uint8], regions: NDArray[np.uint8], names: Sequence[str]
) -> dict[str, Counts]:
    return {
        ELSEWHERE if value == 0 else names[value - 1] if value <= len(names) else f"region {value}": counts
        for value, counts in compare_regions(predicted, mask, regions).items()
    }


def measure(slide: LabelledSlide, predictions: Mapping[str, Prediction], tolerance_px: float) -> dict[str, Outcome]:
    """Compare each method's prediction with the slide's mask, window by window.

    Args:
        slide: its mask is the truth; its artefact labels, if any, are counted apart.
        predictions: by method.
        tolerance_px: of the boundary, in px.
    """
    halo = halo_px(tolerance_px)
    outcomes = dict.fromkeys(predictions, Outcome())
    for owned in grid(slide.shape, (_WINDOW_PX, _WINDOW_PX)):
        window = Window(_grown(owned.y, halo, slide.shape[0]), _grown(owned.x, halo, slide.shape[1]))
        inner = owned.shift(-window.y.start, -window.x.start)
        truth = slide.read_mask(window)
        mask = truth[inner.slices]
        regions = slide.read_regions(owned)
        for method, predict in predictions.items():
            predicted = predict(window)
            labels = np.where(truth > TISSUE, np.uint8(INVALID), predicted.astype(np.uint8))
            inside = predicted[inner.slices]
            outcomes[method] += Outcome(
                compare(inside, mask),
                count_boundary(labels, truth, inner, tolerance_px),
                {} if regions is None else _artefacts(inside, mask, regions, slide.region_names),
            )
    return outcomes
