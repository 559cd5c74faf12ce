"""What a training leaves: the network and what is noted beside it in models/, tables and numbers in results/train/."""

import csv
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from gigaslide import __version__, machine, provenance
from gigaslide.config import Settings
from gigaslide.files import atomic_path, write_text
from gigaslide.memory import plan_file
from gigaslide.network import model_file
from gigaslide.network.model_file import About
from gigaslide.slides.store import Store
from gigaslide.slides.working_resolution import table
from gigaslide.stages.engines import Choice
from gigaslide.stages.paths import MODEL_FILE, RUN_FILE, TRAIN
from gigaslide.streaming import devices
from gigaslide.streaming.engine import Engine
from gigaslide.training.checkpoint import TrainingState


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def median_step_s(state: TrainingState) -> float:
    """Return the median time of a step; the first one holds the tracing of the graph."""
    seconds = [row["step_time_s"] for row in state.step_rows]
    return float(statistics.median(seconds[1:] or seconds))


def summary(
    settings: Settings, state: TrainingState, engine: Engine, stores: Sequence[Store], choice: Choice
) -> dict[str, Any]:
    """Return the numbers of a training that has ended, as `results/train/summary.json` has them."""
    return {
        "parameters": engine.model.count_params(),
        "kernel_size": settings.network.kernel_size,
        "stride": settings.network.stride,
        "steps": len(state.step_rows),
        "epochs": state.epoch,
        "best_epoch": state.best_epoch,
        "validation_dice": state.best_validation_dice,
        "validation_dice_se": state.epoch_rows[state.best_epoch]["validation_dice_se"],
        "step_time_s": median_step_s(state),
        "megapixels_per_step": statistics.fmean(store.shape[0] * store.shape[1] for store in stores) / 1e6,
        "megapixels_per_s": statistics.median(row["megapixels_per_s"] for row in state.step_rows),
        "peak_memory_gb": state.peak_memory_bytes / 1e9,
        "train_time_s": state.train_time_s,
        "plan": engine.plan,
        "predicted_peak_gb": choice.candidate.peak_bytes / 1e9,
        "predicted_step_s": choice.candidate.step_s,
        "budget_gb": choice.budget_bytes / 1e9,
        "device": devices.device_name(),
        "machine": machine.describe_machine(),
        "git_commit": provenance.git_commit(),
    }


def write(
    model: keras.Model,
    state: TrainingState,
    choice: Choice,
    numbers: Mapping[str, Any],
    noted: Mapping[str, Any],
    by_split: Mapping[str, Sequence[Store]],
    threshold: float,
) -> None:
    """Write results/train/ and models/; what is `noted` beside the network (models/run.json) comes last.

    Args:
        model: the network, with the weights to keep.
        state: of the training.
        choice: the plan it ran by.
        numbers: see `summary`.
        noted: the run, and the resolution that the network was trained at.
        by_split: the slides.
        threshold: what its Dice was measured with.
    """
    plan = plan_file.as_json(choice.candidate, choice.shape, choice.budget_bytes)
    write_text(TRAIN / "plan.json", json.dumps(plan, indent=2) + "\n")
    _write_csv(TRAIN / "slides.csv", table(by_split))
    _write_csv(TRAIN / "steps.csv", state.step_rows)
    _write_csv(TRAIN / "epochs.csv", state.epoch_rows)
    write_text(TRAIN / "summary.json", json.dumps(numbers, indent=2) + "\n")
    about = About(
        noted["mpp_um_per_px"],
        threshold,
        state.best_validation_dice,
        noted["run_id"],
        __version__,
        numbers["git_commit"],
    )
    model_file.save(model, about, MODEL_FILE)
    write_text(RUN_FILE, json.dumps(noted, indent=2) + "\n")
