"""The count by rows and columns against one tile after the other, by the functions that the engine goes by."""

import heapq
import time
from collections import defaultdict, deque
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.api import DEFAULT_NETWORK
from gigaslide.cluster.planning import runs, traffic
from gigaslide.cluster.planning.spans import spans
from gigaslide.cluster.step.handing_out import Handing
from gigaslide.cluster.step.machines import Division, Machine, Share
from gigaslide.cluster.step.pieces import Job, Key, Sweep, around, made, needed, readers
from gigaslide.geometry import Window
from gigaslide.memory import model
from gigaslide.network.describe import describe
from gigaslide.network.graph import Graph
from gigaslide.slides import store
from gigaslide.streaming.layout import Layout, lay_out
from gigaslide.streaming.plan import Plan, Segment, segments

GRAPHS = {
    (kernel, stride): describe(DEFAULT_NETWORK.model_copy(update={"kernel_size": kernel, "stride": stride}))
    for kernel, stride in ((3, 2), (5, 2), (11, 4), (5, 4), (9, 2))
}


@st.composite
def visits(draw: Any) -> tuple[Graph, Plan, tuple[int, int], list[int]]:
    graph = GRAPHS[draw(st.sampled_from(sorted(GRAPHS)))]
    names = [op.name for op in graph.ops[1:-1]]
    cuts = tuple(draw(st.sets(st.sampled_from(names), max_size=3)))
    step = graph.total_stride[0]
    side = st.integers(1, 4).map(lambda number: number * step)
    plan = Plan("drawn", cuts, {one.output: draw(st.tuples(side, side)) for one in segments(graph, cuts)})
    # Long enough along one axis that some tiles are far from the edges.
    shape = draw(st.tuples(st.integers(1, 16 * step), st.integers(1, 4 * step)))
    if draw(st.booleans()):
        shape = shape[1], shape[0]
    return graph, plan, shape, draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))


def division(workers: list[int]) -> Division:
    return Division([Machine(str(number), count, 3 * count) for number, count in enumerate(workers)])


class Nobody:
    """A pool whose tasks are done at once, and compute nothing."""

    threads = 1

    def __init__(self, workers: list[int]) -> None:
        self._machines, self._jobs = division(workers).machines, list[int]()

    @property
    def workers(self) -> int:
        return sum(machine.workers for machine in self._machines)

    def machines(self) -> list[Machine]:
        return list(self._machines)

    def put(self, value: Any) -> Any:
        return value

    def submit(self, machine: str, task: Any, recipe: Any, visit: Any) -> list[Any]:
        self._jobs.append(len(task.jobs))
        number = len(self._jobs) - 1
        return [number, *((number, value) for value in range(1, task.values))]

    def wait(self, results: Any) -> list[Any]:
        return list(results)

    def get(self, result: Any) -> Any:
        return 0.0, [None] * self._jobs[result]

    def cancel(self, result: Any) -> None:
        raise AssertionError


def handed_out_bytes(graph: Graph, plan: Plan, shape: tuple[int, int], workers: list[int]) -> int:
    """Return what the engine itself counts."""
    found = segments(graph, plan.cuts)
    layout = lay_out(graph, found, plan, shape)
    bytes_per_px = {one.output: 4 * graph.by_name[one.output].channels for one in found}
    handing = Handing(Nobody(workers), None, None, layout, found, bytes_per_px)
    sweeps = ([Job(s, n, tile) for tile in range(len(layout.tiles[found[n].output]))] for s, n in order(found))
    assert not list(handing.results(sweeps))
    return handing.moved_bytes


def order(found: tuple[Segment, ...]) -> list[tuple[Sweep, int]]:
    return traffic.sweeps(len(found))


def first_sweep(layout: Layout, found: tuple[Segment, ...], key: Key, tiles: list[tuple[str, int]]) -> int:
    """Return the number of the first sweep in which some of these tiles read a piece."""
    for position, (sweep, number) in enumerate(order(found)):
        for output, tile in tiles:
            if output == found[number].output:
                groups = needed(layout, found, Job(sweep, number, tile))
                if any(piece.key == key for group in groups for piece in group):
                    return position
    raise AssertionError(key)


def one_by_one(
    graph: Graph, plan: Plan, shape: tuple[int, int], workers: list[int]
) -> list[tuple[list[int], list[int]]]:
    """Return, of every sweep, the bytes into and out of each machine."""
    found = segments(graph, plan.cuts)
    layout = lay_out(graph, found, plan, shape)
    here, sweeps = division(workers), order(found)
    into = [[0] * len(workers) for _ in sweeps]
    out = [[0] * len(workers) for _ in sweeps]
    for sweep, number in sweeps:
        for tile in range(len(layout.tiles[found[number].output])):
            for key, window in made(layout, found, Job(sweep, number, tile)):
                maker = here.of(tile, len(layout.tiles[found[number].output]))
                parts: dict[int, list[Window]] = defaultdict(list)
                tiles: dict[int, list[tuple[str, int]]] = defaultdict(list)
                for output, reader, part in readers(layout, found, key, window):
                    machine = here.of(reader, len(layout.tiles[output]))
                    parts[machine].append(part)
                    tiles[machine].append((output, reader))
                for machine in parts.keys() - {maker}:
                    size = prod(around(parts[machine]).shape) * graph.by_name[key.map].channels * 4
                    position = first_sweep(layout, found, key, tiles[machine])
                    into[position][machine] += size
                    out[position][maker] += size
    return list(zip(into, out, strict=True))


@settings(max_examples=100, deadline=None)
@given(visits())
def test_counted_by_rows_is_counted_tile_by_tile(visit: Any) -> None:
    graph, plan, shape, workers = visit
    counted = traffic.traffic(graph, spans(graph, plan, shape), shape, workers)
    expected = one_by_one(graph, plan, shape, workers)
    assert [(one.in_bytes.tolist(), one.out_bytes.tolist()) for one in counted] == expected


@settings(max_examples=100, deadline=None)
@given(visits())
def test_counted_by_rows_is_what_the_engine_counts(visit: Any) -> None:
    graph, plan, shape, workers = visit
    counted = traffic.traffic(graph, spans(graph, plan, shape), shape, workers)
    assert sum(one.margin_bytes for one in counted) == handed_out_bytes(graph, plan, shape, workers)


@settings(max_examples=60, deadline=None)
@given(visits())
def test_what_machines_hold_is_the_sum_of_the_pieces_that_they_made(visit: Any) -> None:
    graph, plan, shape, workers = visit
    found = segments(graph, plan.cuts)
    layout = lay_out(graph, found, plan, shape)
    held: dict[Key, Window] = {}
    most = [0] * len(workers)
    for sweep, number in order(found):
        output = found[number].output
        is_backward = sweep in ("loss_backward", "backward")
        if is_backward:
            held = {key: window for key, window in held.items() if not key.map == key.maker == output}
        for tile in range(len(layout.tiles[output])):
            held.update(made(layout, found, Job(sweep, number, tile)))
        now = [0] * len(workers)
        for key, window in held.items():
            machine = division(workers).of(key.tile, len(layout.tiles[key.maker]))
            now[machine] += prod(window.shape) * graph.by_name[key.map].channels * 4
        most = [max(pair) for pair in zip(most, now, strict=True)]
        if is_backward:
            held = {key: window for key, window in held.items() if key.map != output}
    assert traffic.held_bytes(graph, spans(graph, plan, shape), workers).tolist() == most


@settings(max_examples=100, deadline=None)
@given(visits())
def test_the_windows_of_all_tiles_are_those_of_the_layout(visit: Any) -> None:
    graph, plan, shape, _ = visit
    layout = lay_out(graph, segments(graph, plan.cuts), plan, shape)
    for one in spans(graph, plan, shape):
        tiles = layout.tiles[one.segment.output]
        assert one.tiles == len(tiles)
        for number, tile in enumerate(tiles):
            row, column = divmod(number, len(one.x))
            for axis, at, side in ((one.y, row, "y"), (one.x, column, "x")):
                owned = getattr(tile.owned, side)
                assert (axis.owned.starts[at], axis.owned.stops[at]) == (owned.start, owned.stop)
                for name, window in zip(one.segment.inputs, tile.reads, strict=True):
                    read = getattr(window, side)
                    assert (axis.reads[name].starts[at], axis.reads[name].stops[at]) == (read.start, read.stop)


def test_pixels_are_read_in_whole_chunks() -> None:
    graph = GRAPHS[11, 4]
    plan = Plan("one", (), {graph.output.name: (1024, 1024)})
    counted = traffic.traffic(graph, spans(graph, plan, (1000, 2048)), (1000, 2048), [1, 1])
    # Two tiles in one row; each reads a margin of the other: 2 x 3 chunks of 512 px, and 2 x 2 of labels.
    pixels = 2 * (2 * 3) * 512**2 * traffic._IMAGE_BYTES_PER_PX
    labels = 2 * (2 * 2) * 512**2 * traffic._LABEL_BYTES_PER_PX
    for sweep in counted:
        assert sweep.stored_bytes.tolist() == pytest.approx([(pixels + labels) / 2] * 2, abs=2)
        assert sweep.in_bytes.tolist() == [0, 0]  # what no machine keeps, none sends
    assert traffic.CHUNK_PX == store.CHUNK_PX


def test_results_are_a_gradient_for_every_tile_and_weight() -> None:
    graph = GRAPHS[11, 4]
    cuts = ("down1", "down2", "core")
    plan = Plan("four", cuts, {one.output: (256, 256) for one in segments(graph, cuts)})
    counted = traffic.traffic(graph, spans(graph, plan, (1024, 512)), (1024, 512), [2, 2])
    backward = [sweep for sweep in counted if sweep.sweep in ("loss_backward", "backward")]
    # 4 x 2 tiles; the 4492 weights are those of the four segments.
    assert sum(int(sweep.result_bytes.sum()) for sweep in backward) == 8 * 4 * 4492
    assert [sweep.result_bytes.tolist() for sweep in counted if sweep.sweep == "forward"] == [[0, 0]] * 3


def test_a_thousand_gigapixels_are_counted_within_a_second() -> None:
    graph = GRAPHS[11, 4]
    cuts = ("down1", "down2", "core")
    plan = Plan("many", cuts, {one.output: (2048, 2048) for one in segments(graph, cuts)})
    shape, workers = (1_000_000, 1_000_000), [16] * 32
    started = time.process_time()
    found = spans(graph, plan, shape)
    counted = traffic.traffic(graph, found, shape, workers)
    held = traffic.held_bytes(graph, found, workers)
    # It takes some 0.2 s; to lay out its million tiles takes minutes.
    assert time.process_time() - started < 1
    assert all(int(sweep.tiles.sum()) == 489**2 for sweep in counted)
    # Two segments add to the gradient of down1, each in parts of its own that overlap: 3 maps instead of 2, and at most
    # 36 x 36 values of core where a tile owns 32 x 32.
    kept = model.kept_bytes(graph, cuts, model.map_sizes(graph, shape), 4)
    assert kept < int(held.sum()) < 1.5 * (36 / 32) ** 2 * kept
    assert not counted[0].in_bytes.any()  # the image comes from the storage
    # Along the border of two machines, which is about as long as a row of down1, 3 rows of pixels that the one below
    # reads, and 4 that the one above does; less than a whole row of pieces.
    row = 250_000 * 3 * 4
    assert 7 * row < int(counted[1].in_bytes.sum()) / 31 < 512 / 4 * row


@pytest.mark.parametrize("tiles", [1, 7, 64, 1000])
def test_runs_are_those_of_the_division(tiles: int) -> None:
    for workers in ([3], [1, 1], [2, 3, 1], [16] * 8, [1] * 10):
        starts = runs.runs(tiles, workers)
        expected = [division(workers).of(tile, tiles) for tile in range(tiles)]
        assert runs.machine_of(np.arange(tiles), starts).tolist() == expected
        assert np.diff(starts).tolist() == [expected.count(machine) for machine in range(len(workers))]


@given(tiles=st.integers(0, 3000), workers=st.integers(1, 6), most=st.integers(1, 40))
def test_the_busiest_worker_is_that_of_workers_who_take_a_task_when_they_are_free(
    tiles: int, workers: int, most: int
) -> None:
    share = Share(Machine("", workers, workers), deque(Job("forward", 0, tile) for tile in range(tiles)))
    free, tasks = [0] * workers, 0
    while share.left:
        heapq.heappush(free, heapq.heappop(free) + len(share.take(most)))
        tasks += 1
    found = runs.busy(tiles, workers, most)
    assert (found.tiles, found.tasks) == (max(free), tasks)
    assert found.its_tasks <= tasks
