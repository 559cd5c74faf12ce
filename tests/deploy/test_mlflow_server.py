import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gigaslide import config, tracking
from gigaslide.errors import UsageError
from tests.deploy.mlflow_server import DEPLOY, Line, ask, server
from tests.stages.project import command, make_project, warm_gigaslide

EPOCHS = 12
STEPS = 3 * EPOCHS


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with server(tmp_path_factory.mktemp("mlflow")) as port:
        yield port


def steps(port: int, run_id: str, metric: str) -> list[int]:
    found = ask(port, "metrics/get-history", run_id=run_id, metric_key=metric, max_results=1000)
    return [int(point.get("step", 0)) for point in found.get("metrics", [])]


def runs(port: int) -> list[dict[str, Any]]:
    experiment = ask(port, "experiments/get-by-name", experiment_name="gigaslide")["experiment"]
    found: list[dict[str, Any]] = ask(port, "runs/search", experiment_ids=[experiment["experiment_id"]])["runs"]
    return found


def files(port: int, run_id: str, folder: str) -> set[str]:
    found = ask(port, "artifacts/list", run_id=run_id, path=folder)
    return {file["path"] for file in found.get("files", [])}


def test_a_training_outlives_the_server_s_absence_and_a_kill_and_nothing_is_missing_in_the_end(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off, mended, killed; cut off until the end; finished: one run with every step, its network the champion."""
    line = Line(port)
    folder = make_project(tmp_path, train={"epochs": EPOCHS}, tracking={"uri": f"http://127.0.0.1:{line.port}"})
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")  # what is gone here does not come back by waiting
    said: list[str] = []
    with subprocess.Popen(command("train"), cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            said.append(text)
            if text.startswith("epoch   2/"):
                line.cut()
            elif "logs later what is missing" in text:
                line.mend()
            elif "logs later what is missing" in "".join(said[:-3]):
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert "".join(said).count("logs later what is missing") == 1
    (run,) = runs(port)
    run_id = run["info"]["run_id"]
    assert run["info"]["status"] == "RUNNING"
    assert len(steps(port, run_id, "loss")) >= 9  # the epochs without a server, too

    with subprocess.Popen(
        command("train"), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        for text in process.stdout:
            if text.startswith("epoch "):
                line.cut()
                break
        rest, errors = process.communicate()
    assert process.returncode == 1
    assert f"epoch  {EPOCHS}/{EPOCHS}" in rest
    assert re.fullmatch(
        r"gigaslide: MLflow at http://127\.0\.0\.1:\d+ did not do what it was asked \(.+\): what was trained is kept, "
        "and the same command goes on from here\n",
        errors,
    )
    assert (folder / "models/checkpoint/state.npz").exists()

    line.mend()
    done = warm_gigaslide(folder, "train")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"going on after epoch {EPOCHS} of {EPOCHS}" in done.stdout
    assert not (folder / "mlruns").exists()
    (run,) = runs(port)
    assert (run["info"]["run_id"], run["info"]["status"]) == (run_id, "FINISHED")
    for metric, count in (("loss", STEPS), ("step_time_s", STEPS), ("validation_dice", EPOCHS), ("peak_memory_gb", 1)):
        assert steps(port, run_id, metric) == list(range(count)), metric
    params = {param["key"]: param["value"] for param in run["data"]["params"]}
    assert (params["network.kernel_size"], params["mpp_um_per_px"]) == ("5", "0.5")
    assert "tracking.uri" not in params
    assert {"git_commit", "plan", "machine.cpu"} <= {tag["key"] for tag in run["data"]["tags"]}
    assert [given["dataset"]["name"] for given in run["inputs"]["dataset_inputs"]] == [
        "stores-train",
        "stores-validation",
    ]
    assert {"train/steps.csv", "train/summary.json"} <= files(port, run_id, "train")

    for stage in ("evaluate", "report"):
        done = warm_gigaslide(folder, stage)
        assert done.returncode == 0, done.stderr
    found = ask(port, "registered-models/alias", name="gigaslide", alias="champion")["model_version"]
    measured = json.loads((folder / "results/evaluate/metrics.json").read_text())["dice_mean"]
    assert (found["version"], found["run_id"]) == ("1", run_id)
    assert float(next(tag["value"] for tag in found["tags"] if tag["key"] == "test_dice_mean")) == measured
    assert "report/index.html" in files(port, run_id, "report")
    fetched = tmp_path / "fetched.keras"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    about = tracking.fetch_model("models:/gigaslide@champion", fetched)
    assert about["run_id"] == run_id
    assert fetched.stat().st_size > 10_000
    assert not (folder / "mlruns").exists()
    line.cut()


def test_runs_within_a_run_and_a_champion_by_hand(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a sweep logs them; the address is the environment's, which is not changed by it."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}/")
    folder = tmp_path / "mlruns"
    parent = tracking.start("sweeps", "sweep a", folder)
    child = tracking.start("sweeps", "k3", folder, parent_run_id=parent.run_id)
    child.log_rows([{"step": step, "loss": 0.5} for step in range(250)])
    child.finish()
    parent.finish("KILLED")
    again = tracking.resume(parent.run_id, folder)
    assert again is not None
    assert (again.name, tracking.resume("0" * 32, folder)) == ("sweep a", None)
    data = ask(port, "runs/get", run_id=child.run_id)["run"]
    tags = {tag["key"]: tag["value"] for tag in data["data"]["tags"]}
    assert (tags["mlflow.parentRunId"], data["info"]["status"]) == (parent.run_id, "FINISHED")
    assert child.logged_steps("loss") == 250
    client = child._client
    client.create_registered_model("net")
    for number in ("1", "2"):
        client.create_model_version("net", data["info"]["artifact_uri"], child.run_id)
        if number == "1":
            client.set_registered_model_alias("net", "champion", "1")
    assert not child.promote("net", 2, 0.99)  # nobody knows how good the first one is
    client.delete_registered_model_alias("net", "champion")
    assert child.promote("net", 2, 0.97)
    assert ask(port, "registered-models/alias", name="net", alias="champion")["model_version"]["version"] == "2"
    assert os.environ["MLFLOW_TRACKING_URI"] == f"http://127.0.0.1:{port}/"
    assert not folder.exists()


@pytest.mark.parametrize("address", ["postgresql://host/mlflow", "mlflow.db", "databricks"])
def test_an_address_of_no_server_is_one_sentence(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    with pytest.raises(UsageError, match=f"should be the address of a tracking server.*it is {address}"):
        tracking.start("exp", "a", tmp_path / "mlruns")
    settings = config.load(DEPLOY.parent / "params.yaml")
    with pytest.raises(UsageError, match=r"tracking\.uri"):
        settings.replaced({"tracking.uri": address})
    with pytest.raises(UsageError, match=r"tracking\.uri"):
        settings.replaced({"tracking.uri": "http://user:secret@host:5000"})


def test_who_is_not_there_is_one_sentence_before_the_training(tmp_path: Path) -> None:
    done = warm_gigaslide(make_project(tmp_path, tracking={"uri": "http://127.0.0.1:9"}), "train")
    assert done.returncode == 1
    assert done.stderr == (
        "gigaslide: MLflow at http://127.0.0.1:9 did not do what it was asked ([Errno 111] Connection refused)\n"
    )
    assert not (tmp_path / "models").exists()


def test_the_script_needs_a_database() -> None:
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", DEPLOY / "mlflow/server.sh"], env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "MLFLOW_BACKEND_STORE_URI: has to name the database: postgresql+psycopg://" in done.stderr


def test_the_compose_file_holds_together() -> None:
    compose = yaml.safe_load((DEPLOY / "mlflow/compose.yaml").read_text())
    services = compose["services"]
    lock = (DEPLOY.parent / "uv.lock").read_text()
    locked = re.search(r'^name = "mlflow"\nversion = "(.+)"$', lock, re.M)
    assert locked is not None
    assert services["server"]["image"] == f"gigaslide-mlflow:{locked[1]}"
    assert f" mlflow=={locked[1]} " in services["server"]["build"]["dockerfile_inline"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= set(compose["volumes"])
    given = services["server"]["environment"]
    assert given["MLFLOW_BACKEND_STORE_URI"].endswith("@database/mlflow")
    assert given["AWS_SECRET_ACCESS_KEY"] == services["artifacts"]["environment"]["MINIO_ROOT_PASSWORD"]
    assert services["bucket"]["command"][-1] == given["MLFLOW_ARTIFACTS_DESTINATION"].removeprefix("s3://")
    asked = set(re.findall(r"\$\{(\w+):\?", (DEPLOY / "mlflow/compose.yaml").read_text()))
    assert asked == set(re.findall(r"^(\w+)=$", (DEPLOY / "mlflow/example.env").read_text(), re.M))
    copied = re.findall(r"^COPY (.*) /$", services["server"]["build"]["dockerfile_inline"], re.M)
    assert all((DEPLOY / "mlflow" / name).is_file() for name in copied[0].split())
