import csv
import json
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gigaslide import __version__, config, files
from gigaslide.errors import UsageError
from gigaslide.network.model_file import About, read_about
from gigaslide.stages import train
from tests.stages.project import command, make_project, warm_gigaslide, write_store
from tests.streaming.areas import easy_area

SAME = ("step", "epoch", "slide", "loss", "soft_dice", "learning_rate")


def _rows(folder: Path) -> tuple[list[list[str]], list[dict[str, str]], float]:
    with (folder / "results/train/steps.csv").open() as file:
        steps = [[row[key] for key in SAME] for row in csv.DictReader(file)]
    with (folder / "results/train/epochs.csv").open() as file:
        epochs = list(csv.DictReader(file))
    return steps, epochs, json.loads((folder / "results/train/summary.json").read_text())["validation_dice"]


def _query(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "mlruns/mlflow.db") as store:
        return store.execute(sql).fetchall()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_project(tmp_path_factory.mktemp("trained"), train={"epochs": 8})
    done = warm_gigaslide(folder, "train")
    assert done.returncode == 0, done.stderr
    return folder


def test_killed_and_started_again_it_ends_with_the_same_numbers_in_one_run(trained: Path, tmp_path: Path) -> None:
    folder = make_project(tmp_path, train={"epochs": 8})
    with subprocess.Popen(command("train"), cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch   4/8"):
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert not (folder / "models/model.keras").exists()
    done = warm_gigaslide(folder, "train")
    assert done.returncode == 0, done.stderr
    assert "going on after epoch" in done.stdout
    assert _rows(folder) == _rows(trained)
    assert _query(folder, "select name, status from runs") == [("k5-s2-seed0", "FINISHED")]
    for key, count in (("loss", 24), ("step_time_s", 24), ("validation_dice", 8), ("peak_memory_gb", 1)):
        steps = [step for (step,) in _query(folder, f"select step from metrics where key = '{key}' order by step")]
        assert steps == list(range(count)), key
    assert not (folder / "models/checkpoint").exists()


def test_what_a_run_records(trained: Path) -> None:
    params = dict(_query(trained, "select key, value from params"))
    assert (params["network.kernel_size"], params["network.stride"], params["train.seed"]) == ("5", "2", "0")
    metrics = {key for (key,) in _query(trained, "select distinct key from metrics")}
    per_step = {"loss", "soft_dice", "step_time_s", "data_wait_s", "megapixels_per_s", "memory_gb", "learning_rate"}
    assert per_step | {"validation_dice", "peak_memory_gb", "step_time_median_s"} <= metrics
    tags = dict(_query(trained, "select key, value from tags"))
    assert {"git_commit", "device", "plan", "machine.cpu", "machine.tensorflow"} <= set(tags)
    datasets = _query(
        trained,
        "select d.name, t.value from datasets d join inputs i on i.source_id = d.dataset_uuid "
        "join input_tags t on t.input_uuid = i.input_uuid order by 1",
    )
    assert datasets == [("stores-train", "train"), ("stores-validation", "validation")]
    noted = json.loads((trained / "models/run.json").read_text())
    assert (noted["mpp_um_per_px"], noted["mpp_range_um_per_px"]) == (0.5, [0.5, 0.5])
    assert noted["mpp_sources"] == {"openslide": 5}
    assert (params["mpp_um_per_px"], params["mpp_sources.openslide"]) == ("0.5", "5")
    with (trained / "results/train/slides.csv").open() as file:
        slides = [(row["slide"], row["split"], row["mpp_um_per_px"]) for row in csv.DictReader(file)]
    assert slides[0] == ("train0", "train", "0.5")
    assert len(slides) == 5
    assert list((trained / "mlruns/artifacts").rglob("train/slides.csv"))


def test_evaluate_and_report_go_on_in_the_same_run_and_the_better_model_becomes_champion(trained: Path) -> None:
    for stage in ("evaluate", "report"):
        done = warm_gigaslide(trained, stage)
        assert done.returncode == 0, done.stderr
    metrics = json.loads((trained / "results/evaluate/metrics.json").read_text())
    assert metrics["slide_count"] == 2
    logged = dict(_query(trained, "select key, value from latest_metrics"))
    assert logged["test_dice_mean"] == pytest.approx(metrics["dice_mean"])
    assert _query(trained, "select count(*), max(status) from runs") == [(1, "FINISHED")]
    assert _query(trained, "select alias, version from registered_model_aliases") == [("champion", 1)]
    assert (trained / "results/report/index.html").stat().st_size > 10_000
    assert list((trained / "mlruns/artifacts").rglob("report/index.html"))


def test_another_training_starts_anew_and_says_that_the_killed_one_was(tmp_path: Path) -> None:
    """The other one has a slide of another scanner, which it says as well."""
    folder = make_project(tmp_path, train={"epochs": 8})
    with subprocess.Popen(command("train"), cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line.startswith("epoch   1/8") for line in process.stdout)
        process.kill()
    make_project(tmp_path, train={"epochs": 2, "seed": 3})
    files.remove(folder / "data/stores/train1.zarr")
    write_store(folder / "data/stores/train1.zarr", easy_area(1, 96, 128), "train1", mpp_um_per_px=0.25)
    done = warm_gigaslide(folder, "train")
    assert done.returncode == 0, done.stderr
    assert "pixels of 0.25 to 0.5 um, so that a kernel of 5 px covers 1.25 um on one and 2.5 um on another" in (
        " ".join(done.stderr.split())
    )
    noted = json.loads((folder / "models/run.json").read_text())
    assert (noted["mpp_um_per_px"], noted["mpp_range_um_per_px"]) == (None, [0.25, 0.5])
    new = next(run for (run, name) in _query(folder, "select run_uuid, name from runs") if name == "k5-s2-seed3")
    logged = dict(_query(folder, f"select key, value from params where run_uuid = '{new}'"))
    assert (logged["mpp_um_per_px"], logged["mpp_range_um_per_px"]) == ("None", "[0.25, 0.5]")
    assert "going on" not in done.stdout
    assert sorted(_query(folder, "select name, status from runs")) == [
        ("k5-s2-seed0", "KILLED"),
        ("k5-s2-seed3", "FINISHED"),
    ]


def test_a_split_without_slides_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_project(tmp_path)
    (folder / "data/stores/index.json").write_text(json.dumps({"slides": []}))
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match="training needs a slide in the split 'train'"):
        train.run(config.load())
    assert not (folder / "mlruns").exists()


def test_the_network_carries_what_a_prediction_has_to_know(trained: Path) -> None:
    about = read_about(trained / "models/model.keras")
    noted = json.loads((trained / "models/run.json").read_text())
    summary = json.loads((trained / "results/train/summary.json").read_text())
    assert about == About(0.5, 0.5, summary["validation_dice"], noted["run_id"], __version__, summary["git_commit"])
