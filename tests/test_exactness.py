"""The streamed step is the whole-image step: the same loss, gradient and probabilities, in whatever pieces.

In float64 two ways to add up the same numbers differ by rounding alone, so every difference above 1e-9 is an error of
the engine. Most networks run eagerly here, operation by operation: tracing costs a second for each of them, running
them milliseconds. The sensible ways to cut, and every kind of layer, run traced as they do in earnest.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gigaslide import config
from gigaslide.evaluation.counts import Counts, count
from gigaslide.geometry import Window
from gigaslide.network import losses, unet
from gigaslide.network.keras_graph import from_model
from gigaslide.streaming import segment
from gigaslide.streaming.plan import Plan, segments
from gigaslide.streaming.streamed import Streamed
from tests import networks
from tests.reference import whole_image_step
from tests.streaming.areas import ArrayArea, random_area

NETWORK = config.load(Path(__file__).parents[1] / "params.yaml").network
EXACT = 1e-9
LOSS_WEIGHTS = ((0.6, 0.4), (1.0, 0.0), (0.0, 1.0))


@contextmanager
def eagerly() -> Iterator[None]:
    """Run the functions of a tile operation by operation instead of tracing them."""

    class Eagerly(segment._TileFunction):
        def _trace(self, touches_edge: bool) -> Any:
            return lambda inputs, table, *others: self._body(
                inputs, tf.constant(table), touches_edge, *(tf.convert_to_tensor(x) for x in others)
            )

    with mock.patch.object(segment, "_TileFunction", Eagerly):
        yield


def assert_exact(
    engine: Streamed, area: ArrayArea, weights: tuple[float, float] = LOSS_WEIGHTS[0], predict: bool = True
) -> None:
    """Check what an engine gives against the whole image in one piece."""
    result = engine.step(area)
    loss, logits, gradients = whole_image_step(engine.model, area, engine._graph.total_stride, *weights)
    assert result.loss == pytest.approx(loss, rel=EXACT)
    soft_dice = float(losses.soft_dice(losses.statistics(tf.constant(logits), area.mask)))
    assert result.soft_dice == pytest.approx(soft_dice, rel=EXACT)
    # Each weight's gradient by its own largest entry. Where that is small because much cancels (the bias before a
    # normalisation), rounding is of the size of what cancels, not of the rest: hence no less than a thousandth of the
    # largest gradient, of which 1e-9 is still ten thousand times float64's rounding.
    largest = max(np.abs(g).max() for g in gradients)
    for ours, theirs, weight in zip(result.gradients, gradients, engine.model.trainable_variables, strict=True):
        bound = EXACT * max(np.abs(theirs).max(), 1e-3 * largest)
        assert np.abs(ours - theirs).max() <= bound, weight.path

    if not predict:
        return
    truth = 1 / (1 + np.exp(-logits))
    seen, counts = np.full(area.shape, np.nan), Counts()
    for window, probability in engine.predict(area):
        assert np.isnan(seen[window.slices]).all()
        seen[window.slices] = probability
        counts += count(probability, area.mask[window.slices], 0.5)
    assert seen == pytest.approx(truth, rel=EXACT)
    assert counts == count(truth, area.mask, 0.5)


def mask(draw: st.DrawFn, area: ArrayArea, tile: tuple[int, int]) -> NDArray[np.uint8]:
    """Draw which pixels are valid."""
    which = draw(st.sampled_from(["some", "all", "none", "not a tile", "only tissue", "only glass"]), label="valid")
    if which == "some":
        return area.mask
    labels = np.random.default_rng(0).choice(np.array([0, 1], np.uint8), area.shape)
    if which == "none":
        labels[:] = 255
    elif which == "not a tile":
        y, x = ((draw(st.integers(0, (size - 1) // step)) * step) for size, step in zip(area.shape, tile, strict=True))
        labels[y : y + tile[0], x : x + tile[1]] = 255
    elif which != "all":
        labels[:] = which == "only tissue"
    return labels


def extents(total_stride: tuple[int, int]) -> st.SearchStrategy[tuple[int, int]]:
    """One pixel, less than a tile, a little more or less than some strides, and what lies between."""
    y, x = (
        st.one_of(st.just(1), st.integers(1, max(3 * step, 20)), st.sampled_from([step, 2 * step - 1, 2 * step + 1]))
        for step in total_stride
    )
    return st.tuples(y, x)


@st.composite
def cases(
    draw: st.DrawFn, model: keras.Model, cuts: tuple[str, ...] | None = None
) -> tuple[Plan, ArrayArea, tuple[float, float]]:
    """Draw a plan, an area and the weights of the loss."""
    graph, _ = from_model(model)
    if cuts is None:
        names = [op.name for op in graph.ops[1:-1]]
        cuts = tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=5), label="cuts")) if names else ()
    shape = draw(extents(graph.total_stride), label="extent")
    tiles = {}
    for part in segments(graph, cuts):
        # As many pixels as make one to four tiles along an axis, in whole strides.
        y, x = (
            -(-size // draw(st.integers(1, 4)) // step) * step
            for size, step in zip(shape, graph.total_stride, strict=True)
        )
        tiles[part.output] = y, x
    storage: Literal["ram", "disk"] = draw(st.sampled_from(["ram", "disk"]))
    plan = Plan("drawn", cuts, tiles, storage, draw(st.integers(1, 2), label="workers"))
    area = random_area(draw(st.integers(0, 1000), label="seed"), *shape)
    area = replace(area, mask=mask(draw, area, tiles[graph.output.name]))
    return plan, area, draw(st.sampled_from(LOSS_WEIGHTS))


def check(model: keras.Model, case: tuple[Plan, ArrayArea, tuple[float, float]]) -> None:
    plan, area, weights = case
    with TemporaryDirectory() as scratch:
        assert_exact(Streamed(model, plan, *weights, scratch=Path(scratch)), area, weights)


@st.composite
def unets(draw: st.DrawFn, dtype: str = "float64") -> keras.Model:
    """Draw a network as of `params.yaml`, also with strides above the kernel, which the settings forbid."""
    stride, depth = draw(st.sampled_from([(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1)]))
    network = NETWORK.model_copy(
        update={
            "kernel_size": draw(st.one_of(st.integers(1, 7), st.sampled_from([11, 15, 18]))),
            "stride": stride,
            "depth": depth,
            "filters": draw(st.sampled_from([[1], [2, 3], [3, 1, 2]])),
            "head_filters": draw(st.integers(1, 3)),
            "activation": draw(st.sampled_from(["leaky_relu", "relu", "elu"])),
        }
    )
    return networks.randomise(unet.build(network, 0, dtype), draw(st.integers(0, 1000)))


@settings(max_examples=24)
@given(st.data())
def test_any_network_of_the_settings_in_any_pieces(data: st.DataObject) -> None:
    model = data.draw(unets())
    with eagerly():
        check(model, data.draw(cases(model)))


@cache
def built(make: Callable[[Any], Any]) -> keras.Model:
    return networks.build(make)


@pytest.mark.parametrize("make", networks.USER_MADE, ids=lambda make: make.__name__)
@settings(max_examples=3)
@given(st.data())
def test_any_network_of_layers_that_can_be_tiled_in_any_pieces(make: Callable[[Any], Any], data: st.DataObject) -> None:
    model = built(make)
    with eagerly():
        check(model, data.draw(cases(model)))


@cache
def standard(up: str) -> keras.Model:
    return networks.build(networks.standard_unet(up))


@cache
def of_settings(kernel_size: int, stride: int, depth: int, dtype: str = "float64") -> keras.Model:
    network = NETWORK.model_copy(update={"kernel_size": kernel_size, "stride": stride, "depth": depth})
    return networks.randomise(unet.build(network, 0, dtype), 1)


def engine(model: keras.Model, cuts: tuple[str, ...], tile: int, workers: int = 2) -> Streamed:
    """Return an engine whose tiles are `tile` strides long."""
    graph, _ = from_model(model)
    size = tile * graph.total_stride[0], tile * graph.total_stride[1]
    return Streamed(
        model, Plan("test", cuts, {s.output: size for s in segments(graph, cuts)}, "ram", workers), 0.6, 0.4
    )


@pytest.mark.parametrize(
    ("network", "cuts"),
    [
        ((11, 4, 2), ()),
        ((11, 4, 2), ("down1_activation",)),
        ((11, 4, 2), ("down1_activation", "core_activation")),
        ((4, 2, 3), ("down1_activation", "down2_activation", "down3", "skip2", "up2_activation")),
    ],
)
def test_the_ways_to_cut_that_make_sense_traced(network: tuple[int, int, int], cuts: tuple[str, ...]) -> None:
    traced = engine(of_settings(*network), cuts, 2)

    @settings(max_examples=4)
    @given(extents(traced._graph.total_stride), st.integers(0, 1000))
    def on_any_area(shape: tuple[int, int], seed: int) -> None:
        assert_exact(traced, random_area(seed, *shape))

    on_any_area()


@pytest.mark.parametrize(
    ("up", "cuts"), [("transposed", ("pool1", "pool3", "join1")), ("bilinear", ("pool2", "join3", "join2"))]
)
def test_a_standard_unet_traced(up: str, cuts: tuple[str, ...]) -> None:
    traced = engine(networks.build(networks.standard_unet(up)), cuts, 1)
    for seed, shape in enumerate([(35, 61), (1, 16)]):
        assert_exact(traced, random_area(seed, *shape), predict=False)


@pytest.mark.parametrize("up", ["transposed", "bilinear"])
@settings(max_examples=3)
@given(st.data())
def test_a_standard_unet_in_any_pieces(up: str, data: st.DataObject) -> None:
    model = standard(up)
    with eagerly():
        check(model, data.draw(cases(model)))


@pytest.mark.parametrize("make", networks.USER_MADE, ids=lambda make: make.__name__)
def test_every_kind_of_layer_traced(make: Callable[[Any], Any]) -> None:
    model = built(make)
    graph, _ = from_model(model)
    traced = engine(model, (graph.ops[len(graph.ops) // 2].name,), max(1, 8 // max(graph.total_stride)))
    for seed, shape in enumerate([(23, 17), (1, 9)]):
        assert_exact(traced, random_area(seed, *shape), predict=False)


@pytest.mark.parametrize("make", [networks.valid_transposed, networks.pads_and_crops], ids=lambda make: make.__name__)
def test_every_operation_may_be_kept_where_maps_have_odd_sizes(make: Callable[[Any], Any]) -> None:
    model = built(make)
    graph, _ = from_model(model)
    with eagerly():
        for op in graph.ops[1:-1]:
            kept = engine(model, (op.name,), 4 // max(graph.total_stride))
            assert_exact(kept, random_area(0, 9, 14), predict=False)


@settings(max_examples=6)
@given(st.data(), st.integers(5, 13), st.integers(6, 13))
def test_maps_smaller_than_the_image(data: st.DataObject, height: int, width: int) -> None:
    model = built(networks.smaller_inside)
    names = [op.name for op in from_model(model)[0].ops[1:-1]]
    cuts = tuple(data.draw(st.lists(st.sampled_from(names), unique=True)))
    with eagerly():
        assert_exact(engine(model, cuts, data.draw(st.sampled_from([2, 4, 13]))), random_area(0, height, width))


def distance(gradients: list[NDArray[Any]], truth: list[NDArray[Any]]) -> float:
    """Return how far two gradients are apart, each weight's as a share of its largest entry."""
    shares = (((g - t) / np.abs(t).max()).ravel() for g, t in zip(gradients, truth, strict=True))
    return float(np.linalg.norm(np.concatenate(list(shares))))


@pytest.mark.parametrize("cuts", [(), ("down1", "core", "up2_activation")])
def test_float32_is_nearer_to_float64_than_the_whole_image_is(cuts: tuple[str, ...]) -> None:
    single, double = (of_settings(5, 2, 2, dtype) for dtype in ("float32", "float64"))
    double.set_weights([w.astype(float) for w in single.get_weights()])
    streamed = engine(single, cuts, 4)
    for seed, shape in enumerate([(64, 64), (100, 130), (200, 61)]):
        area = random_area(seed, *shape)
        true_loss, _, truth = whole_image_step(double, area, (4, 4), 0.6, 0.4)
        loss, _, gradients = whole_image_step(single, area, (4, 4), 0.6, 0.4)
        result = streamed.step(area)
        # No factor: a whole-image step adds up all pixels in float32, this one a tile's, and the tiles in float64.
        assert distance(result.gradients, truth) <= distance(gradients, truth)
        # The loss is a single number, whose rounding may by chance be nought: a few roundings of 1 are allowed.
        assert abs(result.loss - true_loss) <= max(abs(loss - true_loss), 2**-22)


@settings(max_examples=12)
@given(st.data())
def test_float32_on_any_area(data: st.DataObject) -> None:
    single, double = (of_settings(5, 2, 2, dtype) for dtype in ("float32", "float64"))
    double.set_weights([w.astype(float) for w in single.get_weights()])
    plan, area, weights = data.draw(cases(single))
    area = replace(area, mask=area.mask % 2)  # with nothing valid there is nothing to compare
    _, _, truth = whole_image_step(double, area, (4, 4), *weights)
    _, _, gradients = whole_image_step(single, area, (4, 4), *weights)
    with eagerly(), TemporaryDirectory() as scratch:
        result = Streamed(single, plan, *weights, scratch=Path(scratch)).step(area)
    # On a few pixels both steps make as many roundings, in another order, and chance says which is nearer: of 700 such
    # areas the worst was 2.7 times as far. No float32 is nearer than 2^-24 of itself, so that much is always allowed.
    floor = 2**-24 * np.sqrt(sum(g.size for g in truth))
    assert distance(result.gradients, truth) <= 8 * max(distance(gradients, truth), floor)


@dataclass(frozen=True)
class Slow(ArrayArea):
    """An area that takes its time, another for each window and each seed."""

    seed: int = 0

    def read_image(self, window: Window) -> NDArray[np.uint8]:
        self._wait(window, 1)
        return super().read_image(window)

    def read_mask(self, window: Window) -> NDArray[np.uint8]:
        self._wait(window, 2)
        return super().read_mask(window)

    def _wait(self, window: Window, what: int) -> None:
        time.sleep(np.random.default_rng([self.seed, what, window.y.start, window.x.start]).exponential(0.003))


def test_the_result_depends_on_neither_workers_nor_time() -> None:
    model, area = of_settings(11, 4, 2, "float32"), random_area(5, 150, 200)
    results = []
    for workers in (1, 2, 2):
        slow = Slow(area.image, area.mask, seed=len(results))
        results.append(engine(model, ("down1_activation", "core_activation"), 3, workers).step(slow))
    for other in results[1:]:
        assert other.loss == results[0].loss
        assert all(np.array_equal(a, b) for a, b in zip(other.gradients, results[0].gradients, strict=True))
