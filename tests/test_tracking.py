import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gigaslide import tracking
from gigaslide.errors import UsageError


def _query(folder: Path, sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(folder / "mlflow.db") as store:
        return store.execute(sql).fetchall()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mlruns"


def test_params_rows_tags_and_artifacts_are_in_the_store(folder: Path, tmp_path: Path) -> None:
    run = tracking.start("exp", "k11-s4-seed0", folder)
    run.log_params({"network.stride": 4, "labels.tissue_classes": "['Tissue']"})
    run.log_params({"network.stride": 8})  # the first value stays
    run.log_rows([{"step": i, "loss": 1 / (i + 1), "slide": "a"} for i in range(250)])
    run.set_tags({"device": "CPU"})
    (tmp_path / "page.html").write_text("x")
    run.log_artifact(tmp_path / "page.html", "report")
    run.finish()
    assert dict(_query(folder, "select key, value from params")) == {  # type: ignore[arg-type]
        "network.stride": "4",
        "labels.tissue_classes": "['Tissue']",
    }
    assert _query(folder, "select count(*), max(step) from metrics where key = 'loss'") == [(250, 249)]
    assert _query(folder, "select count(*) from metrics where key = 'slide'") == [(0,)]
    assert _query(folder, "select name, status from runs") == [("k11-s4-seed0", "FINISHED")]
    assert [p.name for p in (folder / "artifacts").rglob("*.html")] == ["page.html"]


def test_a_resumed_run_knows_how_far_it_was_logged(folder: Path) -> None:
    run = tracking.start("exp", "a", folder)
    assert run.logged_steps("loss") == 0
    run.log_rows([{"step": i, "loss": 0.5} for i in range(7)])
    run.finish("KILLED")
    again = tracking.resume(run.run_id, folder)
    assert again is not None
    assert again.logged_steps("loss") == 7
    assert _query(folder, "select status from runs") == [("RUNNING",)]
    assert tracking.resume("0" * 32, folder) is None


def test_datasets_carry_the_dvc_hash(folder: Path) -> None:
    run = tracking.start("exp", "a", folder)
    run.log_dataset("stores-train", "data/stores", "d41d8cd98f00b204e9800998ecf8427e.dir", "train")
    assert _query(folder, "select name, digest from datasets") == [
        ("stores-train", "d41d8cd98f00b204e9800998ecf8427e.dir")
    ]


def test_the_alias_moves_only_to_a_better_model(folder: Path) -> None:
    import keras
    import mlflow

    model = keras.Sequential([keras.Input((None, None, 3)), keras.layers.Conv2D(1, 1)])
    run = tracking.start("exp", "a", folder)
    moved = []
    for dice in (0.90, 0.95, 0.95, 0.93):
        version = run.log_model(model, "net", {"threshold": dice})
        moved.append(run.promote("net", version, dice))
    assert moved == [True, True, False, False]
    loaded = mlflow.tensorflow.load_model("models:/net@champion")
    image = np.random.default_rng(0).random((1, 4, 5, 3), np.float32)
    assert np.array_equal(loaded.predict(image, verbose=0), model.predict(image, verbose=0))
    signature = mlflow.models.get_model_info("models:/net@champion").signature
    assert signature.inputs.input_names() == ["image"]
    fetched = folder / "fetched.keras"
    for uri in ("models:/net@champion", "models:/net/2"):
        assert tracking.fetch_model(uri, fetched, folder) == {"threshold": 0.95}
        again = keras.saving.load_model(fetched)
        assert all(np.array_equal(a, b) for a, b in zip(again.get_weights(), model.get_weights(), strict=True))
    for uri in ("models:/net@nobody", "models:/other/1", "models:/net/99"):
        with pytest.raises(UsageError, match=f"{uri} should be a network in the registry of"):
            tracking.fetch_model(uri, fetched, folder)
    with pytest.raises(UsageError, match="names a network in MLflow's registry, and there is none in"):
        tracking.fetch_model("models:/net@champion", fetched, folder / "elsewhere")
    mlflow.set_tracking_uri(None)


# Each of the eight waits until all are there, MLflow imported: they come to the empty folder at one time.
EIGHT = """
import multiprocessing, sys
from pathlib import Path
import mlflow
from gigaslide import tracking

def log(number, all_here):
    all_here.wait()
    run = tracking.start("exp", f"run{number}", Path(sys.argv[1]))
    run.log_rows([{"step": i, "loss": 0.1} for i in range(20)])
    run.finish()

if __name__ == "__main__":
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    all_here = context.Barrier(8)
    workers = [context.Process(target=log, args=(number, all_here)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(sum(worker.exitcode != 0 for worker in workers))
"""


@pytest.mark.slow
def test_eight_processes_create_one_store(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "eight.py").write_text(EIGHT)
    command = [sys.executable, str(tmp_path / "eight.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert _query(folder, "select count(*) from experiments where name = 'exp'") == [(1,)]
    assert _query(folder, "select count(*) from runs where status = 'FINISHED'") == [(8,)]
    assert _query(folder, "select count(*) from metrics") == [(160,)]
