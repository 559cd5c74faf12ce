"""Bands of tile rows, and the busiest worker, against counting."""

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.cluster import bands

FEW = st.integers(1, 40)


@given(rows=FEW, machines=FEW)
def test_bands_cover_all_rows_once_in_order_and_evenly(rows: int, machines: int) -> None:
    found = [bands.band(machine, rows, machines) for machine in range(machines)]
    assert [row for band in found for row in range(band.start, band.stop)] == list(range(rows))
    sizes = [band.size for band in found]
    assert max(sizes) - min(sizes) <= 1
    for machine, band in enumerate(found):
        assert all(bands.machine_of(row, rows, machines) == machine for row in range(band.start, band.stop))


@given(tiles=st.integers(0, 200), per_task=st.integers(1, 8), workers=st.integers(1, 20))
def test_the_busiest_worker_is_that_of_workers_who_take_a_task_when_they_are_free(
    tiles: int, per_task: int, workers: int
) -> None:
    free = [0] * workers  # when each is, in tiles
    for first in range(0, tiles, per_task):
        heapq.heappush(free, heapq.heappop(free) + min(per_task, tiles - first))
    assert bands.most_tiles(tiles, per_task, workers) == max(free)


def test_tasks_are_of_eight_tiles_unless_workers_would_have_fewer_than_four() -> None:
    assert bands.tiles_per_task(1000, 2) == 8
    assert bands.tiles_per_task(64, 4) == 4
    assert bands.tiles_per_task(3, 4) == 1


@given(total=st.integers(0, 100), parts=FEW)
def test_shares_are_even(total: int, parts: int) -> None:
    found = bands.share(total, parts)
    assert (sum(found), len(found)) == (total, parts)
    assert max(found) - min(found) <= 1
    assert found == sorted(found, reverse=True)


def test_the_engine_hands_out_as_many_tiles_at_a_time() -> None:
    engine = pytest.importorskip("gigaslide.cluster.engine")
    assert getattr(engine, "_MOST_TILES", bands.MOST_TILES) == bands.MOST_TILES
    assert getattr(engine, "_TASKS", bands.TASKS_PER_WORKER) == bands.TASKS_PER_WORKER
