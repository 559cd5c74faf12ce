from pathlib import Path

import numpy as np

from gigaslide.training import checkpoint
from gigaslide.training.checkpoint import TrainingState


def _state() -> TrainingState:
    random = np.random.default_rng(0)
    return TrainingState(
        epoch=2,
        best_epoch=1,
        best_validation_dice=1 / 3,
        step_rows=[{"step": 0, "slide": "a", "loss": 0.1 + 0.2}],
        # More than ten: their order must not become that of their names.
        weights=[random.normal(size=(i + 1,)).astype(np.float32) for i in range(12)],
        best_weights=[np.float32(1).reshape(1)],
        optimizer=[np.array(7), np.array([1.5], np.float32)],
    )


def test_what_is_loaded_is_what_was_saved_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "c" / "state.npz"
    checkpoint.save(path, _state(), "print")
    loaded = checkpoint.load(path, "print")
    assert loaded is not None
    for key, value in vars(_state()).items():
        if key in ("weights", "best_weights", "optimizer"):
            pairs = list(zip(value, getattr(loaded, key), strict=True))
            assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)
        else:
            assert getattr(loaded, key) == value
    assert list(path.parent.iterdir()) == [path]


def test_another_fingerprint_no_file_or_a_broken_file_is_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    assert checkpoint.load(path, "print") is None
    checkpoint.save(path, _state(), "print")
    assert checkpoint.load(path, "other") is None
    path.write_bytes(path.read_bytes()[:100])
    assert checkpoint.load(path, "print") is None
