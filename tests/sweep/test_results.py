import csv
import io

from gigaslide.sweep.results import COLUMNS, Result, Trial, as_csv, rows
from gigaslide.sweep.space import LeftOut

RESULT = Result("complete", "", 1.5, 20.0, -126.5, dice=0.9, step_time_s=1.0, peak_memory_gb=0.8, epochs=2)
FAILED = Result("failed", "signal 9, it says", 1.5, 20.0, -126.5)


def trial(number, kernel, result=None, is_running=False):
    cell = {"network.kernel_size": kernel, "network.stride": 2}
    return Trial(number, cell, is_running, result is None and not is_running, None, 0, result)


def test_every_cell_has_its_last_trial_and_what_was_left_out_is_there():
    left_out = [LeftOut({"network.kernel_size": 3, "network.stride": 4}, "too large")]
    trials = [trial(0, 5, FAILED), trial(1, 7, FAILED), trial(2, 5, RESULT), trial(3, 9, is_running=True), trial(4, 11)]
    table = rows(trials, left_out, ["network.kernel_size", "network.stride"])
    assert [(row["number"], row["kernel_size"], row["state"], row["feasible"]) for row in table] == [
        (1, 7, "failed", None),
        (2, 5, "complete", True),
        (3, 9, "running", None),
        (4, 11, "waiting", None),
        (None, 3, "left out", None),
    ]
    assert all(list(row) == ["number", "kernel_size", "stride", *COLUMNS] for row in table)
    read = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert read[0]["reason"] == "signal 9, it says"
    assert read[1]["dice"] == "0.9"
    assert read[2]["dice"] == ""


def test_what_a_table_is_asked_for_is_there():
    asked = ["state", "feasible", "reason", "dice", "step_time_s", "predicted_peak_gb", "peak_memory_gb", "run_id"]
    assert set(asked) <= set(COLUMNS)
    assert Result("infeasible", "", 1, 1, 1).feasible is False
    assert Result("pruned", "", 1, 1, -1).feasible is True
    assert as_csv([]).strip() == ""
