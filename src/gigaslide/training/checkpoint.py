"""Everything the loop needs to go on as if it had never stopped, in one file that is replaced in one move.

A checkpoint belongs to one fingerprint (settings, slides, code): another one never continues it.
"""

import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gigaslide.files import atomic_path

_STATE = "state"


@dataclass
class TrainingState:
    """The loop between two epochs. Rows are what results/train/*.csv and MLflow get."""

    epoch: int = 0  # epochs done
    best_epoch: int = -1
    best_validation_dice: float = -1.0
    train_time_s: float = 0.0
    peak_memory_bytes: int = 0
    step_rows: list[dict[str, Any]] = field(default_factory=list)
    epoch_rows: list[dict[str, Any]] = field(default_factory=list)
    weights: list[NDArray[np.float32]] = field(default_factory=list)
    best_weights: list[NDArray[np.float32]] = field(default_factory=list)
    optimizer: list[NDArray[Any]] = field(default_factory=list)


_ARRAYS = ("weights", "best_weights", "optimizer")


def save(path: Path, state: TrainingState, fingerprint: str) -> None:
    """Write `state` to `path` (.npz) atomically."""
    plain = {key: value for key, value in vars(state).items() if key not in _ARRAYS}
    arrays: dict[str, Any] = {
        f"{key}/{index}": array for key in _ARRAYS for index, array in enumerate(getattr(state, key))
    }
    text = json.dumps({"fingerprint": fingerprint, **plain})
    with atomic_path(path) as temporary:
        np.savez(temporary, **{_STATE: np.array(text)}, **arrays)


def load(path: Path, fingerprint: str) -> TrainingState | None:
    """Return the state saved at `path`; None if there is none, or it belongs to other settings, slides or code."""
    try:
        with np.load(path, allow_pickle=False) as file:
            plain = json.loads(str(file[_STATE]))
            if plain.pop("fingerprint") != fingerprint:
                return None
            state = TrainingState(**plain)
            for key in _ARRAYS:
                count = sum(name.startswith(f"{key}/") for name in file.files)
                setattr(state, key, [file[f"{key}/{index}"] for index in range(count)])
            return state
    except (FileNotFoundError, zipfile.BadZipFile):
        return None
