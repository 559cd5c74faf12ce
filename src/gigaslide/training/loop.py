"""The training loop: one slide a step, validation after every epoch, the best weights kept.

Everything random in an epoch is drawn from (seed, epoch), and the state between two epochs is complete, so a run that
was killed and resumed takes the same steps as one that was not. Adam: Kingma and Ba 2015, arXiv 1412.6980. What is
validated and kept is a moving average of the weights (Polyak and Juditsky 1992): with one slide a step the weights
themselves jump from epoch to epoch.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras
import numpy as np

from gigaslide.config import Train
from gigaslide.evaluation.counts import Counts, count
from gigaslide.memory.meter import MemoryMeter
from gigaslide.streaming.engine import Area, Engine
from gigaslide.training.augment import augment
from gigaslide.training.checkpoint import TrainingState
from gigaslide.training.schedule import learning_rate

_BYTES_PER_GB = 1e9


class Observer(Protocol):
    """What is told of the progress: a progress bar, MLflow, a checkpoint."""

    def step(self, row: dict[str, Any]) -> None:
        """One step is done; `row` is its line in results/train/steps.csv."""

    def epoch(self, state: TrainingState) -> None:
        """One epoch is done, validation included; `state` is complete."""


def train(
    engine: Engine,
    train_areas: Sequence[Area],
    validation_areas: Sequence[Area],
    settings: Train,
    threshold: float,
    meter: MemoryMeter,
    observer: Observer,
    state: TrainingState,
    clock: Callable[[], float] = time.perf_counter,
) -> TrainingState:
    """Train from `state` to the end of the schedule, or until validation Dice has stopped rising.

    The model of `engine` ends with the best weights. Validation Dice is the mean over slides of the hard Dice at
    `threshold`; the first epoch that reached the highest one is the best.
    """
    model = engine.model
    optimizer = keras.optimizers.Adam(
        settings.learning_rate,
        global_clipnorm=settings.clip_norm,
        use_ema=True,
        ema_momentum=settings.average_momentum,
    )
    optimizer.build(model.trainable_variables)
    if state.weights:
        model.set_weights(state.weights)
        for variable, value in zip(optimizer.variables, state.optimizer, strict=True):
            variable.assign(value)
    steps = settings.epochs * len(train_areas)

    while state.epoch < settings.epochs and not _stalled(state, settings.patience_epochs):
        epoch_started = clock()
        random = np.random.default_rng([settings.seed, state.epoch])
        for index in random.permutation(len(train_areas)):
            area = train_areas[index]
            if settings.augment:
                area = augment(area, random)
            step = len(state.step_rows)
            rate = learning_rate(step, steps, settings.learning_rate, settings.warmup_steps)
            started = clock()
            with meter.interval() as interval:
                result = engine.step(area)
                optimizer.learning_rate = rate
                optimizer.apply(result.gradients)
            step_time_s = clock() - started
            megapixels = area.shape[0] * area.shape[1] / 1e6
            row = {
                "step": step,
                "epoch": state.epoch,
                "slide": area.name,
                "loss": result.loss,
                "soft_dice": result.soft_dice,
                "step_time_s": step_time_s,
                "data_wait_s": result.data_wait_s,
                "megapixels_per_s": megapixels / step_time_s,
                "memory_gb": interval.peak_bytes / _BYTES_PER_GB,
                "learning_rate": rate,
            }
            state.peak_memory_bytes = max(state.peak_memory_bytes, interval.peak_bytes)
            state.step_rows.append(row)
            observer.step(row)
        state.weights = model.get_weights()
        state.optimizer = [variable.numpy() for variable in optimizer.variables]
        # Validate the average of the weights, not where the last slide has thrown them.
        optimizer.finalize_variable_values(model.trainable_variables)
        with meter.interval() as interval:
            dice = slide_dice(engine, validation_areas, threshold)
        state.peak_memory_bytes = max(state.peak_memory_bytes, interval.peak_bytes)
        _close_epoch(state, dice, len(train_areas))
        if state.epoch_rows[-1]["is_best"]:
            state.best_weights = model.get_weights()
        model.set_weights(state.weights)
        state.train_time_s += clock() - epoch_started
        observer.epoch(state)

    model.set_weights(state.best_weights)
    return state


def slide_dice(engine: Engine, areas: Sequence[Area], threshold: float) -> list[float]:
    """Return the hard Dice at `threshold` of each of `areas`."""
    dice = []
    for area in areas:
        counts = Counts()
        for window, probability in engine.predict(area):
            counts += count(probability, area.read_mask(window), threshold)
        dice.append(counts.dice)
    return dice


def _close_epoch(state: TrainingState, slides: Sequence[float], steps: int) -> None:
    dice = float(np.mean(slides))
    is_best = dice > state.best_validation_dice
    if is_best:
        state.best_epoch, state.best_validation_dice = state.epoch, dice
    rows = state.step_rows[-steps:]
    state.epoch_rows.append(
        {
            "epoch": state.epoch,
            "loss": float(np.mean([row["loss"] for row in rows])),
            "soft_dice": float(np.mean([row["soft_dice"] for row in rows])),
            "validation_dice": dice,
            # Standard error of the mean over slides.
            "validation_dice_se": float(np.std(slides, ddof=1) / len(slides) ** 0.5) if len(slides) > 1 else 0.0,
            "is_best": is_best,
        }
    )
    state.epoch += 1


def _stalled(state: TrainingState, patience_epochs: int) -> bool:
    return state.epoch - 1 - state.best_epoch >= patience_epochs and state.epoch > 0
