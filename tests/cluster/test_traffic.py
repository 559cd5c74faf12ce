"""The count by rows and columns against one tile after the other, by the function that the engine goes by."""

import time
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.api import DEFAULT_NETWORK
from gigaslide.cluster import traffic
from gigaslide.cluster.bands import machine_of
from gigaslide.cluster.pieces import Job, Key, made, needed
from gigaslide.cluster.spans import spans
from gigaslide.geometry import Interval, Window
from gigaslide.memory import model
from gigaslide.network.describe import describe
from gigaslide.network.graph import IMAGE, Graph
from gigaslide.slides import store
from gigaslide.streaming.layout import Layout, lay_out
from gigaslide.streaming.plan import Plan, Segment, segments

GRAPHS = {
    (kernel, stride): describe(DEFAULT_NETWORK.model_copy(update={"kernel_size": kernel, "stride": stride}))
    for kernel, stride in ((3, 2), (5, 2), (11, 4), (5, 4), (9, 2))
}


@st.composite
def visits(draw: Any) -> tuple[Graph, Plan, tuple[int, int], int]:
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
    return graph, plan, shape, draw(st.integers(1, 6))


def machine(layout: Layout, output: str, tile: int, machines: int) -> int:
    rows = sorted({one.owned.y.start for one in layout.tiles[output]})
    return int(machine_of(rows.index(layout.tiles[output][tile].owned.y.start), len(rows), machines))


def hull(a: Window | None, b: Window) -> Window:
    if a is None:
        return b
    y = Interval(min(a.y.start, b.y.start), max(a.y.stop, b.y.stop))
    return Window(y, Interval(min(a.x.start, b.x.start), max(a.x.stop, b.x.stop)))


def windows_read(layout: Layout, found: tuple[Segment, ...], job: Job) -> list[Window]:
    segment = found[job.segment]
    tile = layout.tiles[segment.output][job.tile]
    reads = [window for name, window in zip(segment.inputs, tile.reads, strict=True) if name != IMAGE]
    return [*reads, tile.owned] if job.sweep == "backward" else reads


def one_by_one(graph: Graph, plan: Plan, shape: tuple[int, int], machines: int) -> list[tuple[list[int], list[int]]]:
    """Return, of every sweep, the bytes into and out of each machine."""
    found = segments(graph, plan.cuts)
    layout = lay_out(graph, found, plan, shape)
    totals = []
    for sweep, number in traffic.sweeps(len(found)):
        parts: dict[tuple[int, Key], Window] = {}
        for tile in range(len(layout.tiles[found[number].output])):
            job = Job(sweep, number, tile)
            here = machine(layout, found[number].output, tile, machines)
            groups = needed(layout, found, job)
            for window, group in zip(windows_read(layout, found, job), groups, strict=True):
                for piece in group:
                    read = window.clip(piece.window)
                    parts[here, piece.key] = hull(parts.get((here, piece.key)), read)
        into, out = [0] * machines, [0] * machines
        for (here, key), window in parts.items():
            maker = machine(layout, key.maker, key.tile, machines)
            if maker != here:
                size = window.y.size * window.x.size * graph.by_name[key.map].channels * 4
                into[here] += size
                out[maker] += size
        totals.append((into, out))
    return totals


@settings(max_examples=150, deadline=None)
@given(visits())
def test_counted_by_rows_is_counted_tile_by_tile(visit: Any) -> None:
    graph, plan, shape, machines = visit
    counted = traffic.traffic(graph, spans(graph, plan, shape), shape, machines)
    expected = one_by_one(graph, plan, shape, machines)
    assert [(one.in_bytes.tolist(), one.out_bytes.tolist()) for one in counted] == expected


@settings(max_examples=60, deadline=None)
@given(visits())
def test_what_machines_hold_is_the_sum_of_the_pieces_that_they_made(visit: Any) -> None:
    graph, plan, shape, machines = visit
    found = segments(graph, plan.cuts)
    layout = lay_out(graph, found, plan, shape)

    def size(key: Key) -> int:
        segment = next(one for one in found if one.output == key.maker)
        tile = layout.tiles[key.maker][key.tile]
        window = tile.owned if key.map == key.maker else tile.reads[segment.inputs.index(key.map)]
        return window.y.size * window.x.size * graph.by_name[key.map].channels * 4

    held: set[Key] = set()
    most = [0] * machines

    def look() -> None:
        now: dict[int, int] = defaultdict(int)
        for key in held:
            now[machine(layout, key.maker, key.tile, machines)] += size(key)
        most[:] = [max(most[number], now[number]) for number in range(machines)]

    for sweep, number in traffic.sweeps(len(found)):
        output = found[number].output
        if sweep in ("loss_backward", "backward"):
            held = {key for key in held if not key.map == key.maker == output}
        for tile in range(len(layout.tiles[output])):
            held.update(made(found[number], Job(sweep, number, tile)))
        look()
        if sweep in ("loss_backward", "backward"):
            held = {key for key in held if key.map != output}
    assert traffic.held_bytes(graph, spans(graph, plan, shape), machines).tolist() == most


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
    counted = traffic.traffic(graph, spans(graph, plan, (1000, 2048)), (1000, 2048), 2)
    # Two tiles in one row; each reads a margin of the other: 2 x 3 chunks of 512 px, and 2 x 2 of labels.
    pixels = 2 * (2 * 3) * 512**2 * traffic._IMAGE_BYTES_PER_PX
    labels = 2 * (2 * 2) * 512**2 * traffic._LABEL_BYTES_PER_PX
    for sweep in counted:
        assert sweep.stored_bytes.tolist() == pytest.approx([pixels + labels, 0], abs=2)
        assert sweep.in_bytes.tolist() == [0, 0]  # what no machine keeps, none sends
    assert traffic.CHUNK_PX == store.CHUNK_PX


def test_results_are_a_gradient_for_every_tile_and_weight() -> None:
    graph = GRAPHS[11, 4]
    cuts = ("down1", "down2", "core")
    plan = Plan("four", cuts, {one.output: (256, 256) for one in segments(graph, cuts)})
    counted = traffic.traffic(graph, spans(graph, plan, (1024, 512)), (1024, 512), 2)
    backward = [sweep for sweep in counted if sweep.sweep in ("loss_backward", "backward")]
    # 4 x 2 tiles; the 4492 weights are those of the four segments.
    assert sum(int(sweep.result_bytes.sum()) for sweep in backward) == 8 * 4 * 4492
    assert [sweep.result_bytes.tolist() for sweep in counted if sweep.sweep == "forward"] == [[0, 0]] * 3


def test_a_thousand_gigapixels_are_counted_within_a_second() -> None:
    graph = GRAPHS[11, 4]
    cuts = ("down1", "down2", "core")
    plan = Plan("many", cuts, {one.output: (512, 512) for one in segments(graph, cuts)})
    shape = (1_000_000, 1_000_000)
    started = time.process_time()
    found = spans(graph, plan, shape)
    counted = traffic.traffic(graph, found, shape, 512)
    traffic.held_bytes(graph, found, 512)
    # It takes some 50 ms; laying out its 15 million tiles would take half an hour.
    assert time.process_time() - started < 1
    assert all(int(sweep.tiles.sum()) == 1954**2 for sweep in counted)
    # Two segments add to the gradient of down1, each in parts of its own that overlap: 3 maps instead of 2, and at most
    # 36 x 36 values of core where a tile owns 32 x 32.
    kept = model.kept_bytes(graph, cuts, model.map_sizes(graph, shape), 4)
    assert kept < int(traffic.held_bytes(graph, found, 512).sum()) < 1.5 * (36 / 32) ** 2 * kept
    assert not counted[0].in_bytes.any()  # the image comes from the storage
    # A convolution of 11 px with stride 4 reads 3 px of down1 above its tile and 4 below.
    row = 250_000 * 3 * 4
    assert counted[1].in_bytes[[0, 1, 2, 510, 511]].tolist() == [4 * row, 7 * row, 7 * row, 7 * row, 3 * row]
