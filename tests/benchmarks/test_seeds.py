import json
from pathlib import Path

import pytest

from gigaslide import config
from gigaslide.benchmarks import seeds
from gigaslide.errors import GigaslideError
from tests.stages.project import gigaslide, make_project

DICE = [0.97, 0.85, 0.95]


def fake(folder, settings, show):
    """Stand in for the stages, which tests/benchmarks/test_training.py runs: figures of the seed."""
    seed = settings.train.seed
    if seed == 7:
        raise GigaslideError("train failed: the loss is nan")
    assert (folder / "data/stores/index.json").exists()
    (folder / "models").mkdir()
    summary = {"validation_dice": DICE[seed], "best_epoch": seed, "peak_memory_gb": 1.2}
    slides = {"a": DICE[seed] - 0.01, "b": DICE[seed] + 0.01}
    return summary, {"dice_mean": DICE[seed], "dice_worst": DICE[seed] - 0.01, "slides": slides}


def test_every_seed_is_trained_once_and_the_figures_are_those_of_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_project(tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(seeds, "train_and_evaluate", fake)
    file = folder / "seeds.json"
    seeds.run(config.load(), 2, 2, file)
    seeds.run(config.load(), 3, 2, file)
    results = json.loads(file.read_text())
    runs, figures = results["runs"], results["figures"]
    assert [run["seed"] for run in runs] == [0, 1, 2]
    assert [run["test_dice_mean"] for run in runs] == DICE
    assert figures["test_dice_mean"] == pytest.approx(sum(DICE) / 3)
    assert figures["test_dice_sd"] == pytest.approx(0.0642910, abs=1e-6)
    assert (figures["test_dice_worst"], figures["converged"]) == (0.85, 2)
    assert capsys.readouterr().out.count("seed 0:") == 1
    # Nothing of the project's own run was touched.
    assert not (folder / "models").exists()
    assert not (folder / "mlruns").exists()


def test_a_training_that_fails_is_named_by_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_project(tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(seeds, "train_and_evaluate", fake)
    with pytest.raises(GigaslideError, match="seed 7: train failed: the loss is nan"):
        seeds._train(config.load(), 7, folder / "data/stores")


def test_without_stores_it_says_what_to_run(tmp_path: Path) -> None:
    folder = make_project(tmp_path)
    (folder / "data/stores/index.json").unlink()
    done = gigaslide(folder, "bench", "seeds")
    assert done.returncode == 2
    assert "run `make repro` first" in done.stderr
