import json
from pathlib import Path

import pytest

from tests.stages.project import gigaslide, make_project


@pytest.mark.slow
def test_every_seed_is_trained_once_and_the_figures_are_those_of_the_runs(tmp_path: Path) -> None:
    folder = make_project(tmp_path)
    command = ("bench", "seeds", "--jobs", "2", "--json", "seeds.json", "--count")
    done = gigaslide(folder, *command, "2")
    assert done.returncode == 0, done.stderr
    results = json.loads((folder / "seeds.json").read_text())
    runs, figures = results["runs"], results["figures"]
    assert [run["seed"] for run in runs] == [0, 1]
    # Another seed is another network.
    assert runs[0]["test_dice"] != runs[1]["test_dice"]
    dice = [sum(run["test_dice"].values()) / 2 for run in runs]
    assert [run["test_dice_mean"] for run in runs] == pytest.approx(dice, abs=1e-6)
    assert figures["test_dice_mean"] == pytest.approx(sum(dice) / 2, abs=1e-6)
    assert figures["test_dice_sd"] == pytest.approx(abs(dice[0] - dice[1]) / 2**0.5, abs=2e-6)
    assert figures["test_dice_worst"] == pytest.approx(min(dice), abs=1e-6)
    assert figures["converged"] == sum(run["validation_dice"] >= 0.9 for run in runs)
    # Nothing of the project's own run was touched.
    assert not (folder / "models").exists()
    assert not (folder / "mlruns").exists()

    again = gigaslide(folder, *command, "2")
    assert again.returncode == 0, again.stderr
    assert "seed 0" not in again.stdout
    assert json.loads((folder / "seeds.json").read_text())["runs"] == runs


def test_without_stores_it_says_what_to_run(tmp_path: Path) -> None:
    folder = make_project(tmp_path)
    (folder / "data/stores/index.json").unlink()
    done = gigaslide(folder, "bench", "seeds")
    assert done.returncode == 2
    assert "run `make repro` first" in done.stderr
