import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gigaslide.errors import SlideError
from gigaslide.machine import usable_threads
from gigaslide.stages.workers import ProcessDiedError, run_all


def square(job, progress):
    progress(0.5)
    return job * job


def misbehave(job, progress):
    if job == "raises":
        raise SlideError("the reason")
    if job == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if job == "slow":
        time.sleep(1)
    return os.getpid()


def threads_when_others_are_done(job, turn):
    """How many threads there are at first, and, for the one that waits, once it is the last."""
    first = turn.threads()
    deadline = time.monotonic() + 60
    while job == "waits" and turn.threads() < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    return first, turn.threads()


def by_number(outcomes):
    return {outcome.number: outcome for outcome in outcomes}


def test_all_jobs_are_done_and_progress_ends_at_their_number():
    shown = []
    outcomes = by_number(run_all(square, [1, 2, 3, 4, 5], 2, shown.append))
    assert [outcomes[number].value for number in range(5)] == [1, 4, 9, 16, 25]
    assert all(outcome.error is None and outcome.time_s >= 0 for outcome in outcomes.values())
    assert shown == sorted(shown)
    assert shown[-1] == 5


def test_workers_without_a_task_are_threads_of_the_others():
    outcomes = by_number(run_all(threads_when_others_are_done, ["waits"], 4))
    assert outcomes[0].value == (4, 4)
    outcomes = by_number(run_all(threads_when_others_are_done, ["waits", "short", "short", "short"], 4))
    assert outcomes[0].value[1] == 4
    assert min(outcomes[number].value[0] for number in range(4)) >= 1


def test_no_jobs():
    assert list(run_all(square, [], 2)) == []


def test_an_error_is_an_outcome_and_the_others_go_on():
    outcomes = by_number(run_all(misbehave, ["fine", "raises", "fine"], 2))
    assert isinstance(outcomes[1].error, SlideError)
    assert str(outcomes[1].error) == "the reason"
    assert outcomes[0].error is None
    assert outcomes[2].error is None


def test_a_process_that_dies_takes_no_other_task_along():
    outcomes = by_number(run_all(misbehave, ["slow", "dies", "slow", "fine"], 2))
    assert [type(outcomes[number].error) for number in range(4)] == [
        type(None),
        ProcessDiedError,
        type(None),
        type(None),
    ]
    assert os.getpid() not in {outcomes[number].value for number in (0, 2, 3)}


def test_workers_end_with_their_parent(tmp_path):
    code = (
        "import tests.stages.test_workers as t\n"
        "if __name__ == '__main__':\n"
        "    list(t.run_all(t.wait_for_ever, [None, None], 2))\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    root = Path(__file__).parents[2]
    parent = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)})
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("*.pid"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = [psutil.Process(int(path.stem)) for path in tmp_path.glob("*.pid")]
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    gone, alive = psutil.wait_procs(workers, timeout=10)
    assert len(gone) == 2
    assert alive == []


def wait_for_ever(job, progress):
    Path(f"{os.getpid()}.pid").touch()
    time.sleep(1000)


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_cores_are_those_this_process_may_use():
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); "
    code += "from gigaslide.machine import usable_threads; print(usable_threads())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
    assert usable_threads() >= 1
