"""From the outcomes of the test slides to the numbers that are written down.

Rounded to six digits after the point, which is finer than one pixel in a megapixel: files of two runs that
did the same are the same bytes.
"""

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gigaslide.config import Evaluate
from gigaslide.evaluation.bootstrap import mean_interval
from gigaslide.evaluation.slide import ELSEWHERE, Outcome

NETWORK, CLASSICAL = "network", "auto"
"""The methods: the trained network, and the classical method that labels slides without annotation."""

_DIGITS = 6
_PREFIX = {NETWORK: "", CLASSICAL: f"{CLASSICAL}_"}

SLIDE_COLUMNS = (
    "slide",
    "method",
    "dice",
    "iou",
    "precision",
    "recall",
    "boundary_f",
    "boundary_precision",
    "boundary_recall",
    "boundary_tolerance_px",
    "mpp_um_per_px",
    "height_px",
    "width_px",
    "valid_px",
    "tissue_px",
    "true_positive_px",
    "false_positive_px",
    "false_negative_px",
    "true_negative_px",
)
ARTEFACT_COLUMNS = (
    "artefact",
    "method",
    "dice",
    "error_share",
    "precision",
    "recall",
    "valid_px",
    "tissue_px",
    "false_positive_px",
    "false_negative_px",
)


@dataclass(frozen=True)
class SlideResult:
    """The outcomes on one slide, by method."""

    slide: str
    shape: tuple[int, int]
    mpp_um_per_px: float | None
    tolerance_px: float
    outcomes: Mapping[str, Outcome]


def _ratios(outcome: Outcome) -> dict[str, float]:
    counts = outcome.counts
    return {
        "dice": counts.dice,
        "iou": counts.iou,
        "precision": counts.precision,
        "recall": counts.recall,
        "boundary_f": outcome.boundary.f_score,
    }


def _method_metrics(results: Sequence[SlideResult], method: str, settings: Evaluate) -> dict[str, float | None]:
    outcomes = [result.outcomes[method] for result in results]
    dice = [outcome.counts.dice for outcome in outcomes]
    interval = mean_interval(dice, settings.bootstrap_samples, settings.seed)
    metrics: dict[str, float | None] = {
        "dice_mean": statistics.fmean(dice) if dice else None,
        "dice_sd": statistics.stdev(dice) if len(dice) > 1 else None,
        "dice_ci_low": interval[0] if interval else None,
        "dice_ci_high": interval[1] if interval else None,
        "dice_worst": min(dice, default=None),
    }
    for name in ("iou", "precision", "recall", "boundary_f"):
        values = [_ratios(outcome)[name] for outcome in outcomes]
        metrics[f"{name}_mean"] = statistics.fmean(values) if values else None
    pooled = _ratios(sum(outcomes, Outcome()))
    for name, value in pooled.items():
        metrics[f"{name}_pooled"] = value if outcomes else None
    return metrics


def _rounded(value: Any) -> Any:
    return round(value, _DIGITS) if isinstance(value, float) else value


def metrics_of(results: Sequence[SlideResult], settings: Evaluate) -> dict[str, Any]:
    """Return what `metrics.json` holds.

    Flat numbers of the network, the same with the prefix `auto_` of the classical method, and the Dice of
    every slide under `slides` and `auto_slides`. `_mean` and `_sd` (sample standard deviation) are over
    slides, `_pooled` is of the pixels of all slides together. None where there are too few slides: no mean of
    none, no spread of one.
    """
    metrics: dict[str, Any] = {"slide_count": len(results)}
    for method, prefix in _PREFIX.items():
        for name, value in _method_metrics(results, method, settings).items():
            metrics[prefix + name] = _rounded(value)
    for method, prefix in _PREFIX.items():
        metrics[f"{prefix}slides"] = {result.slide: _rounded(result.outcomes[method].counts.dice) for result in results}
    return metrics


def slide_rows(results: Sequence[SlideResult]) -> list[dict[str, Any]]:
    """Return a row per slide and method, with `SLIDE_COLUMNS`."""
    rows = []
    for result in results:
        for method, outcome in result.outcomes.items():
            counts = outcome.counts
            row = {
                "slide": result.slide,
                "method": method,
                **_ratios(outcome),
                "boundary_precision": outcome.boundary.precision,
                "boundary_recall": outcome.boundary.recall,
                "boundary_tolerance_px": result.tolerance_px,
                "mpp_um_per_px": result.mpp_um_per_px,
                "height_px": result.shape[0],
                "width_px": result.shape[1],
                "valid_px": counts.pixels,
                "tissue_px": counts.tissue_pixels,
                "true_positive_px": counts.true_positive,
                "false_positive_px": counts.false_positive,
                "false_negative_px": counts.false_negative,
                "true_negative_px": counts.true_negative,
            }
            rows.append({key: _rounded(value) for key, value in row.items()})
    return rows


def artefact_rows(results: Sequence[SlideResult]) -> list[dict[str, Any]]:
    """Return a row per artefact and method, pooled over the slides, with `ARTEFACT_COLUMNS`."""
    pooled = {method: sum((result.outcomes[method] for result in results), Outcome()).artefacts for method in _PREFIX}
    names = sorted({name for artefacts in pooled.values() for name in artefacts}, key=lambda n: (n == ELSEWHERE, n))
    rows = []
    for name in names:
        for method, artefacts in pooled.items():
            counts = artefacts[name]
            row = {
                "artefact": name,
                "method": method,
                "dice": counts.dice,
                "error_share": counts.error_share,
                "precision": counts.precision,
                "recall": counts.recall,
                "valid_px": counts.pixels,
                "tissue_px": counts.tissue_pixels,
                "false_positive_px": counts.false_positive,
                "false_negative_px": counts.false_negative,
            }
            rows.append({key: _rounded(value) for key, value in row.items()})
    return rows


def csv_text(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table as CSV with a header; None is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
