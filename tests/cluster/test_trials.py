"""Trials on the machines of Ray's own test cluster: those that train nothing, so that it takes seconds."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gigaslide.errors import GigaslideError
from gigaslide.sweep import space
from gigaslide.sweep.study import Study
from gigaslide.sweep.verdict import Here
from tests.cluster.lock import one_cluster_at_a_time
from tests.sweep.worker import COMMAND, small_settings, work

ray = pytest.importorskip("ray", reason="NOT TESTED over a cluster: Ray is not installed (gigaslide[cluster])")
from ray.cluster_utils import Cluster  # noqa: E402

from gigaslide.cluster import connection, trials  # noqa: E402
from gigaslide.cluster.trial_watch import Watch  # noqa: E402

ROOT = Path(__file__).parents[2]
EIGHT = {"network.kernel_size": [3, 5, 7, 9], "network.stride": [2, 3]}
NAMES = [f"k{kernel}-s{stride}" for kernel in (3, 5, 7, 9) for stride in (2, 3)]
MEMORY_BYTES = 4_000_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster whose first machine has no core."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    system = {
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 4,
        "health_check_initial_delay_ms": 500,
    }
    with one_cluster_at_a_time(tmp_path_factory):
        found = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": 100_000_000, "_system_config": system},
        )
        with connection.connected(found.address, 0, 1, 0):
            yield found
        found.shutdown()


class Fake:
    """What trials do, the machines for them, and what they have done."""

    def __init__(self, cluster: Any, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self.folder, self.log, self.url = folder, folder / "log.txt", f"journal:{folder}/study.log"
        self._cluster, self._environment = cluster, environment
        environment.chdir(folder)
        environment.setenv("FAKE_LOG", str(self.log))
        self.machines: list[Any] = []

    def join(self, cores: int = 1, **do: Any) -> Any:
        """Add a machine on which trials do what is said."""
        found = {name.replace("_", "-"): what for name, what in do.items()}
        self._environment.setenv("FAKE_TRIALS", json.dumps(found))
        self.machines.append(
            self._cluster.add_node(num_cpus=cores, object_store_memory=100_000_000, memory=MEMORY_BYTES)
        )
        return self.machines[-1]

    def work(self, settings: Any, **how: Any) -> Any:
        return work(settings, self.url, self.folder, places=trials.Machines(ray, settings, COMMAND), **how)

    def events(self, word: str = "start") -> list[tuple[str, float, int]]:
        lines = [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [(name, float(when), int(pid)) for what, name, when, pid in lines if what == word]

    def most_at_once(self) -> int:
        ends = {pid: when for _, when, pid in self.events("end")}
        starts = self.events()
        return max(sum(begin <= when < ends[pid] for _, begin, pid in starts) for _, when, _ in starts)


@pytest.fixture
def fake(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    found = Fake(cluster, tmp_path, monkeypatch)
    yield found
    for machine in found.machines:
        cluster.remove_node(machine, allow_graceful=False)
    wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 1)


def names(events: list[tuple[str, float, int]]) -> list[str]:
    return sorted(name for name, _, _ in events)


def slow(epoch_s: float) -> dict[str, Any]:
    return {name: {"epoch_s": epoch_s} for name in NAMES}


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def lose_machine_of(pid: int, machines: list[Any]) -> None:
    """Kill with -9 all of Ray on the machine that a trial runs on; the trial ends by itself."""
    ancestors = [process.pid for process in psutil.Process(pid).parents()]
    (raylet,) = [
        process
        for machine in machines
        for info in machine.all_processes["raylet"]
        if (process := psutil.Process(info.process.pid)).pid in ancestors
    ]
    for process in [raylet, *raylet.children()]:
        process.kill()
    wait_for(lambda: not psutil.pid_exists(pid))


def test_eight_trials_over_two_machines_of_which_one_is_lost_all_end_once(fake: Fake) -> None:
    lost = []

    def halfway() -> set[int]:
        return {pid for _, _, pid in fake.events("epoch1")} - {pid for _, _, pid in fake.events("epoch2")}

    def lose() -> None:
        if not lost and fake.events("end") and halfway():
            lost.append(halfway().pop())
            lose_machine_of(lost[0], fake.machines)

    for _ in range(2):
        fake.join(**slow(0.4))
    settings = small_settings(EIGHT)
    notes = fake.work(settings, looking=lose)
    assert len(lost) == 1
    assert {result.state for result in notes.results.values()} == {"complete"}
    assert names(fake.events("end")) == NAMES
    assert len(fake.events()) == 9, "one of them twice: it was lost"
    # It went on where it was.
    epochs = [(name, epoch) for epoch in range(4) for name, _, _ in fake.events(f"epoch{epoch}")]
    assert Counter(epochs).most_common(1)[0][1] == 1
    study = Study(fake.url, "test", space.make(settings), 0)
    assert [trial.result and trial.result.state for trial in study.trials()] == ["complete"] * 8
    assert len(study._frozen()) == 8


def test_a_machine_that_joins_late_gets_trials(fake: Fake) -> None:
    fake.join(**slow(0.25))

    def add() -> None:
        if len(fake.machines) == 1 and fake.events():
            fake.join(**slow(0.25))

    space_ = {"network.kernel_size": [3, 5], "network.stride": [2, 3]}
    fake.work(small_settings(space_), looking=add)
    assert names(fake.events("end")) == NAMES[:4]
    assert fake.most_at_once() == 2


def test_what_a_trial_dies_of_is_what_it_is_without_ray(fake: Fake) -> None:
    fake.join(k3_s2={"dies": "signal"}, k5_s2={"dies": "error"}, k5_s4={"dies": "memory"})
    results = fake.work(small_settings()).results
    assert (results[3, 2].state, results[3, 2].reason) == ("failed", "signal 9 (SIGKILL) ended it")
    assert "ValueError: the loss is purple" in results[5, 2].reason
    assert (results[5, 4].state, results[5, 4].over_budget_gb > 0) == ("infeasible", True)
    assert {results[7, 2].state, results[7, 4].state} == {"complete"}
    assert len(fake.events()) == 5


def test_a_large_machine_has_several_trials_on_cores_of_their_own_as_far_as_its_memory_goes(fake: Fake) -> None:
    fake.join(cores=2, **slow(0.2))
    space_ = {"network.kernel_size": [3, 5], "network.stride": [2]}
    fake.work(small_settings(space_, jobs=2))
    assert fake.most_at_once() == 2
    requests = [json.loads(file.read_text()) for file in fake.folder.glob("trials/*/trial.json")]
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) >= 2:
        assert len({core for request in requests for core in request["cores"]}) == 2
    # Predicted for 4096 x 4096 whole: 2.4 to 2.8 GB; two do not fit 4 GB together.
    fake.log.unlink()
    settings = small_settings(space_, jobs=2, plan="whole", name="large")
    fake.work(settings, name="large", here=Here((4096, 4096), 3, MEMORY_BYTES, 2))
    assert names(fake.events("end")) == ["k3-s2", "k5-s2"]
    assert fake.most_at_once() == 1


def test_machines_are_as_large_as_they_say(fake: Fake, cluster: Any) -> None:
    with pytest.raises(GigaslideError, match="no machine of the cluster has a core"):
        trials.Machines(ray, small_settings())
    fake.join(cores=4)
    assert trials.Machines(ray, small_settings()).threads == 4
    fake.join(cores=2)
    found = trials.Machines(ray, small_settings())
    assert (found.threads, found.free_bytes()) == (2, MEMORY_BYTES)
    notes = fake.work(small_settings(plan="whole"), here=Here((16000, 64000), 3, found.free_bytes(), 2, found.name))
    assert all(
        "and 4.00 GB are free on the largest machine of the cluster" in result.reason
        for result in notes.results.values()
    )


def remote(fake: Fake, project: Path | None = None, command: Any = COMMAND) -> trials.RemoteTrial:
    (fake.folder / "one").mkdir()
    arguments = project or fake.folder, Path("one"), small_settings(), {}, 1, command
    return trials.RemoteTrial(ray, {"num_cpus": 1}, Path("one"), arguments)


def test_a_trial_that_takes_its_machine_along_every_time_ends(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_MOST_LOSSES", 2)
    fake.join()
    code = f"import os; open({str(fake.log)!r}, 'a').write(f'start - 0 {{os.getpid()}}\\n'); os.kill(os.getppid(), 9)"
    found = remote(fake, command=[sys.executable, "-c", code])
    wait_for(found.ended)
    ending = found.ended()
    assert ending is not None
    assert ending.kind == "error"
    assert "its machine was lost 3 times" in ending.message
    assert len(fake.events()) == 3


def test_a_machine_that_does_not_share_the_folder_is_named(fake: Fake, tmp_path: Path) -> None:
    fake.join()
    found = remote(fake, project=tmp_path / "elsewhere")
    with pytest.raises(GigaslideError, match=r"elsewhere/one is not there on .*at the same path"):
        wait_for(found.ended)


def test_stopped_it_is_gone_whether_it_runs_or_waits(fake: Fake) -> None:
    waiting = remote(fake)
    assert (waiting.ended(), waiting.where, waiting.seconds) == (None, None, 0.0)
    waiting.stop()
    assert waiting.ended() is not None
    (fake.folder / "one").rmdir()
    fake.join(**{name: {"epoch_s": 30.0} for name in ("k11_s4",)})
    running = remote(fake)
    wait_for(lambda: running.ended() is None and fake.events())
    assert running.where
    ((_, _, pid),) = fake.events()
    running.stop()
    assert not psutil.pid_exists(pid)
    assert running.ended() is not None


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGKILL])
def test_stopped_or_killed_it_takes_its_trials_along_and_the_next_one_goes_on(
    fake: Fake, cluster: Any, signal_: signal.Signals
) -> None:
    for _ in range(2):
        fake.join(**{name: {"epoch_s": 0.1} for name in NAMES} | {"k9-s3": {"epoch_s": 1.0}})
    request = {"url": fake.url, "folder": str(fake.folder), "settings": {"space": EIGHT}, "address": cluster.address}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    driver = subprocess.Popen([sys.executable, "-m", "tests.sweep.worker", json.dumps(request)], env=environment)
    wait_for(lambda: "k9-s3" in names(fake.events("epoch0")))
    (pid,) = [pid for name, _, pid in fake.events() if name == "k9-s3"]
    driver.send_signal(signal_)
    assert driver.wait(30) != 0
    if signal_ == signal.SIGINT:
        assert not psutil.pid_exists(pid)
    wait_for(lambda: not psutil.pid_exists(pid))
    assert "k9-s3" not in names(fake.events("end"))
    fake.work(small_settings(EIGHT))
    assert names(fake.events("end")) == NAMES
    assert names(fake.events("epoch0")) == NAMES


def test_cores_are_handed_out_once_while_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5, 7}, raising=False)
    first, second, third = Watch(), Watch(), Watch()
    assert first._take(4) == []
    one, two = first._take(1), second._take(3)
    assert sorted(one + two) == [2, 3, 5, 7]
    assert len(third._take(2)) == 2, "some have two trials"
    del second
    assert sorted(third._take(3)) == sorted(two)
