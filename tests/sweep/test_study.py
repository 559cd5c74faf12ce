from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from gigaslide.errors import UsageError
from gigaslide.sweep import space, storage
from gigaslide.sweep.results import Result
from gigaslide.sweep.study import Study, delete
from tests.sweep.worker import small_settings

COMPLETE = Result("complete", "", 1.5, 20.0, -126.5, dice=0.9, step_time_s=1.0, peak_memory_gb=0.8, epochs=2)


def cells(trials):
    return sorted(tuple(trial.cell.values()) for trial in trials)


def test_cells_are_claimed_once_and_results_come_back(storage_url):
    found = space.make(small_settings())
    study = Study(storage_url, "a", found, 0)
    study.enqueue(found.cells)
    study.enqueue(found.cells)
    other = Study(storage_url, "a", found, 0)
    claimed = []
    while (trial := (other if len(claimed) % 2 else study).claim()) is not None:
        claimed.append(trial)
    assert cells(claimed) == cells(study.trials()) == sorted([(3, 2), (5, 2), (5, 4), (7, 2), (7, 4)])
    study.beat(claimed[0], "me", 7)
    assert [trial.owner for trial in other.trials()] == ["me", None, None, None, None]
    assert study.tell(claimed[0], COMPLETE, [0.5, 0.9])
    assert other.trials()[0].result == COMPLETE
    assert other.curves() == [[0.5, 0.9]]
    assert other.trials()[1].is_running


def test_claims_at_the_same_moment_never_meet(storage_url):
    # As many processes would; threads share no Study.
    found = space.make(small_settings({"network.kernel_size": list(range(4, 34)), "network.stride": [2]}))
    studies = [Study(storage_url, "a", found, 0) for _ in range(4)]
    studies[0].enqueue(found.cells)

    def claim_all(study):
        claimed = []
        while (trial := study.claim()) is not None:
            claimed.append(trial)
        return claimed

    with ThreadPoolExecutor(4) as pool:
        claimed = [trial for part in pool.map(claim_all, studies) for trial in part]
    assert cells(claimed) == cells(studies[0].trials())
    assert len(claimed) == 30


def test_a_cell_that_stands_twice_goes_to_the_lower_number(tmp_path):
    found = space.make(small_settings({"network.kernel_size": [3], "network.stride": [2]}))
    study = Study(f"sqlite:///{tmp_path}/s.db", "a", found, 0)
    study.enqueue(found.cells)
    # Two machines that enqueue at the same moment do this.
    study._study.enqueue_trial(dict(found.cells[0]))
    assert [trial.number for trial in study.trials()] == [0, 1]
    assert study.claim().number == 0
    assert study.claim() is None
    assert [trial.number for trial in study.trials()] == [0]


def test_an_infeasible_trial_is_complete_for_optuna_and_breaks_the_constraint(tmp_path):
    found = space.make(small_settings())
    study = Study(f"sqlite:///{tmp_path}/s.db", "a", found, 0)
    study.enqueue(found.cells)
    study.tell(study.claim(), replace(COMPLETE, state="infeasible", reason="too much", over_budget_gb=3.5, dice=None))
    study.tell(study.claim(), COMPLETE)
    study.tell(study.claim(), replace(COMPLETE, state="pruned"))
    study.tell(study.claim(), replace(COMPLETE, state="failed"))
    frozen = study._study.get_trials()
    assert [trial.state.name for trial in frozen] == ["COMPLETE", "COMPLETE", "PRUNED", "FAIL", "WAITING"]
    assert frozen[0].values == [0.0, 1.0]
    assert frozen[0].constraints == {"memory_gb_over_budget": 3.5}
    assert [trial.number for trial in study._study.best_trials] == [1]
    assert study._study.metric_names == ["validation Dice", "step time (s)"]


def test_a_failed_cell_waits_again_and_a_finished_one_does_not(tmp_path):
    found = space.make(small_settings())
    study = Study(f"sqlite:///{tmp_path}/s.db", "a", found, 0)
    study.enqueue(found.cells)
    first, second = study.claim(), study.claim()
    study.tell(first, replace(COMPLETE, state="failed", reason="signal 9"))
    study.tell(second, COMPLETE)
    study.enqueue(found.cells)
    waiting = [trial.cell for trial in study.trials() if trial.is_waiting]
    assert first.cell in waiting
    assert second.cell not in waiting
    assert len(waiting) == 4


def test_what_was_declared_dead_tells_nothing(tmp_path):
    found = space.make(small_settings())
    study = Study(f"sqlite:///{tmp_path}/s.db", "a", found, 0)
    study.enqueue(found.cells)
    trial = study.claim()
    study.release(trial, "its process died")
    study.beat(trial, "a ghost", 1)
    assert not study.tell(trial, COMPLETE)
    assert cells(found for found in study.trials() if found.is_waiting) == cells(study.trials())


SAMPLED = {"network.kernel_size": {"low": 2, "high": 40, "step": 1}, "network.stride": {"low": 2, "high": 16}}


def sample(folder, has_constraint):
    """Sample 36 cells where large kernels are best and do not fit above 20; return them."""
    settings = small_settings(SAMPLED, grid_cells=100)
    study = Study(f"journal:{folder}/{has_constraint}.log", "a", space.make(settings), 0)
    proposed = []
    for _ in range(36):
        trial = study.propose(lambda cell: space.invalid(settings, cell))
        kernel, stride = trial.cell["network.kernel_size"], trial.cell["network.stride"]
        proposed.append((kernel, stride))
        over = kernel - 20.0 if has_constraint else -1.0
        study.tell(trial, replace(COMPLETE, dice=kernel / 40, over_budget_gb=over))
    return proposed, study


def test_a_sampled_space_gives_valid_new_cells(tmp_path):
    proposed, study = sample(tmp_path, has_constraint=True)
    assert len(set(proposed)) == 36
    assert all(stride <= kernel for kernel, stride in proposed)
    assert [trial.number for trial in study.trials()] != list(range(36)), "none was invalid: the test shows nothing"


def test_sampling_follows_the_constraint(tmp_path):
    def fitting(has_constraint):
        proposed, _ = sample(tmp_path, has_constraint)
        return sum(kernel <= 20 for kernel, _ in proposed[16:])

    with_constraint = fitting(has_constraint=True)
    assert with_constraint >= 2 * fitting(has_constraint=False)
    assert with_constraint >= 8


def test_an_exhausted_space_ends(tmp_path):
    settings = small_settings({"network.kernel_size": [3, 5], "network.stride": [2, 4]}, grid_cells=3)
    study = Study(f"journal:{tmp_path}/s.log", "a", space.make(settings), 0)
    proposed = []
    while (trial := study.propose(lambda cell: space.invalid(settings, cell))) is not None:
        study.tell(trial, COMPLETE)
        proposed.append(tuple(trial.cell.values()))
    assert sorted(proposed) == [(3, 2), (5, 2), (5, 4)]


def test_a_deleted_study_is_gone(storage_url):
    found = space.make(small_settings())
    study = Study(storage_url, "a", found, 0)
    study.set_identity({"train.epochs": 3})
    study.set_parent_run_id("here", "abc")
    again = Study(storage_url, "a", found, 0)
    assert again.identity == {"train.epochs": 3}
    assert (again.parent_run_id("here"), again.parent_run_id("elsewhere")) == ("abc", None)
    delete(storage_url, "a")
    delete(storage_url, "a")
    assert Study(storage_url, "a", found, 0).identity is None


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "sqlite:////proc/nothing/here.db",
        "journal:/proc/nothing/x.log",
        "postgresql://me:secret@127.0.0.1:9/db",
        "mysql://me@h/db",
    ],
)
def test_a_storage_that_does_not_open_is_named_without_its_password(url):
    with pytest.raises(UsageError, match=r"sweep\.storage") as caught:
        storage.open_storage(url)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_password_may_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("STUDY_FILE", str(tmp_path / "x.db"))
    _, lock = storage.open_storage("sqlite:///$STUDY_FILE")
    assert lock == tmp_path / ".x.db.lock"
    assert (tmp_path / "x.db").exists()
