"""The step over real workers, on machines of Ray's own test cluster, against `Streamed` in a process of its own."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gigaslide import config
from gigaslide.network import unet
from gigaslide.network.describe import describe
from gigaslide.streaming import devices
from gigaslide.streaming.engine import StepResult
from gigaslide.streaming.plan import Plan, segments
from gigaslide.streaming.streamed import Streamed
from tests.cluster.areas import Unreadable, Watched
from tests.cluster.lock import SOON_MISSED, one_cluster_at_a_time
from tests.networks import randomise
from tests.streaming.areas import random_area

ray = pytest.importorskip("ray", reason="NOT TESTED over a cluster: Ray is not installed (gigaslide[cluster])")
from ray.cluster_utils import Cluster  # noqa: E402

from gigaslide.cluster import connection  # noqa: E402
from gigaslide.cluster.step import pool  # noqa: E402
from gigaslide.cluster.step.engine import ClusterStreamed  # noqa: E402

NETWORK = config.load(Path(__file__).parents[3] / "params.yaml").network.model_copy(
    update={"kernel_size": 3, "stride": 2}
)
CUTS = ("down1_activation", "core_activation")
# Sizes of tiles that divide nothing.
PLAN = Plan("test", CUTS, {s.output: (8, 12) for s in segments(describe(NETWORK), CUTS)} | {CUTS[0]: (16, 20)})
SHAPE = (37, 50)
WEIGHTS = 0.6, 0.4


def network() -> Any:
    model = unet.build(NETWORK, 0)
    randomise(model, 0)
    return model


def streamed(seed: int) -> tuple[StepResult, list[Any]]:
    """What `Streamed` gives, with operations of one thread as those of the workers."""
    import tensorflow as tf

    devices.set_threads(2)
    tf.config.experimental.enable_op_determinism()
    engine, area = Streamed(network(), PLAN, *WEIGHTS), random_area(seed, *SHAPE)
    return engine.step(area), list(engine.predict(area))


@pytest.fixture(scope="module")
def expected() -> tuple[StepResult, list[Any]]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(streamed, 0).result()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of one machine of one core; objects of more than some bytes stay on the machine that made them."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    system = {"max_direct_call_object_size": 100, **SOON_MISSED}
    with one_cluster_at_a_time(tmp_path_factory):
        found = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "object_store_memory": 100_000_000, "_system_config": system},
        )
        yield found
        found.shutdown()


@pytest.fixture(scope="module")
def workers(cluster: Any) -> Iterator[pool.RayPool]:
    with connection.connected(cluster.address, 1, 1, 0):
        yield pool.RayPool(1)


@pytest.fixture(scope="module")
def engine(workers: pool.RayPool) -> ClusterStreamed:
    """One for all tests: every process would trace the functions of another one anew."""
    return ClusterStreamed(workers, network(), PLAN, *WEIGHTS)


def join(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=1, object_store_memory=100_000_000)


def watched(folder: Path, **what: Any) -> Watched:
    area = random_area(0, *SHAPE)
    return Watched(area.image, area.mask, folder=str(folder), **what)


def same(found: StepResult, expected: StepResult) -> bool:
    assert (found.loss, found.soft_dice) == (expected.loss, expected.soft_dice)
    assert all(np.abs(b).max() > 0 for b in expected.gradients)
    return all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(found.gradients, expected.gradients, strict=True)
    )


# In this order: machines join as the module goes on.


def test_one_worker_gives_the_same_bits(workers: Any, engine: Any, expected: Any, tmp_path: Path) -> None:
    assert workers.workers == 1
    area = watched(tmp_path)
    assert same(engine.step(area), expected[0])
    assert len(set(area.processes())) == 1
    found = list(engine.predict(area))
    assert [window for window, _ in found] == [window for window, _ in expected[1]]
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(found, expected[1], strict=True))
    few = list(engine.predict(area, lambda window: window.y.start == 0))
    for (window, a), (_, b) in zip(few, found, strict=True):
        assert np.array_equal(a, b if window.y.start == 0 else np.zeros_like(b))


class Joined(pool.RayPool):
    """Workers to which a machine is added in the middle of a step."""

    def __init__(self, at: int, action: Callable[[], Any]) -> None:
        super().__init__(1)
        self._left, self._action = at, action

    def submit(self, *job: Any) -> list[Any]:
        self._left -= 1
        if self._left == 0:
            self._action()
        return super().submit(*job)


def test_a_machine_that_joins_in_the_middle_of_a_step_gets_work(
    workers: Any, engine: Any, cluster: Any, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = watched(tmp_path)
    monkeypatch.setattr(engine, "_pool", Joined(3, lambda: join(cluster)))
    assert same(engine.step(jobs), expected[0])
    assert workers.workers == 2
    assert same(engine.step(jobs), expected[0])
    assert len(set(jobs.processes())) >= 2


def test_workers_killed_in_every_kind_of_sweep_change_no_bit(
    engine: Any, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gigaslide.cluster.step.machines._MOST_TILES", 1)
    counts = [len(tiles) for tiles in engine.layout(SHAPE).tiles.values()]
    counts += reversed(counts)  # there and back: forward twice, statistics; loss_backward, backward twice
    assert min(counts) > 3
    # Each kill so far is a job more.
    middles = tuple(sum(counts[: 1 + number]) + number + count // 2 for number, count in enumerate(counts[1:-1]))
    area = watched(tmp_path, kill=middles)
    assert same(engine.step(area), expected[0])
    assert len(area.processes()) == sum(counts) + len(middles)


def test_three_workers_of_which_one_is_lost_with_its_machine_and_all_it_holds(
    workers: Any, engine: Any, cluster: Any, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join(cluster)
    three = watched(tmp_path)
    assert workers.workers == 3
    assert same(engine.step(three), expected[0])
    assert len(set(three.processes())) >= 3
    (tmp_path / "lost").mkdir()
    monkeypatch.setattr("gigaslide.cluster.step.machines._MOST_TILES", 1)
    jobs = sum(len(tiles) for tiles in engine.layout(SHAPE).tiles.values())
    head = ray.get_runtime_context().get_node_id()
    lost = watched(tmp_path / "lost", kill_machine_from=jobs // 2, safe_node=head)
    assert same(engine.step(lost), expected[0])
    assert (tmp_path / "lost/machine").exists()
    assert same(engine.step(three), expected[0])
    assert workers.workers == 2


def test_what_a_worker_raises_comes_out_as_it_is_and_the_next_step_works(engine: Any, expected: Any) -> None:
    area = random_area(0, *SHAPE)
    with pytest.raises(OSError, match="cannot read rows 0 to"):
        engine.step(Unreadable(area.image, area.mask))
    assert same(engine.step(area), expected[0])


def test_the_weights_are_those_at_the_time_of_a_step(engine: Any, expected: Any) -> None:
    area = random_area(0, *SHAPE)
    randomise(engine.model, 1)
    assert engine.step(area).loss != expected[0].loss
    randomise(engine.model, 0)
    assert same(engine.step(area), expected[0])
