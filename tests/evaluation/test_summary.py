import csv
import io
import statistics

import pytest

from gigaslide.config import Evaluate
from gigaslide.evaluation.boundary import BoundaryCounts
from gigaslide.evaluation.counts import Counts
from gigaslide.evaluation.slide import ELSEWHERE, Outcome
from gigaslide.evaluation.summary import (
    ARTEFACT_COLUMNS,
    SLIDE_COLUMNS,
    SlideResult,
    artefact_rows,
    csv_text,
    metrics_of,
    slide_rows,
)

SETTINGS = Evaluate(threshold=0.5, boundary_tolerance_um=4.0, bootstrap_samples=200, seed=0)


def result(name, wrong, artefacts=None):
    def outcome(errors):
        counts = Counts(90, errors, errors, 10)
        return Outcome(counts, BoundaryCounts(20, 20 - errors, 20, 20 - errors), artefacts or {ELSEWHERE: counts})

    return SlideResult(name, (10, 20), 0.5, 8.0, {"network": outcome(wrong), "auto": outcome(2 * wrong)})


def test_mean_worst_and_pooled():
    metrics = metrics_of([result("a", 1), result("b", 3)], SETTINGS)
    dice = [180 / 182, 180 / 186]
    assert metrics["slide_count"] == 2
    assert metrics["dice_mean"] == round(sum(dice) / 2, 6)
    assert metrics["dice_sd"] == round(statistics.stdev(dice), 6)
    assert metrics["dice_worst"] == round(min(dice), 6)
    assert metrics["dice_pooled"] == round(360 / 368, 6)
    assert metrics["boundary_f_pooled"] == round(36 / 40, 6)
    assert metrics["dice_ci_low"] < metrics["dice_mean"] < metrics["dice_ci_high"]
    assert metrics["slides"] == {"a": round(dice[0], 6), "b": round(dice[1], 6)}
    assert metrics["auto_slides"]["a"] == round(180 / 184, 6)
    assert metrics["auto_dice_mean"] < metrics["dice_mean"]


def test_one_slide_has_a_mean_but_no_spread():
    metrics = metrics_of([result("a", 1)], SETTINGS)
    assert metrics["dice_mean"] == metrics["dice_worst"] == metrics["dice_pooled"]
    assert metrics["dice_sd"] is metrics["dice_ci_low"] is metrics["dice_ci_high"] is None


def test_no_slide_has_the_same_keys_and_no_numbers():
    nothing = metrics_of([], SETTINGS)
    assert set(nothing) == set(metrics_of([result("a", 1)], SETTINGS))
    assert nothing["slide_count"] == 0
    assert nothing["dice_pooled"] is nothing["dice_mean"] is None
    assert nothing["slides"] == {}


def test_slide_rows_hold_both_methods_and_all_columns():
    rows = slide_rows([result("a", 1)])
    assert [row["method"] for row in rows] == ["network", "auto"]
    assert all(list(row) == list(SLIDE_COLUMNS) for row in rows)


def test_artefacts_are_pooled_and_the_rest_comes_last():
    pen = {ELSEWHERE: Counts(5, 1, 1, 5), "pen_red": Counts(0, 2, 0, 6)}
    rows = artefact_rows([result("a", 1, pen), result("b", 1, pen)])
    assert [(row["artefact"], row["method"]) for row in rows] == [
        ("pen_red", "network"),
        ("pen_red", "auto"),
        (ELSEWHERE, "network"),
        (ELSEWHERE, "auto"),
    ]
    assert list(rows[0]) == list(ARTEFACT_COLUMNS)
    assert (rows[0]["valid_px"], rows[0]["error_share"], rows[0]["dice"]) == (16, 0.25, 0)


@pytest.mark.parametrize("rows", [[], [{"slide": "a,b", "dice": None}]])
def test_csv_reads_back(rows):
    read = list(csv.DictReader(io.StringIO(csv_text(["slide", "dice"], rows))))
    assert read == [{"slide": "a,b", "dice": ""}][: len(rows)]
