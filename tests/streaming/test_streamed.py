import gc
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gigaslide import config
from gigaslide.geometry import Window
from gigaslide.network import unet
from gigaslide.network.describe import describe
from gigaslide.streaming.plan import Plan, Storage, balanced_tile, segments
from gigaslide.streaming.streamed import Streamed
from tests.networks import randomise
from tests.streaming.areas import ArrayArea, random_area
from tests.streaming.test_maps import counts_open_files, open_files

NETWORK = config.load(Path(__file__).parents[2] / "params.yaml").network.model_copy(
    update={"kernel_size": 3, "stride": 2}
)
GRAPH = describe(NETWORK)
CUTS = ("down1_activation", "core_activation")


def engine_with(
    scratch: Path, storage: Storage = "ram", workers: int = 2, precision: str | None = None, weights: int | None = 0
) -> Streamed:
    model = unet.build(NETWORK, 0)
    if weights is not None:
        randomise(model, weights)
    tiles = {segment.output: (8, 12) for segment in segments(GRAPH, CUTS)}
    return Streamed(model, Plan("test", CUTS, tiles, storage, workers), 0.6, 0.4, precision, scratch)


@dataclass(frozen=True)
class Torn(ArrayArea):
    """An area that cannot be read from some row on, or whose mask cannot."""

    torn_from: int = 20
    only_mask: bool = False

    def read_image(self, window: Window) -> NDArray[np.uint8]:
        if not self.only_mask:
            self._check(window)
        return super().read_image(window)

    def read_mask(self, window: Window) -> NDArray[np.uint8]:
        self._check(window)
        return super().read_mask(window)

    def _check(self, window: Window) -> None:
        if window.y.stop > self.torn_from:
            raise OSError(f"cannot read rows {window.y.start} to {window.y.stop}")


def test_functions_are_traced_in_the_first_step_and_never_again(tmp_path: Path) -> None:
    engine = engine_with(tmp_path)
    assert engine.traces == 0
    # One tile, all of it at the image's edge.
    engine.step(random_area(0, 4, 4))
    traces = engine.traces
    for shape in ((4, 4), (40, 50), (1, 1), (33, 7), (100, 12)):
        engine.step(random_area(0, *shape))
    assert engine.traces == traces
    list(engine.predict(random_area(0, 5, 5)))
    traces = engine.traces
    list(engine.predict(random_area(0, 40, 50)))
    assert engine.traces == traces


@pytest.mark.parametrize("seed", range(3))
def test_bfloat16_is_as_far_off_as_its_rounding_and_its_sums_are_float32(tmp_path: Path, seed: int) -> None:
    area = random_area(seed, 64, 96)
    exact = engine_with(tmp_path, weights=None).step(area)
    rounded = engine_with(tmp_path, precision="bfloat16", weights=None).step(area)
    # Each of the network's layers rounds its input, its weights and, backward, the slope: three times half of 2**-8, at
    # worst all in one direction.
    layers = sum(op.parameters > 0 for op in GRAPH.ops)
    bound = 3 * layers * 2.0**-9
    for a, b in zip(rounded.gradients, exact.gradients, strict=True):
        assert a.dtype == b.dtype
    a, b = (np.concatenate([np.ravel(g) for g in found.gradients]) for found in (rounded, exact))
    distance = np.linalg.norm(a - b) / np.linalg.norm(b)
    assert 2.0**-20 < distance < bound
    assert abs(rounded.loss - exact.loss) < bound * exact.loss


@pytest.mark.parametrize("storage", ["ram", "disk"])
@pytest.mark.parametrize("only_mask", [False, True])
def test_an_area_that_cannot_be_read_ends_the_step_and_nothing_else(
    tmp_path: Path, storage: Storage, only_mask: bool
) -> None:
    engine, area = engine_with(tmp_path, storage), random_area(1, 40, 36)
    before = engine.step(area)
    threads = threading.active_count()
    torn = Torn(area.image, area.mask, only_mask=only_mask)
    for attempt in (engine.step, lambda area: list(engine.predict(area))):
        if only_mask and attempt != engine.step:
            continue  # a prediction needs no mask
        with pytest.raises(OSError, match="cannot read rows"):
            attempt(torn)
        gc.collect()
        assert threading.active_count() == threads
        assert open_files(tmp_path) == []
    after = engine.step(area)
    assert after.loss == before.loss
    assert all(np.array_equal(a, b) for a, b in zip(after.gradients, before.gradients, strict=True))


@counts_open_files
def test_a_prediction_that_nobody_reads_to_its_end_gives_everything_back(tmp_path: Path) -> None:
    engine, threads = engine_with(tmp_path, "disk"), threading.active_count()
    windows = engine.predict(random_area(0, 60, 60))
    next(windows)
    assert len(open_files(tmp_path)) == 2
    windows.close()  # type: ignore[attr-defined]
    assert open_files(tmp_path) == []
    assert threading.active_count() == threads


@pytest.mark.parametrize("workers", [1, 2])
def test_predicted_windows_come_row_by_row_and_cover_the_area(tmp_path: Path, workers: int) -> None:
    found = list(engine_with(tmp_path, workers=workers).predict(random_area(0, 29, 31)))
    seen = np.zeros((29, 31), int)
    for window, probability in found:
        assert probability.shape == window.shape
        seen[window.slices] += 1
    assert (seen == 1).all()
    starts = [(window.y.start, window.x.start) for window, _ in found]
    assert starts == sorted(starts)


def test_the_weights_are_those_at_the_time_of_a_step(tmp_path: Path) -> None:
    engine, area = engine_with(tmp_path), random_area(2, 20, 20)
    first = engine.step(area)
    randomise(engine.model, 1)
    changed = engine.step(area)
    assert changed.loss != first.loss
    randomise(engine.model, 0)
    assert engine.step(area).loss == first.loss


def test_no_buffer_is_kept_from_step_to_step_beyond_the_first(tmp_path: Path) -> None:
    engine, area = engine_with(tmp_path), random_area(3, 60, 60)
    engine.step(area)
    # A buffer is out while its tile is read, waits and is computed: three tiles for each of two workers, and the one
    # whose result is taken; each of two inputs and a gradient.
    most = (2 * 3 + 1) * 3
    for _ in range(3):
        engine.step(area)
        assert len(engine._buffers._free) <= most


@pytest.mark.parametrize(
    ("area", "tile", "expected"),
    [((64, 64), (64, 64), (64, 64)), ((65 * 16, 16), (512, 512), (352, 16)), ((16, 16), (4096, 4096), (16, 16))],
)
def test_tiles_of_an_area_are_of_nearly_one_size(
    area: tuple[int, int], tile: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert balanced_tile(area, tile, (16, 16)) == expected
