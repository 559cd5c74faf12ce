"""Tasks on machines of Ray's own test cluster, some of which are lost."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gigaslide.errors import GigaslideError, SlideError
from gigaslide.stages.workers import ProcessDiedError
from tests.cluster.lock import SOON_MISSED, one_cluster_at_a_time

ray = pytest.importorskip("ray", reason="NOT TESTED over a cluster: Ray is not installed (gigaslide[cluster])")
from ray.cluster_utils import Cluster  # noqa: E402

from gigaslide.cluster import connection, tasks  # noqa: E402
from gigaslide.cluster.tasks import Need, NotSharedError  # noqa: E402

ONE = Need(1, 100_000_000)
MACHINE = {"num_cpus": 1, "memory": 1_000_000_000, "object_store_memory": 100_000_000}


class OddError(Exception):
    """Cannot be put together again from its text."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def work(job: tuple[str, Path], turn: Any) -> Any:
    """Note the process, and do what the job says."""
    what, folder = job
    (folder / f"{what}-{os.getpid()}-{time.monotonic_ns()}").touch()
    if what == "raises":
        raise SlideError("the reason")
    if what == "odd":
        raise OddError(1, 2)
    if what == "lock":
        return threading.Lock()  # does not travel
    if what == "dies" or (what == "dies once" and len(list(folder.glob(f"{what}-*"))) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "tells":
        turn(0.5)
        wait_for(folder / "seen")
    if what == "waits":
        wait_for(folder / "go on")
    if what == "machine dies":
        if not (folder / ray.get_runtime_context().get_node_id()).exists():
            (folder / "gone").touch()
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        wait_for(folder / "gone")
    if what == "takes time":
        begun = time.monotonic()
        time.sleep(0.3)
        return begun, time.monotonic()
    return os.getpid(), turn.threads(), Path.cwd()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def tries(folder: Path, what: str) -> list[str]:
    return [path.name for path in folder.glob(f"{what}-*")]


def run(folder: Path, names: list[str], need: Need = ONE, **more: Any) -> dict[int, Any]:
    jobs = [(name, folder) for name in names]
    return {outcome.number: outcome for outcome in tasks.run_all(work, jobs, need, folder, **more)}


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two machines of one core."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with one_cluster_at_a_time(tmp_path_factory):
        found = Cluster(initialize_head=True, head_node_args={**MACHINE, "_system_config": SOON_MISSED})
        found.add_node(**MACHINE)
        with connection.connected(found.address, 1, 1, 0):
            yield found
        found.shutdown()


# In this order: a machine is lost on the way.


def test_every_job_has_its_own_outcome(tmp_path: Path) -> None:
    outcomes = run(tmp_path, ["fine", "raises", "fine", "odd", "lock", "fine"])
    assert sorted(outcomes) == list(range(6))
    assert [type(outcomes[number].error) for number in (0, 2, 5)] == [type(None)] * 3
    assert all(outcomes[number].value[1:] == (1, Path.cwd()) for number in (0, 2, 5))
    assert all(0 <= outcomes[number].time_s < 60 for number in (0, 2, 5))
    assert isinstance(outcomes[1].error, SlideError)
    assert str(outcomes[1].error) == "the reason"
    assert "OddError: 1 and 2" in str(outcomes[3].error)
    assert isinstance(outcomes[4].error, TypeError)
    # What raises is not done again.
    assert [len(tries(tmp_path, what)) for what in ("raises", "odd", "lock")] == [1, 1, 1]
    assert not list(tmp_path.glob(".cluster-*"))


def test_processes_are_kept_for_the_next_job(tmp_path: Path) -> None:
    outcomes = run(tmp_path, ["fine"] * 8)
    assert len({outcome.value[0] for outcome in outcomes.values()}) <= 2


def test_a_job_that_ends_its_process_again_and_again_ends_alone(tmp_path: Path) -> None:
    asked: list[int] = []
    names = ["dies", "fine", "dies once", "fine"]

    def begin(number: int) -> Any:
        asked.append(number)
        return names[number], tmp_path

    outcomes = run(tmp_path, names, begin=begin)
    assert [type(outcomes[number].error) for number in range(4)] == [
        ProcessDiedError,
        type(None),
        type(None),
        type(None),
    ]
    assert len(tries(tmp_path, "dies")) == tasks.TRIES
    assert len(tries(tmp_path, "dies once")) == 2
    assert sorted(asked) == [0] * tasks.TRIES + [1, 2, 2, 3]
    assert asked[:4] == [0, 1, 2, 3] or asked.index(0, 1) > asked.index(2)  # behind the others


def test_how_far_a_job_is_comes_through_while_it_is_under_way(tmp_path: Path) -> None:
    shown: list[float] = []

    def show(done: float) -> None:
        shown.append(done)
        if done == 0.5:
            (tmp_path / "seen").touch()

    started = time.monotonic()
    outcomes = run(tmp_path, ["tells"], show=show)
    assert time.monotonic() - started < 50  # the job waits for 60 s if nobody is told
    assert outcomes[0].error is None
    assert 0.5 in shown
    assert shown[-1] == 1
    assert max(shown) == 1


def test_no_more_at_once_than_are_asked_for(tmp_path: Path) -> None:
    outcomes = run(tmp_path, ["takes time"] * 3, most=1)
    times = sorted(outcome.value for outcome in outcomes.values())
    assert all(before[1] <= after[0] for before, after in pairwise(times))


def test_what_no_machine_has_is_refused(tmp_path: Path) -> None:
    for need in (Need(2, 1), Need(1, 1_100_000_000)):
        with pytest.raises(GigaslideError, match=r"the largest of the cluster has 1 and 1\.00 GB"):
            run(tmp_path, ["fine"], need)
    assert not list(tmp_path.iterdir())


def test_a_machine_that_does_not_see_the_folder_ends_the_run(tmp_path: Path) -> None:
    def begin(number: int) -> Any:
        (sign,) = tmp_path.glob(".cluster-*")
        sign.unlink()
        return "fine", tmp_path

    with pytest.raises(NotSharedError, match=f"should see the folder {tmp_path} under that path"):
        run(tmp_path, ["fine"], begin=begin)
    assert not tries(tmp_path, "fine")


def test_what_was_on_a_machine_that_is_lost_is_done_again_elsewhere(tmp_path: Path) -> None:
    (tmp_path / ray.get_runtime_context().get_node_id()).touch()  # that of this process stays
    outcomes = run(tmp_path, ["machine dies"] * 4)
    assert [outcomes[number].error for number in range(4)] == [None] * 4
    assert len(tries(tmp_path, "machine dies")) == 5
    deadline = time.monotonic() + 60
    while len(tasks.machines()) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(tasks.machines()) == 1


def test_a_machine_that_joins_gets_jobs(cluster: Any, tmp_path: Path) -> None:
    names = ["waits", "waits"]
    joined: list[Any] = []

    def show(done: float) -> None:
        if not joined:
            joined.append(cluster.add_node(**MACHINE))
        if len(tries(tmp_path, "waits")) == 2:  # both at once: two machines
            (tmp_path / "go on").touch()

    outcomes = run(tmp_path, names, show=show)
    assert len({outcome.value[0] for outcome in outcomes.values()}) == 2


def test_no_jobs(tmp_path: Path) -> None:
    assert run(tmp_path, []) == {}
