import json
from pathlib import Path

import pytest

from gigaslide import config
from gigaslide.benchmarks import training
from gigaslide.errors import UsageError
from tests.stages.project import make_project


def test_it_trains_on_one_store_and_leaves_the_project_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_project(tmp_path)
    monkeypatch.chdir(folder)
    training.run(config.load(), 2, 2.0, Path("figures.json"), Path("data/stores/train0.zarr"))
    figures = json.loads(Path("figures.json").read_text())
    assert figures["steps"] == 2
    assert figures["budget_gb"] == 2.0
    assert figures["predicted_peak_gb"] < 2
    assert figures["test_dice"]
    # The run is in the project's own MLflow, and nothing else is.
    assert (folder / "mlruns/mlflow.db").exists()
    assert not (folder / "models/model.keras").exists()
    assert not (folder / "results").exists()


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_project(tmp_path)
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match="--make-slide"):
        training.run(config.load(), 2, None, Path("figures.json"))
    monkeypatch.chdir(tmp_path.parent)
    with pytest.raises(UsageError, match="make repro"):
        training.run(config.load(folder / "params.yaml"), 2, None, Path("figures.json"))
