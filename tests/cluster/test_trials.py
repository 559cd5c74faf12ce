"""Trials on the machines of Ray's own test cluster: those that train nothing, so that it takes seconds."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from gigaslide import config
from gigaslide.errors import GigaslideError
from gigaslide.sweep import space
from gigaslide.sweep.process import Ending
from gigaslide.sweep.study import Study
from gigaslide.sweep.verdict import Here
from tests.cluster.lock import one_cluster_at_a_time
from tests.stages.project import make_project, warm_gigaslide
from tests.stages.test_train import _query
from tests.sweep.worker import COMMAND, small_settings, work

ray = pytest.importorskip("ray", reason="NOT TESTED over a cluster: Ray is not installed (gigaslide[cluster])")
from ray.cluster_utils import Cluster  # noqa: E402

from gigaslide.cluster import connection, trials  # noqa: E402
from gigaslide.cluster.trial_watch import take_cores  # noqa: E402

ROOT = Path(__file__).parents[2]
EIGHT = {"network.kernel_size": [3, 5, 7, 9], "network.stride": [2, 3]}
NAMES = [f"k{kernel}-s{stride}" for kernel in (3, 5, 7, 9) for stride in (2, 3)]
TWO = {"network.kernel_size": [3, 5], "network.stride": [2]}
MEMORY_BYTES = 4_000_000_000


class Machines:
    """The machines of a cluster, the first of which has no core; what trials do there, and what they have done."""

    def __init__(self, folder: Path) -> None:
        self.log, self._trials = folder / "log.txt", folder / "trials.json"
        os.environ.update(FAKE_LOG=str(self.log), FAKE_TRIALS=str(self._trials), RAY_USAGE_STATS_ENABLED="0")
        system = {
            "health_check_period_ms": 500,
            "health_check_failure_threshold": 4,
            "health_check_initial_delay_ms": 500,
        }
        head = {"num_cpus": 0, "object_store_memory": 100_000_000, "_system_config": system}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.joined: list[Any] = []

    def do(self, **what: Any) -> None:
        self.log.unlink(missing_ok=True)
        self._trials.write_text(json.dumps({name.replace("_", "-"): how for name, how in what.items()}))

    def join(self, cores: int = 1, gpus: int = 0) -> None:
        memory = {"object_store_memory": 100_000_000, "memory": MEMORY_BYTES}
        self.joined.append(self.cluster.add_node(num_cpus=cores, num_gpus=gpus, **memory))

    def leave(self) -> None:
        self.cluster.remove_node(self.joined.pop(), allow_graceful=False)
        self.wait_until_known()

    def wait_until_known(self) -> None:
        wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 1 + len(self.joined))

    def lose_machine_of(self, pid: int) -> None:
        """Kill with -9 all of Ray on the machine that a trial runs on; the trial ends by itself."""
        above = [process.pid for process in psutil.Process(pid).parents()]
        (lost,) = [one for one in self.joined if one.all_processes["raylet"][0].process.pid in above]
        raylet = psutil.Process(lost.all_processes["raylet"][0].process.pid)
        for process in [raylet, *raylet.children()]:
            process.kill()
        self.joined.remove(lost)
        wait_for(lambda: not psutil.pid_exists(pid))

    def events(self, word: str = "start") -> list[tuple[str, float, int]]:
        lines = [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [(name, float(when), int(pid)) for what, name, when, pid in lines if what == word]

    def most_at_once(self) -> int:
        ends = {pid: when for _, when, pid in self.events("end")}
        starts = self.events()
        return max(sum(begin <= when < ends[pid] for _, begin, pid in starts) for _, when, _ in starts)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with one_cluster_at_a_time(tmp_path_factory):
        found = Machines(tmp_path_factory.mktemp("machines"))
        with connection.connected(found.cluster.address, 0, 1, 0):
            yield found
        found.cluster.shutdown()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: Machines) -> Path:
    monkeypatch.chdir(tmp_path)
    machines.do()
    return tmp_path


def run(settings: Any, folder: Path, **how: Any) -> Any:
    places = trials.Machines(ray, settings, COMMAND)
    return work(settings, f"journal:{folder}/study.log", folder, places=places, **how)


def remote(folder: Path, project: Path | None = None, command: Any = COMMAND) -> trials.RemoteTrial:
    one = folder / "one"
    one.mkdir(exist_ok=True)
    arguments = project or folder, Path("one"), small_settings(), {}, 1, command
    return trials.RemoteTrial(ray, {"num_cpus": 1}, Path("one"), arguments)


def names(events: list[tuple[str, float, int]]) -> list[str]:
    return sorted(name for name, _, _ in events)


def slow(epoch_s: float) -> dict[str, Any]:
    return {name: {"epoch_s": epoch_s} for name in NAMES}


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


# In this order: machines come and go as the module goes on.


def test_without_a_machine_a_trial_waits_and_can_be_stopped_and_a_sweep_says_so(folder: Path) -> None:
    waiting = remote(folder)
    assert (waiting.ended(), waiting.where, waiting.seconds) == (None, None, 0.0)
    waiting.stop()
    assert waiting.ended() is not None
    with pytest.raises(GigaslideError, match="no machine of the cluster has a core"):
        trials.Machines(ray, small_settings())


def test_stopped_it_is_gone(machines: Machines, folder: Path) -> None:
    machines.join()
    machines.do(k11_s4={"epoch_s": 30.0})
    running = remote(folder)
    wait_for(lambda: running.ended() is None and machines.events())
    assert running.where
    ((_, _, pid),) = machines.events()
    running.stop()
    assert not psutil.pid_exists(pid)
    assert running.ended() is not None


def test_what_a_trial_dies_of_is_what_it_is_without_ray(machines: Machines, folder: Path) -> None:
    machines.do(k3_s2={"dies": "signal"}, k5_s2={"dies": "error"}, k5_s4={"dies": "memory"})
    results = run(small_settings(), folder).results
    assert (results[3, 2].state, results[3, 2].reason) == ("failed", "signal 9 (SIGKILL) ended it")
    assert "ValueError: the loss is purple" in results[5, 2].reason
    assert (results[5, 4].state, results[5, 4].over_budget_gb > 0) == ("infeasible", True)
    assert {results[7, 2].state, results[7, 4].state} == {"complete"}
    assert len(machines.events()) == 5


def test_a_trial_that_takes_its_machine_along_every_time_ends(
    machines: Machines, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_MOST_LOSSES", 2)
    code = f"import os; open({str(machines.log)!r}, 'a').write('start - 0 0\\n'); os.kill(os.getppid(), 9)"
    found = remote(folder, command=[sys.executable, "-c", code])
    wait_for(found.ended)
    ending = found.ended()
    assert ending is not None
    assert ending.kind == "error"
    assert "its machine was lost 3 times" in ending.message
    assert len(machines.events()) == 3


def test_a_machine_that_does_not_share_the_folder_is_named(folder: Path) -> None:
    found = remote(folder, project=folder / "elsewhere")
    with pytest.raises(GigaslideError, match=r"elsewhere/one is not there on .*at the same path"):
        wait_for(found.ended)


def test_a_machine_that_joins_late_gets_trials(machines: Machines, folder: Path) -> None:
    machines.do(k3_s2={"others": 2}, k5_s2={"others": 2})
    assert len(machines.joined) == 1

    def add() -> None:
        if len(machines.joined) == 1 and machines.events():
            machines.join()

    assert len(run(small_settings(TWO), folder, looking=add).results) == 2
    assert machines.most_at_once() == 2


def test_killed_with_9_it_takes_its_trials_along_and_the_next_one_goes_on(machines: Machines, folder: Path) -> None:
    machines.do(k5_s4={"others": 99})
    url = f"journal:{folder}/study.log"
    request = {"url": url, "folder": str(folder), "settings": {}, "address": machines.cluster.address}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    driver = subprocess.Popen([sys.executable, "-m", "tests.sweep.worker", json.dumps(request)], env=environment)
    wait_for(lambda: len(machines.events("end")) == 4 and "k5-s4" in names(machines.events("epoch0")))
    study = Study(url, "test", space.make(small_settings()), 0)
    wait_for(lambda: sum(trial.result is not None for trial in study.trials()) == 4)
    (pid,) = [pid for name, _, pid in machines.events() if name == "k5-s4"]
    driver.send_signal(signal.SIGKILL)
    driver.wait(30)
    wait_for(lambda: not psutil.pid_exists(pid))
    assert "k5-s4" not in names(machines.events("end"))
    run(small_settings(), folder)
    cells = ["k3-s2", "k5-s2", "k5-s4", "k7-s2", "k7-s4"]
    assert names(machines.events("end")) == cells
    assert names(machines.events("epoch0")) == cells, "nothing begins anew"


def test_eight_trials_over_two_machines_of_which_one_is_lost_all_end_once(machines: Machines, folder: Path) -> None:
    machines.do(**slow(0.3))
    lost: list[int] = []

    def halfway() -> set[int]:
        return {pid for _, _, pid in machines.events("epoch1")} - {pid for _, _, pid in machines.events("epoch2")}

    def lose() -> None:
        if not lost and machines.events("end") and (pids := halfway()):
            lost.append(pids.pop())
            machines.lose_machine_of(lost[0])

    assert len(machines.joined) == 2
    settings = small_settings(EIGHT)
    notes = run(settings, folder, looking=lose)
    assert len(lost) == 1
    assert len(machines.joined) == 1
    assert {result.state for result in notes.results.values()} == {"complete"}
    assert names(machines.events("end")) == NAMES
    assert len(machines.events()) == 9, "one of them twice: it was lost"
    # It went on where it was.
    epochs = Counter((name, epoch) for epoch in range(4) for name, _, _ in machines.events(f"epoch{epoch}"))
    assert len(epochs) == 4 * 8
    assert set(epochs.values()) == {1}
    study = Study(f"journal:{folder}/study.log", "test", space.make(settings), 0)
    assert [trial.result and trial.result.state for trial in study.trials()] == ["complete"] * 8
    assert len(study._frozen()) == 8


def test_a_large_machine_has_several_trials_on_cores_of_their_own_as_far_as_its_memory_goes(
    machines: Machines, folder: Path
) -> None:
    machines.wait_until_known()
    machines.join(cores=4, gpus=2)
    settings = small_settings(TWO, jobs=2, plan="whole")
    places = trials.Machines(ray, settings)
    assert (places.threads, places.free_bytes()) == (1, MEMORY_BYTES), "the smaller one decides of the cores"
    assert places._gpus == 0, "the smaller one has none"
    refused = run(settings, folder, here=Here((16000, 64000), 3, places.free_bytes(), 1, places.name)).results
    assert all("4.00 GB are free on the largest machine of the cluster" in one.reason for one in refused.values())
    machines.joined.reverse()
    machines.leave()
    places = trials.Machines(ray, settings)
    assert (places.threads, places._cores, places._gpus) == (4, 2, 1)

    machines.do(k3_s2={"others": 2}, k5_s2={"others": 2})
    run(small_settings(TWO, jobs=2, name="two"), folder, name="two")
    assert machines.most_at_once() == 2
    requests = [json.loads(file.read_text()) for file in folder.glob("trials/*/trial.json")]
    assert len(requests) == 2
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 4:
        assert len({core for request in requests for core in request["cores"]}) == 4
    # Predicted for 4096 x 4096 whole: 2.4 to 2.8 GB; two do not fit 4 GB together.
    machines.do(**slow(0.2))
    run(settings, folder, name="large", here=Here((4096, 4096), 3, MEMORY_BYTES, 4))
    assert names(machines.events("end")) == ["k3-s2", "k5-s2"]
    assert machines.most_at_once() == 1


@pytest.mark.slow
def test_the_command_trains_for_real(machines: Machines, folder: Path) -> None:
    values = {"train.epochs": 1}
    make_project(folder, sweep={"space": {"network.kernel_size": [5]}, "values": values})
    done = warm_gigaslide(folder, "sweep", "--cluster", machines.cluster.address)
    assert done.returncode == 0, done.stderr
    assert "recommended: kernel_size 5" in done.stdout
    (row,) = json.loads((folder / "results/sweep/trials.json").read_text())
    assert (row["state"], row["epochs"], row["dice"] > 0) == ("complete", 1, True)
    trial = config.load(folder / "results/sweep/trials/kernel-stride/kernel_size-5/params.yaml")
    assert trial.cluster.address is None
    assert [status for (status,) in _query(folder, "select status from runs")] == ["FINISHED"] * 2


def test_a_machine_that_runs_out_of_memory_is_no_lost_machine(
    machines: Machines, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.leave()
    assert machines.joined == []
    # Of what the machine has: so it is full at once.
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.01")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    machines.join()
    machines.do(k11_s4={"epoch_s": 30.0})
    found = remote(folder)
    wait_for(found.ended)
    assert found.ended() == Ending("out of memory", "its machine ran out of memory, and Ray ended it")


def test_cores_are_handed_out_once_while_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5, 7}, raising=False)
    with ExitStack() as first, ExitStack() as third:
        assert take_cores(4, first) == []
        one = take_cores(1, first)
        with ExitStack() as second:
            two = take_cores(3, second)
            assert sorted(one + two) == [2, 3, 5, 7]
            assert len(take_cores(2, third)) == 2, "some have two trials"
        assert sorted(take_cores(3, third)) == sorted(two)
