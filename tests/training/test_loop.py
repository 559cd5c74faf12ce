from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gigaslide import config
from gigaslide.memory.meter import MemoryMeter
from gigaslide.network import unet
from gigaslide.streaming.whole import WholeImage
from gigaslide.training import checkpoint, loop
from gigaslide.training.checkpoint import TrainingState
from tests.streaming.areas import easy_area

SETTINGS = config.load(Path(__file__).parents[2] / "params.yaml")
NETWORK = SETTINGS.network.model_copy(update={"kernel_size": 5, "stride": 2})
TRAIN = SETTINGS.train.model_copy(update={"epochs": 4, "warmup_steps": 2, "average_momentum": 0.5})
AREAS = [easy_area(seed, 64, 80) for seed in range(3)]
VALIDATION = [easy_area(seed, 64, 64) for seed in (10, 11)]


class Recorder:
    """Keeps what it is told; ends the loop after `stop_after` epochs as a kill would, but from within."""

    def __init__(self, path: Path | None = None, stop_after: int | None = None) -> None:
        self.steps: list[dict[str, Any]] = []
        self.path, self.stop_after = path, stop_after

    def step(self, row: dict[str, Any]) -> None:
        self.steps.append(row)

    def epoch(self, state: TrainingState) -> None:
        if self.path:
            checkpoint.save(self.path, state, "f")
        if state.epoch == self.stop_after:
            raise KeyboardInterrupt


def _train(observer: Recorder, state: TrainingState | None = None, **changes: Any) -> tuple[WholeImage, TrainingState]:
    engine = WholeImage(unet.build(NETWORK, 0), NETWORK.total_stride, 1, 1)
    settings = TRAIN.model_copy(update=changes)
    state = state or TrainingState()
    return engine, loop.train(engine, AREAS, VALIDATION, settings, 0.5, MemoryMeter(), observer, state)


def _numbers(state: TrainingState) -> Any:
    keys = ("step", "epoch", "slide", "loss", "soft_dice", "learning_rate")
    return [[row[key] for key in keys] for row in state.step_rows], state.epoch_rows, state.best_epoch


def test_it_learns_discs_on_glass() -> None:
    _, state = _train(Recorder(), epochs=25)
    assert state.best_validation_dice > 0.95


def test_stopped_after_any_epoch_and_resumed_it_ends_with_the_same_numbers(tmp_path: Path) -> None:
    engine, unbroken = _train(Recorder())
    for stop_after in (1, 3):
        path = tmp_path / f"{stop_after}.npz"
        with pytest.raises(KeyboardInterrupt):
            _train(Recorder(path, stop_after))
        resumed_engine, resumed = _train(Recorder(), checkpoint.load(path, "f"))
        assert _numbers(resumed) == _numbers(unbroken)
        for a, b in zip(engine.model.get_weights(), resumed_engine.model.get_weights(), strict=True):
            assert np.array_equal(a, b)


def test_every_epoch_sees_every_slide_once_in_another_order() -> None:
    _, state = _train(Recorder())
    epochs = [[r["slide"] for r in state.step_rows if r["epoch"] == epoch] for epoch in range(4)]
    assert all(sorted(slides) == sorted(a.name for a in AREAS) for slides in epochs)
    assert len({tuple(slides) for slides in epochs}) > 1


def test_the_model_ends_with_the_best_epochs_weights() -> None:
    engine, state = _train(Recorder())
    best = max(state.epoch_rows, key=lambda row: row["validation_dice"])
    assert state.best_epoch == best["epoch"]
    assert np.mean(loop.slide_dice(engine, VALIDATION, 0.5)) == best["validation_dice"]


def test_it_stops_when_validation_dice_no_longer_rises() -> None:
    # A rate this small changes no pixel's class: the first epoch stays the best.
    _, state = _train(Recorder(), epochs=20, learning_rate=1e-12, patience_epochs=3)
    assert (state.best_epoch, state.epoch) == (0, 4)


def test_rows_hold_what_the_table_needs() -> None:
    observer = Recorder()
    _, state = _train(observer, epochs=1)
    assert observer.steps == state.step_rows
    row = state.step_rows[0]
    assert row["megapixels_per_s"] == pytest.approx(64 * 80 / 1e6 / row["step_time_s"])
    assert 0 < row["data_wait_s"] < row["step_time_s"]
    assert row["memory_gb"] > 0.05
    assert state.peak_memory_bytes / 1e9 >= row["memory_gb"]
