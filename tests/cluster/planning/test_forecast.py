"""The forecast of a step against sums by hand."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.api import DEFAULT_NETWORK
from gigaslide.cluster.planning import forecast as model
from gigaslide.cluster.planning.forecast import Cluster, Division, Forecast, divide, forecast
from gigaslide.cluster.step.handing_out import MADE_BYTES
from gigaslide.memory import cost
from gigaslide.memory.cost import TileSeconds
from gigaslide.network.describe import describe
from gigaslide.streaming.plan import Plan, segments

GRAPH = describe(DEFAULT_NETWORK)
CUTS = ("down1", "down2", "core")
SEGMENTS = segments(GRAPH, CUTS)
# One second a tile forward, two backward, for every segment: sums are easy.
SECONDS = [TileSeconds(1.0, 2.0)] * len(SEGMENTS)
FAST = 1e6  # Gbit/s


def division(rows: int, columns: int, tile_px: int = 256, seconds: Any = SECONDS) -> Division:
    plan = Plan("drawn", CUTS, {one.output: (tile_px, tile_px) for one in SEGMENTS})
    return divide(GRAPH, (rows * tile_px, columns * tile_px), plan, seconds)


def ray_s(found: Forecast) -> float:
    """Return what one worker spends on its tasks, of 32 tiles each."""
    return sum(-(-int(one.traffic.tiles.sum()) // 32) * model.WORKER_TASK_S for one in found.sweeps)


def test_one_worker_computes_every_tile_twice_in_each_of_four_segments() -> None:
    found = forecast(division(4, 8), Cluster(1))
    # 32 tiles, in one task.
    assert found.step_s == pytest.approx(4 * 32 * (1 + 2) + ray_s(found))
    assert (found.margin_bytes, found.result_bytes, found.broadcast_s) == (0, 0, 0)


def test_two_workers_of_one_machine_slow_each_other_down_and_four_on_two_cores_no_less() -> None:
    one, two, four = (
        forecast(division(4, 8), Cluster(count, storage_gbps=FAST, cores=2)).step_s for count in (1, 2, 4)
    )
    shared = cost.shared_speed(2)
    assert two / one == pytest.approx(1 / (2 * shared), rel=0.01)
    assert four / two == pytest.approx(1, rel=0.01)


def test_tiles_that_are_left_over_are_a_round_of_their_own() -> None:
    # 5 tiles on 4 machines of one worker: one machine has 2, the others 1.
    found = forecast(division(5, 1), Cluster(4, 1, storage_gbps=FAST, network_gbps=FAST))
    for one in found.sweeps:
        tile_s = 1.0 if one.sweep in ("forward", "statistics") else 2.0
        assert sorted(one.traffic.tiles.tolist()) == [1, 1, 1, 2]
        assert one.busiest_s == pytest.approx(2 * tile_s, rel=0.01)
        assert one.even_s == pytest.approx(5 / 4 * tile_s)
    assert found.spent_s["last round"] == pytest.approx(4 * (1 + 2) * 3 / 4, rel=0.02)


def test_a_slow_network_is_what_a_step_waits_for() -> None:
    gbps = 1e-6
    found = forecast(division(4, 8), Cluster(4, 1, network_gbps=gbps, storage_gbps=FAST))
    assert found.bound == "network"
    down2 = found.sweeps[1]
    # Three rows of down1 above a tile and four below, 3 channels of float32, over the width of 8 tiles / 4.
    row = 8 * 256 // 4 * 3 * 4
    assert down2.traffic.in_bytes.tolist() == [4 * row, 7 * row, 7 * row, 3 * row]
    assert down2.network_s == pytest.approx(7 * row * 8 / (gbps * 1e9))
    assert down2.total_s == down2.network_s


def test_pixels_share_the_link_unless_they_have_their_own() -> None:
    slow = 1e-6
    shared = forecast(division(4, 8), Cluster(4, 1, network_gbps=slow)).sweeps[0]
    own = forecast(division(4, 8), Cluster(4, 1, network_gbps=slow, storage_gbps=slow / 2)).sweeps[0]
    assert own.storage_s == pytest.approx(2 * shared.storage_s)
    assert shared.total_s == shared.network_s + shared.storage_s
    assert own.total_s == max(own.network_s, own.storage_s)
    assert set(shared.spent_s) == set(own.spent_s) == {"storage"}


def test_more_workers_than_a_driver_can_serve_are_no_faster() -> None:
    tiny = [TileSeconds(1e-4, 1e-4)] * len(SEGMENTS)
    steps = [
        forecast(division(16, 16, seconds=tiny), Cluster(count, 1, network_gbps=FAST, storage_gbps=FAST))
        for count in (4, 8, 16)
    ]
    assert [one.bound for one in steps] == ["driver"] * 3
    # 256 tiles in every sweep, two of which each of four segments has.
    assert steps[0].step_s >= 8 * (256 * model.DRIVER_TILE_S + 256 / 32 * model.DRIVER_TASK_S)
    assert all(later.step_s >= earlier.step_s * 0.999 for earlier, later in itertools.pairwise(steps))


@given(
    rows=st.integers(1, 12),
    workers=st.integers(1, 40),
    per_machine=st.integers(1, 8),
    gbps=st.sampled_from([1e-5, 1e-3, 10.0]),
)
def test_what_a_step_is_spent_on_is_the_step(rows: int, workers: int, per_machine: int, gbps: float) -> None:
    found = forecast(division(rows, 3), Cluster(workers, per_machine, network_gbps=gbps))
    assert sum(found.spent_s.values()) == pytest.approx(found.step_s)
    assert min(found.spent_s.values()) >= 0
    assert found.spent_s[found.bound] == max(found.spent_s.values())
    assert sum(found.cluster.of_machines) == workers
    assert max(found.cluster.of_machines) <= per_machine


def test_memory_of_a_machine_is_that_of_its_workers_its_maps_and_of_the_driver() -> None:
    one = division(4, 4)
    found = forecast(one, Cluster(8, 4))
    process = one.prediction.peak_bytes - one.prediction.maps_bytes + MADE_BYTES
    assert found.worker_bytes == process + model.LAYOUT_BYTES * 4 * 16
    driver = one.prediction.runtime_bytes + model.LAYOUT_BYTES * 4 * 16
    assert found.machine_bytes == 4 * found.worker_bytes + found.store_bytes + driver
    # Maps are shared out; what comes over the border is not.
    alone = forecast(one, Cluster(4, 4))
    assert alone.store_bytes / 2 < found.store_bytes < alone.store_bytes


def test_weights_go_to_every_other_machine() -> None:
    found = forecast(division(4, 4), Cluster(8, 2, network_gbps=8e-3))
    assert found.broadcast_s == pytest.approx(3 * 4492 * 4 / 1e6)


def test_without_measured_seconds_they_are_those_of_the_planner() -> None:
    one = division(8, 8, seconds=None)
    total = sum(
        spans.tiles * (tile.forward_s + tile.backward_s) for spans, tile in zip(one.spans, one.seconds, strict=True)
    )
    assert total == pytest.approx(cost.step_s(GRAPH, one.shape, one.plan, 1) + 2 * 4 * 64 * model.WORKER_TILE_S)
    found = forecast(one, Cluster(1))
    assert found.step_s == pytest.approx(total + ray_s(found))
