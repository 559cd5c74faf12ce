"""Pieces of maps against whole maps, for networks, plans and areas that Hypothesis draws."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.api import DEFAULT_NETWORK
from gigaslide.cluster.step.pieces import Job, Key, add, around, cut, join, keys, made, needed, readers
from gigaslide.geometry import Window
from gigaslide.network.describe import describe
from gigaslide.network.graph import IMAGE
from gigaslide.streaming.layout import Layout, lay_out
from gigaslide.streaming.maps import RamMap
from gigaslide.streaming.plan import Plan, Segment, segments

GRAPHS = {
    (kernel, stride): describe(DEFAULT_NETWORK.model_copy(update={"kernel_size": kernel, "stride": stride}))
    for kernel, stride in ((3, 2), (5, 2), (11, 4), (5, 4))
}


@st.composite
def visits(draw: Any) -> tuple[tuple[Segment, ...], Layout]:
    graph = GRAPHS[draw(st.sampled_from(sorted(GRAPHS)))]
    names = [op.name for op in graph.ops[1:-1]]
    cuts = tuple(draw(st.sets(st.sampled_from(names), min_size=1, max_size=3)))
    found = segments(graph, cuts)
    step = graph.total_stride[0]
    side = st.integers(1, 3).map(lambda number: number * step)
    plan = Plan("drawn", cuts, {segment.output: draw(st.tuples(side, side)) for segment in found})
    shape = draw(st.tuples(*[st.integers(1, 6 * step)] * 2))
    return found, lay_out(graph, found, plan, shape)


def filled(shape: tuple[int, ...]) -> Any:
    # Pixels beyond what is written must not pass for right by being zero.
    return np.full((1, *shape), np.nan, np.float32)


@settings(max_examples=60)
@given(visits())
def test_a_window_joined_from_pieces_is_that_of_the_whole_map(visit: Any) -> None:
    found, layout = visit
    random = np.random.default_rng(0)
    whole = {n: random.normal(size=(1, *layout.sizes[n], 2)).astype(np.float32) for n in (s.output for s in found)}
    pieces = {
        key: whole[segment.output][0][tile.owned.slices][np.newaxis]
        for number, segment in enumerate(found[:-1])
        for index, tile in enumerate(layout.tiles[segment.output])
        for key, _ in made(layout, found, Job("forward", number, index))
    }
    for number, segment in enumerate(found):
        for index, tile in enumerate(layout.tiles[segment.output]):
            groups = needed(layout, found, Job("forward", number, index))
            reads = [(n, window) for n, window in zip(segment.inputs, tile.reads, strict=True) if n != IMAGE]
            assert len(groups) == len(reads)
            for group, (name, window) in zip(groups, reads, strict=True):
                into = filled((*window.shape, 2))
                join(window, [(piece.window, pieces[piece.key]) for piece in group], into)
                assert np.array_equal(into[0], whole[name][0][window.slices])


@settings(max_examples=60)
@given(visits())
def test_gradients_are_added_in_the_order_and_to_the_bits_of_a_map(visit: Any) -> None:
    """The map that `Streamed` adds to, segment after segment and tile after tile, is the reference."""
    found, layout = visit
    random = np.random.default_rng(0)
    maps = {s.output: RamMap((*layout.sizes[s.output], 2), np.dtype(np.float32)) for s in found[:-1]}
    pieces: dict[Key, Any] = {}
    for number, segment in reversed(list(enumerate(found))):
        for index in range(len(layout.tiles[segment.output])):
            for key, window in made(layout, found, Job("backward", number, index)):
                # Of sizes so far apart that another order gives other bits.
                values = random.normal(size=(1, *window.shape, 2)) * 10.0 ** random.integers(-4, 5)
                pieces[key] = values.astype(np.float32)
                maps[key.map].add(window, pieces[key])
    for number, segment in enumerate(found[:-1]):
        for index, tile in enumerate(layout.tiles[segment.output]):
            group = needed(layout, found, Job("backward", number, index))[-1]
            into, expected = filled((*tile.owned.shape, 2)), filled((*tile.owned.shape, 2))
            add(tile.owned, [(piece.window, pieces[piece.key]) for piece in group], into)
            maps[segment.output].read(tile.owned, expected)
            assert np.array_equal(into, expected)
            assert np.array_equal(np.signbit(into), np.signbit(expected))


@settings(max_examples=60)
@given(visits())
def test_no_piece_is_asked_for_that_does_not_meet_the_window(visit: Any) -> None:
    found, layout = visit
    for number, segment in enumerate(found):
        for index in range(len(layout.tiles[segment.output])):
            job = Job("backward" if number < len(found) - 1 else "loss_backward", number, index)
            groups = needed(layout, found, job)
            tile = layout.tiles[segment.output][index]
            windows = [w for n, w in zip(segment.inputs, tile.reads, strict=True) if n != IMAGE]
            for group, window in zip(groups, [*windows, tile.owned], strict=job.sweep == "backward"):
                for piece in group:
                    common = window.clip(piece.window)
                    assert common.y.size > 0 and common.x.size > 0
                    assert common == piece.part
            wanted = keys(groups)
            assert len(set(wanted)) == len(wanted)


@settings(max_examples=60)
@given(visits())
def test_who_reads_a_piece_is_who_needs_it(visit: Any) -> None:
    found, layout = visit
    numbers = {segment.output: number for number, segment in enumerate(found)}
    expected: dict[Key, set[tuple[str, int, Any]]] = {}
    windows = {}
    for number, segment in enumerate(found):
        for index in range(len(layout.tiles[segment.output])):
            for sweep in ("forward", "backward"):
                windows.update(made(layout, found, Job(sweep, number, index)))
            job = Job("backward" if number < len(found) - 1 else "loss_backward", number, index)
            for group in needed(layout, found, job):
                for piece in group:
                    assert windows.get(piece.key, piece.window) == piece.window
                    expected.setdefault(piece.key, set()).add((segment.output, index, piece.part))
    for key, window in windows.items():
        if key.maker != key.map or numbers[key.map] < len(found) - 1:
            assert set(readers(layout, found, key, window)) == expected.get(key, set())


def test_windows_around_and_cut() -> None:
    whole = np.arange(48, dtype=np.float32).reshape(1, 6, 8, 1)
    parts = [Window.of(11, 23, 2, 1), Window.of(12, 22, 1, 3)]
    assert around(parts) == Window.of(11, 22, 2, 3)
    assert np.array_equal(cut(whole, Window.of(10, 20, 6, 8), around(parts)), whole[:, 1:3, 2:5])
