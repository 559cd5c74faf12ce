import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.sweep import analysis


def row(number, dice, step_time_s, error=0.01, state="complete", **parameters):
    return {
        "number": number,
        "dice": dice,
        "dice_standard_error": error,
        "step_time_s": step_time_s,
        "state": state,
        **parameters,
    }


def test_the_fastest_within_one_standard_error_is_recommended():
    rows = [
        row(0, 0.950, 3.0),
        row(1, 0.941, 2.0),
        row(2, 0.942, 1.0),
        row(3, 0.939, 0.1),
        row(4, 0.99, 0.1, state="pruned"),
    ]
    chosen, reason = analysis.recommend(rows)
    assert chosen["number"] == 2
    assert "trial 0 has the best validation Dice, 0.9500 +- 0.0100" in reason
    assert "of the 3 trials within one standard error" in reason


@pytest.mark.parametrize(
    ("rows", "number", "words"),
    [
        ([row(0, 0.95, 3.0), row(1, 0.93, 1.0)], 0, "no other is within that"),
        ([row(0, 0.95, 1.0), row(1, 0.945, 2.0)], 0, "none of the 1 others within that is faster"),
        ([row(0, 0.95, 3.0, None), row(1, 0.95, 1.0, None)], 1, "fastest"),
    ],
)
def test_the_reason_fits(rows, number, words):
    chosen, reason = analysis.recommend(rows)
    assert chosen["number"] == number
    assert words in reason


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 100), st.floats(0, 0.3)), min_size=1, max_size=12))
def test_no_trial_within_the_error_of_the_best_is_faster(values):
    rows = [row(number, *value) for number, value in enumerate(values)]
    chosen, _ = analysis.recommend(rows)
    best = max(row["dice"] for row in rows)
    error = next(row["dice_standard_error"] for row in rows if row["dice"] == best)
    assert chosen["dice"] >= best - error
    assert all(other["step_time_s"] >= chosen["step_time_s"] for other in rows if other["dice"] >= best - error)


def test_nothing_complete_nothing_recommended():
    assert analysis.recommend([]) is None
    assert analysis.recommend([row(0, None, None, state="infeasible")]) is None


GOOD = [[0.2, 0.4, 0.6, 0.8], [0.3, 0.5, 0.7, 0.9], [0.3, 0.4, 0.5, 0.7], [0.2, 0.5, 0.6, 0.9]]


def test_a_curve_below_three_quarters_of_the_others_is_hopeless_from_half_of_the_epochs_on():
    assert analysis.is_hopeless([0.1, 0.1, 0.1], GOOD, 4)
    assert not analysis.is_hopeless([0.1, 0.1], GOOD, 4)
    assert not analysis.is_hopeless([0.1, 0.1, 0.59], GOOD, 4)
    # Its best counts, not its last.
    assert not analysis.is_hopeless([0.65, 0.1, 0.1], GOOD, 4)
    assert not analysis.is_hopeless([0.1, 0.1, 0.1], GOOD[:3], 4)
    assert not analysis.is_hopeless([], GOOD, 4)


def test_what_decides_is_found():
    # Dice depends on the stride alone, time on the kernel alone.
    rows = [
        row(number, 0.9 - stride / 100, kernel / 10, kernel_size=kernel, stride=stride, filters=[stride, 2])
        for number, (kernel, stride) in enumerate((k, s) for k in (3, 5, 7, 11) for s in (2, 4, 8))
    ]
    found = analysis.importances(rows, ["kernel_size", "stride"])
    assert found["validation Dice"]["stride"] > 0.9
    assert found["step time"]["kernel_size"] > 0.9
    assert "filters" in analysis.importances(rows, ["kernel_size", "filters"])["validation Dice"]


def test_too_few_trials_say_nothing():
    assert analysis.importances([], ["kernel_size"]) == {}
    three = [row(number, number / 10, 1.0, kernel_size=number) for number in range(3)]
    assert analysis.importances(three, ["kernel_size"]) == {}
    same = [row(number, 0.9, 1.0, kernel_size=3) for number in range(9)]
    assert set(analysis.importances(same, ["kernel_size"])) <= {"validation Dice", "step time"}
