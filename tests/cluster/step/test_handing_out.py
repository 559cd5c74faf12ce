"""The handing out over a pool that computes at once, in this process, on machines that are only names."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide import config
from gigaslide.cluster.step import handing_out, machines
from gigaslide.cluster.step.engine import ClusterStreamed
from gigaslide.cluster.step.handing_out import Task
from gigaslide.cluster.step.machines import Division, Machine
from gigaslide.cluster.step.pieces import Job
from gigaslide.cluster.step.worker import Worker
from gigaslide.network import unet
from gigaslide.network.describe import describe
from gigaslide.streaming.engine import StepResult
from gigaslide.streaming.plan import Plan, segments
from gigaslide.streaming.streamed import Streamed
from tests.networks import randomise
from tests.streaming.areas import random_area

NETWORK = config.load(Path(__file__).parents[3] / "params.yaml").network.model_copy(
    update={"kernel_size": 3, "stride": 2}
)
CUTS = ("down1_activation", "core_activation")
PLAN = Plan("test", CUTS, {s.output: (8, 12) for s in segments(describe(NETWORK), CUTS)} | {CUTS[0]: (16, 20)})
WEIGHTS = 0.6, 0.4
SHAPE = (37, 50)


_worker: list[Worker] = []


def worker(recipe: Any) -> Worker:
    """One for all tests, which would trace its functions anew; this process has chosen its threads long ago."""
    if not _worker:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gigaslide.streaming.devices.set_threads", lambda *threads: None)
            _worker.append(Worker(recipe))
    return _worker[0]


class Names:
    """Computes a task when it is handed out, and tells of it in another order: the last one first."""

    threads = 1

    def __init__(self, workers: Sequence[int]) -> None:
        self._machines = [Machine(f"m{n}", count, 3 * count) for n, count in enumerate(workers)]
        self._values: list[tuple[Any, str]] = []
        self._there: set[tuple[int, str]] = set()
        self.sent_bytes = 0
        self.most_waiting: dict[str, int] = {}
        self.tasks: list[tuple[str, Task]] = []

    @property
    def workers(self) -> int:
        return sum(machine.workers for machine in self._machines)

    def machines(self) -> list[Machine]:
        return self._machines

    def put(self, value: Any) -> int:
        return self._keep(value, "driver")

    def _keep(self, value: Any, machine: str) -> int:
        self._values.append((value, machine))
        return len(self._values) - 1

    def submit(self, machine: str, task: Task, recipe: int, visit: int) -> list[int]:
        self.tasks.append((machine, task))
        for bundle in task.bundles:
            values, home = self._values[bundle]
            if machine != home and (bundle, machine) not in self._there:
                self._there.add((bundle, machine))
                self.sent_bytes += sum(value.nbytes for value in values)
        here, area = worker(self._values[recipe][0]), self._values[visit][0]
        bundles = [self._values[bundle][0] for bundle in task.bundles]
        found = here.compute(area, task.jobs, task.places, task.cuts, bundles)
        assert len(found) == task.values
        return [self._keep(value, machine) for value in found]

    def wait(self, results: Sequence[int]) -> list[int]:
        for machine in self._machines:
            waiting = sum(self._values[result][1] == machine.name for result in results)
            self.most_waiting[machine.name] = max(waiting, self.most_waiting.get(machine.name, 0))
        return [results[-1]]

    def get(self, result: int) -> Any:
        return self._values[result][0]

    def cancel(self, result: int) -> None:
        pass


def network() -> Any:
    model = unet.build(NETWORK, 0)
    randomise(model, 0)
    return model


@cache
def expected() -> StepResult:
    return Streamed(network(), PLAN, *WEIGHTS).step(random_area(0, *SHAPE))


@settings(max_examples=8)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=5), st.sampled_from([1, 2, 32]))
def test_machines_change_no_bit_and_get_no_more_than_they_should(workers: list[int], most: int) -> None:
    pool = Names(workers)
    engine = ClusterStreamed(pool, network(), PLAN, *WEIGHTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machines, "_MOST_TILES", most)
        found = engine.step(random_area(0, *SHAPE))
    assert (found.loss, found.soft_dice) == (expected().loss, expected().soft_dice)
    assert all(np.array_equal(a, b) for a, b in zip(found.gradients, expected().gradients, strict=True))
    assert engine.moved_bytes == pool.sent_bytes
    assert (pool.sent_bytes > 0) == (len(workers) > 1)
    for machine in pool.machines():
        assert pool.most_waiting.get(machine.name, 0) <= machine.ahead
    assert {name for name, _ in pool.tasks} == {machine.name for machine in pool.machines()}
    assert max(len(task.jobs) for _, task in pool.tasks) <= most


def test_margins_travel_and_not_whole_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    for are_cut in (True, False):
        pool = Names([1, 1])
        if not are_cut:
            monkeypatch.setattr(handing_out.Handing, "_elsewhere", lambda *piece: iter(()))
        found = ClusterStreamed(pool, network(), PLAN, *WEIGHTS).step(random_area(0, *SHAPE))
        assert all(np.array_equal(a, b) for a, b in zip(found.gradients, expected().gradients, strict=True))
        sent.append(pool.sent_bytes)
    assert sent[0] < 0.6 * sent[1]


def test_a_segment_without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = ("down1", "down1_activation")
    plan = Plan("test", cuts, dict.fromkeys((*cuts, describe(NETWORK).output.name), (16, 20)))
    monkeypatch.setattr("tests.cluster.step.test_handing_out._worker", [])
    found = ClusterStreamed(Names([1, 1]), network(), plan, *WEIGHTS).step(random_area(0, *SHAPE))
    alone = Streamed(network(), plan, *WEIGHTS).step(random_area(0, *SHAPE))
    assert all(np.array_equal(a, b) for a, b in zip(found.gradients, alone.gradients, strict=True))


def test_what_a_task_makes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing_out, "MADE_BYTES", 10)
    pool = Names([1])
    ClusterStreamed(pool, network(), PLAN, *WEIGHTS).step(random_area(0, *SHAPE))
    assert {len(task.jobs) for _, task in pool.tasks if task.made} == {1}
    assert max(len(task.jobs) for _, task in pool.tasks) > 1  # sums of the loss are small


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 300))
def test_the_parts_of_the_machines_are_runs_as_large_as_their_workers(workers: list[int], tiles: int) -> None:
    division = Division([Machine(str(n), count, count) for n, count in enumerate(workers)])
    owners = [division.of(tile, tiles) for tile in range(tiles)]
    assert owners == sorted(owners)
    for number, count in enumerate(workers):
        assert abs(owners.count(number) - tiles * count / sum(workers)) <= 1
    jobs = [Job("forward", 0, tile) for tile in range(tiles)]
    taken = []
    for share in division.shares(jobs, tiles):
        sizes = []
        while share.left:
            some = share.take(32)
            sizes.append(len(some))
            taken += some
        assert sizes == sorted(sizes, reverse=True)
    assert taken == jobs
