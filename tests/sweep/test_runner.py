import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import psutil
import pytest
import yaml

from gigaslide.sweep import space
from gigaslide.sweep.runner import folder_name, run_name
from gigaslide.sweep.study import Study
from gigaslide.sweep.verdict import Here
from tests.sweep.worker import small_settings, work

CELLS = [(3, 2), (5, 2), (5, 4), (7, 2), (7, 4)]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Set what the trials do; return a function that reads what they did."""
    log = tmp_path / "log.txt"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAKE_LOG", str(log))

    def do(**trials):
        monkeypatch.setenv("FAKE_TRIALS", json.dumps({name.replace("_", "-"): what for name, what in trials.items()}))

    do()

    def events(word="start"):
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [(name, float(when), int(pid)) for what, name, when, pid in lines if what == word]

    do.events = events
    do.url = f"journal:{tmp_path}/study.log"
    return do


def names(events):
    return sorted(name for name, _, _ in events)


def test_every_cell_is_trained_once_and_again_only_what_failed(fake, tmp_path):
    fake(k5_s2={"dice": 0.95}, k5_s4={"dies": "signal"})
    notes = work(small_settings(), fake.url, tmp_path)
    assert names(fake.events()) == ["k3-s2", "k5-s2", "k5-s4", "k7-s2", "k7-s4"]
    assert notes.results[5, 2].dice == pytest.approx(0.95)
    assert notes.results[5, 2].peak_memory_gb == 0.8
    assert notes.results[5, 2].epochs == 4
    fake()
    work(small_settings(), fake.url, tmp_path)
    assert names(fake.events())[2:4] == ["k5-s4", "k5-s4"]
    assert len(fake.events()) == 6
    work(small_settings(), fake.url, tmp_path)
    assert len(fake.events()) == 6


def test_killed_raised_and_over_the_budget_are_three_outcomes_and_the_rest_goes_on(fake, tmp_path):
    fake(k3_s2={"dies": "signal"}, k5_s2={"dies": "error"}, k5_s4={"dies": "memory"})
    results = work(small_settings(), fake.url, tmp_path).results
    assert (results[3, 2].state, results[3, 2].reason) == ("failed", "signal 9 (SIGKILL) ended it")
    assert results[5, 2].state == "failed"
    assert "ValueError: the loss is purple" in results[5, 2].reason
    assert (results[5, 4].state, results[5, 4].feasible) == ("infeasible", False)
    assert "9.00 GB of a budget of 1.00 GB" in results[5, 4].reason
    assert results[5, 4].over_budget_gb > 0
    assert {results[7, 2].state, results[7, 4].state} == {"complete"}


def test_what_is_predicted_not_to_fit_is_never_run(fake, tmp_path):
    # Whole, at 16000 x 64000 px: about 100 GB with stride 2, 87 GB with stride 4.
    notes = work(small_settings(plan="whole", budget_gb=95), fake.url, tmp_path)
    assert names(fake.events()) == ["k5-s4", "k7-s4"]
    refused = notes.results[3, 2]
    assert (refused.state, refused.run_id, refused.peak_memory_gb) == ("infeasible", None, None)
    assert refused.predicted_peak_gb == pytest.approx(95 + refused.over_budget_gb)
    assert "not run" in refused.reason
    assert "16000 x 64000" in refused.reason


def test_what_does_not_fit_this_machine_is_not_run_here_but_not_infeasible(fake, tmp_path):
    settings = small_settings(plan="whole")
    notes = work(settings, fake.url, tmp_path, here=Here((16000, 64000), 3, 24e9))
    assert fake.events() == []
    assert {result.state for result in notes.results.values()} == {"failed"}
    assert all("24.00 GB are free on this machine" in result.reason for result in notes.results.values())
    # Another machine, or another time.
    again = work(settings, fake.url, tmp_path, here=Here((16000, 64000), 3, 200e9))
    assert {result.state for result in again.results.values()} == {"complete"}


def test_what_passes_its_share_of_the_budget_is_tried_again_with_all_of_it(fake, tmp_path):
    fake(k5_s4={"dies": "memory", "above_gb": 5.0, "epoch_s": 0.1})
    notes = work(small_settings(jobs=2, budget_gb=8), fake.url, tmp_path)
    assert names(fake.events()).count("k5-s4") == 2
    assert notes.results[5, 4].state == "complete"
    assert len(fake.events()) == len(CELLS) + 1


def test_what_was_finished_when_its_parent_died_is_not_trained_again(fake, tmp_path):
    space_ = {"network.kernel_size": [3], "network.stride": [2]}
    fake(k3_s2={"dice": 0.77})
    work(small_settings(space_), fake.url, tmp_path)
    (tmp_path / "trials/kernel_size-3_stride-2/models").mkdir()
    (tmp_path / "trials/kernel_size-3_stride-2/models/run.json").write_text('{"run_id": "abc"}')
    # As if the study had never heard of it.
    result = work(small_settings(space_), f"journal:{tmp_path}/other.log", tmp_path).results[3, 2]
    assert (result.state, result.dice, result.run_id, result.epochs) == ("complete", 0.77, "abc", 4)
    assert len(fake.events()) == 1
    # With other settings it is another training.
    work(small_settings(space_, epochs=5), f"journal:{tmp_path}/third.log", tmp_path)
    assert len(fake.events()) == 2


def test_a_claim_that_was_cut_short_does_not_block_the_study(fake, tmp_path):
    settings = small_settings()
    found = space.make(settings)
    study = Study(fake.url, "test", found, 0)
    study.enqueue(found.cells)
    frozen = study._study.get_trials()[1]
    study._storage.set_trial_state_values(frozen._trial_id, optuna.trial.TrialState.RUNNING)
    claimed = optuna.trial.Trial(study._study, frozen._trial_id)
    claimed.suggest_categorical("network.kernel_size", [3, 5, 7])
    study.beat(study.trials()[1], "dead", 0)
    (tmp_path / "owners").mkdir()
    (tmp_path / "owners/owner-dead.lock").touch()
    work(settings, fake.url, tmp_path)
    assert names(fake.events()) == [f"k{k}-s{s}" for k, s in CELLS]


def test_an_error_of_the_observer_leaves_nothing_running(fake, tmp_path, monkeypatch):
    def closed(self, trial, result):
        raise OSError("the disk is full")

    fake(k5_s4={"epoch_s": 30.0})
    with monkeypatch.context() as broken, pytest.raises(OSError, match="full"):
        broken.setattr("tests.sweep.worker.Notes.closed", closed)
        work(small_settings(jobs=2), fake.url, tmp_path)
    trials = Study(fake.url, "test", space.make(small_settings()), 0).trials()
    assert not any(trial.is_running for trial in trials)
    fake()
    assert len(work(small_settings(), fake.url, tmp_path).results) == len(CELLS) - 1


def test_a_sampled_space_that_is_exhausted_ends(fake, tmp_path):
    space_ = {"network.kernel_size": [3, 5], "network.stride": [2, 4]}
    fake(**{name: {"epoch_s": 0.3} for name in ("k3_s2", "k5_s2", "k5_s4")})
    notes = work(small_settings(space_, grid_cells=3, trials=50, jobs=2), fake.url, tmp_path)
    assert len(notes.results) == 3


def test_a_measured_peak_counts_where_the_trial_is_as_large_as_the_constraint(fake, tmp_path):
    fake(k3_s2={"peak_memory_gb": 9.0}, k5_s2={"peak_memory_gb": 2.0})
    settings = small_settings(budget_gb=8, extent_px=[96, 128])
    results = work(settings, fake.url, tmp_path).results
    assert (results[3, 2].state, results[3, 2].over_budget_gb) == ("infeasible", pytest.approx(1.0))
    assert "measured 9.00 GB" in results[3, 2].reason
    assert results[5, 2].state == "complete"


def overlaps(fake):
    """Return, for every start, how many trials were running then."""
    ends = {pid: when for _, when, pid in fake.events("end")}
    starts = fake.events()
    return [sum(begin <= when < ends[pid] for _, begin, pid in starts) for _, when, _ in starts]


def test_jobs_run_side_by_side_on_cores_and_budgets_of_their_own(fake, tmp_path):
    fake(**{f"k{k}_s{s}": {"epoch_s": 0.15} for k, s in CELLS})
    notes = work(small_settings(jobs=2), fake.url, tmp_path)
    assert notes.most_running == 2
    assert max(overlaps(fake)) == 2
    requests = [json.loads(file.read_text()) for file in (tmp_path / "trials").glob("*/trial.json")]
    params = [yaml.safe_load(file.read_text()) for file in (tmp_path / "trials").glob("*/params.yaml")]
    machine_gb = psutil.virtual_memory().total // 1e9
    assert {values["memory"]["budget_gb"] for values in params} == {min(128, machine_gb) / 2}
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 2:
        assert {tuple(request["cores"]) for request in requests} == {(cpu,) for cpu in os.sched_getaffinity(0)}


def test_one_that_needs_more_than_its_share_runs_alone(fake, tmp_path):
    # Predicted for 4096 x 4096 whole: 2.4 to 2.8 GB; two do not fit 4 GB together.
    fake(**{f"k{k}_s{s}": {"epoch_s": 0.05} for k, s in CELLS})
    settings = small_settings(jobs=2, plan="whole")
    notes = work(settings, fake.url, tmp_path, here=Here((4096, 4096), 3, 4e9))
    assert len(notes.results) == 5
    assert max(overlaps(fake)) == 1


def test_a_hopeless_training_is_stopped_but_not_one_that_is_fast(fake, tmp_path):
    # Trained in the order of the grid; the last two are as bad, and the last one is faster than all others.
    space_ = {"network.kernel_size": [3, 5, 7, 9, 11, 13, 15], "network.stride": [2]}
    bad = {"dice": 0.3, "epoch_s": 0.25}
    fake(k13_s2={**bad, "step_time_s": 2.0}, k15_s2={**bad, "step_time_s": 0.5})
    results = work(small_settings(space_), fake.url, tmp_path).results
    assert results[13, 2].state == "pruned"
    assert 2 <= results[13, 2].epochs < 4
    assert results[13, 2].dice < 0.3
    assert results[15, 2].state == "complete"
    assert names(fake.events("end")).count("k13-s2") == 0
    without = small_settings(space_, prune=False, name="b")
    results = work(without, fake.url, tmp_path, name="b").results
    assert results[13, 2].state == "complete"


def start_worker(fake, tmp_path, **settings):
    request = {"url": fake.url, "folder": str(tmp_path), "settings": settings}
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    return subprocess.Popen([sys.executable, "-m", "tests.sweep.worker", json.dumps(request)], env=environment)


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_two_processes_on_one_study_train_every_cell_once(fake, tmp_path, storage_url):
    fake(**{f"k{k}_s{s}": {"epoch_s": 0.05} for k, s in CELLS})
    fake.url = storage_url
    workers = [start_worker(fake, tmp_path) for _ in range(2)]
    assert [worker.wait(120) for worker in workers] == [0, 0]
    assert names(fake.events()) == [f"k{k}-s{s}" for k, s in CELLS]
    study = Study(storage_url, "test", space.make(small_settings()), 0)
    assert {trial.result.state for trial in study.trials()} == {"complete"}
    assert len({trial.owner for trial in study.trials()}) == 2


def test_killed_with_9_it_takes_its_trials_along_and_the_next_one_goes_on(fake, tmp_path):
    fake(k5_s4={"epoch_s": 30.0})
    worker = start_worker(fake, tmp_path)
    wait_for(lambda: "k5-s4" in names(fake.events()))
    (pid,) = [pid for name, _, pid in fake.events() if name == "k5-s4"]
    before = names(fake.events("end"))
    worker.send_signal(signal.SIGKILL)
    worker.wait(30)
    wait_for(lambda: not psutil.pid_exists(pid))
    fake()
    notes = work(small_settings(), fake.url, tmp_path)
    assert len(notes.results) == len(CELLS) - len(before) > 0
    assert sorted(set(names(fake.events()))) == [f"k{k}-s{s}" for k, s in CELLS]
    assert names(fake.events()).count("k5-s4") == 2
    assert len(fake.events()) == len(CELLS) + 1


def test_one_of_two_machines_dies_and_the_other_takes_over(fake, tmp_path, monkeypatch):
    # No lock file tells of a process on another machine: only that its number stands still.
    monkeypatch.setattr("gigaslide.sweep.owners.STALE_S", 0.5)
    settings = small_settings()
    found = space.make(settings)
    study = Study(fake.url, "test", found, 0)
    study.enqueue(found.cells)
    study.beat(study.claim(), "somewhere-else", 3)
    notes = work(settings, fake.url, tmp_path)
    assert len(notes.results) == len(CELLS)
    assert names(fake.events()) == [f"k{k}-s{s}" for k, s in CELLS]


def test_interrupted_it_stops_its_trials_and_their_cells_wait(fake, tmp_path):
    fake(k3_s2={"epoch_s": 30.0})
    worker = start_worker(fake, tmp_path)
    wait_for(lambda: fake.events())
    worker.send_signal(signal.SIGINT)
    assert worker.wait(30) != 0
    assert not psutil.pid_exists(fake.events()[0][2])
    trials = Study(fake.url, "test", space.make(small_settings()), 0).trials()
    assert [trial.is_waiting for trial in trials] == [True] * 5


def test_a_sampled_space_gets_as_many_trials_as_asked_for(fake, tmp_path):
    space_ = {
        "network.kernel_size": {"low": 2, "high": 30, "step": 1},
        "train.learning_rate": {"low": 0.001, "high": 0.1},
    }
    notes = work(small_settings(space_, trials=7, jobs=2), fake.url, tmp_path)
    assert len(notes.results) == 7 == len(fake.events())


def test_a_sampled_space_in_which_everything_fails_ends(fake, tmp_path):
    space_ = {"network.kernel_size": {"low": 2, "high": 300, "step": 1}, "network.stride": [2]}
    fake(**{f"k{k}_s2": {"dies": "error"} for k in range(2, 301)})
    notes = work(small_settings(space_, trials=3), fake.url, tmp_path)
    assert [result.state for result in notes.results.values()] == ["failed"] * 3


def test_names_say_what_is_tried():
    settings = small_settings()
    cell = {"network.kernel_size": 5, "network.stride": 2}
    trained = space.trial_settings(settings, cell)
    assert run_name(trained, cell) == "k5-s2"
    assert folder_name(cell) == "kernel_size-5_stride-2"
    cell |= {"network.filters": [3, 2], "train.learning_rate": 0.01}
    assert run_name(space.trial_settings(settings, cell), cell) == "k5-s2, filters [3, 2], learning_rate 0.01"
    assert "/" not in folder_name(cell | {"memory.plan": "plans/a b.json"})
