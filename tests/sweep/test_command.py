"""The command as a user types it, with real trainings of a few steps."""

import json
import subprocess
import time

import psutil
import pytest
import yaml

from gigaslide import config, tracking
from gigaslide.errors import UsageError
from gigaslide.sweep import command
from tests.stages.project import command as command_line
from tests.stages.project import make_project, warm_gigaslide

SPACE = {"network.kernel_size": [5], "network.stride": [2, 4, 8], "train.learning_rate": [0.008]}
VALUES = {"train.epochs": 2}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Return a project in which a sweep of two cells has ended, and what the command said."""
    folder = make_project(tmp_path_factory.mktemp("swept"), sweep={"space": SPACE, "values": VALUES, "jobs": 2})
    done = warm_gigaslide(folder, "sweep")
    assert done.returncode == 0, done.stderr
    return folder, done


def runs(folder):
    client = tracking._client(folder / "mlruns", None)[0]
    experiment = client.get_experiment_by_name("gigaslide")
    return client, client.search_runs([experiment.experiment_id])


@pytest.mark.slow
def test_it_says_what_it_tried_and_what_to_take(swept):
    folder, done = swept
    assert "left out: kernel_size 5, stride 8" in done.stdout
    lines = [line for line in done.stdout.splitlines() if "GB predicted at the sweep's extent" in line]
    assert len(lines) == 2
    assert "2/2" in lines[-1]
    assert "recommended: kernel_size" in done.stdout
    table = json.loads((folder / "results/sweep/trials.json").read_text())
    assert [row["state"] for row in table] == ["complete"] * 2 + ["left out"]
    assert all(0 < row["step_time_s"] < 60 and 0.3 < row["peak_memory_gb"] < 4 for row in table[:2])
    assert all(row["predicted_peak_gb"] > row["predicted_here_gb"] > 0.5 for row in table[:2])
    names = {file.name for file in (folder / "results/sweep").iterdir()}
    assert {"heat_maps.png", "pareto.png", "importance.png", "feasibility.png", "trials.csv"} <= names
    assert (folder / "models").exists() is False, "the project's own model is not the sweep's"


@pytest.mark.slow
def test_mlflow_has_one_run_for_all_and_one_below_it_for_each(swept):
    folder, _ = swept
    client, found = runs(folder)
    (parent,) = [run for run in found if run.data.tags.get("kind") == "sweep"]
    children = [run for run in found if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert len(children) == 2
    assert {run.info.run_name.split(",")[0] for run in children} == {"k5-s2", "k5-s4"}
    assert {run.info.status for run in found} == {"FINISHED"}
    asked = {"feasible", "predicted_peak_gb", "peak_memory_gb", "predicted_here_gb", "validation_dice"}
    asked |= {"best_validation_dice", "step_time_s", "step_time_median_s", "loss", "memory_gb"}
    for child in children:
        assert asked <= set(child.data.metrics)
        assert child.data.metrics["feasible"] == 1.0
        assert child.data.params["network.kernel_size"] == child.info.run_name[1]
        assert child.data.tags["state"] == "complete"
        assert child.data.tags["git_commit"] == parent.data.tags["git_commit"]
    pictures = {artifact.path for artifact in client.list_artifacts(parent.info.run_id, "sweep")}
    assert {"sweep/heat_maps.png", "sweep/pareto.png", "sweep/trials.csv", "sweep/feasibility.png"} <= pictures
    assert parent.data.metrics["trials_complete"] == 2.0


@pytest.mark.slow
def test_again_it_trains_nothing_and_says_the_same(swept):
    folder, done = swept
    before = (folder / "results/sweep/trials.json").read_bytes()
    again = warm_gigaslide(folder, "sweep")
    assert again.returncode == 0
    assert "predicted at the sweep's extent" not in again.stdout
    assert again.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]
    assert (folder / "results/sweep/trials.json").read_bytes() == before
    assert len(runs(folder)[1]) == 3


@pytest.mark.slow
def test_other_settings_are_another_study(swept):
    folder, _ = swept
    refused = warm_gigaslide(folder, "sweep", "--budget-gb", "64")
    assert refused.returncode == 2
    assert "memory.budget_gb: 128 -> 64" in refused.stderr
    assert "--fresh" in refused.stderr


@pytest.mark.slow
def test_apply_changes_params_and_nothing_else_does(swept):
    folder, _ = swept
    before = yaml.safe_load((folder / "params.yaml").read_text())
    recommended = json.loads((folder / "results/sweep/recommendation.json").read_text())["values"]
    done = warm_gigaslide(folder, "sweep", "apply")
    assert done.returncode == 0, done.stderr
    after = yaml.safe_load((folder / "params.yaml").read_text())
    for name, value in recommended.items():
        block, key = name.split(".")
        before[block][key] = value
    assert after == before
    assert "already" in warm_gigaslide(folder, "sweep", "apply").stdout


@pytest.mark.slow
def test_with_one_gigabyte_the_whole_image_is_nowhere_feasible(swept):
    folder, _ = swept
    refused = warm_gigaslide(folder, "sweep", "--plan", "whole", "--budget-gb", "1", "--name", "small")
    assert refused.returncode == 1
    assert "no trial is feasible: all 2 need more than memory.budget_gb: 1" in refused.stderr
    assert refused.stdout.count("not run") == 2
    client, found = runs(folder)
    (parent,) = [run for run in found if run.info.run_name == "sweep small"]
    children = [run for run in found if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert [run.data.metrics["feasible"] for run in children] == [0.0] * 2
    assert all("not run" in run.data.tags["reason"] for run in children)
    assert all(run.data.metrics["predicted_peak_gb"] > 50 > run.data.metrics["predicted_here_gb"] for run in children)
    assert client.get_run(parent.info.run_id).info.status == "FINISHED"


@pytest.mark.slow
def test_a_training_that_raises_is_named_with_its_reason(tmp_path):
    space = {"network.kernel_size": [5], "train.learning_rate": [1e30]}
    folder = make_project(tmp_path, sweep={"space": space, "values": VALUES})
    done = warm_gigaslide(folder, "sweep")
    assert done.returncode == 1
    assert "trial 0 failed: the loss is" in done.stdout
    assert "lower train.learning_rate (now 1e+30)" in done.stdout
    assert not list(folder.rglob("model.keras"))
    assert "no trial is complete (1 failed)" in done.stderr
    _, found = runs(folder)
    assert sorted(run.info.status for run in found) == ["FAILED", "FINISHED"]


@pytest.mark.slow
def test_two_commands_in_one_folder_share_the_work_and_the_tables(swept):
    folder, _ = swept
    line = command_line("sweep", "--plan", "whole", "--budget-gb", "1", "--name", "both")
    started = [subprocess.Popen(line, cwd=folder, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=300)[1] for process in started]
    assert all("no trial is feasible: all 2" in text for text in said), said
    _, found = runs(folder)
    (parent,) = [run for run in found if run.info.run_name == "sweep both"]
    children = [run for run in found if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert len(children) == 2


@pytest.mark.slow
def test_stopped_from_outside_it_leaves_nothing_open(tmp_path):
    values = {"train.epochs": 100_000}
    folder = make_project(tmp_path, sweep={"space": {"network.kernel_size": [5]}, "values": values})
    process = subprocess.Popen(command_line("sweep"), cwd=folder, stdout=subprocess.PIPE, text=True)
    progress = folder / "results/sweep/trials/kernel-stride/kernel_size-5/progress.json"
    end = time.monotonic() + 300
    while not progress.exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    children = psutil.Process(process.pid).children()
    assert len(children) == 1
    process.terminate()
    assert process.wait(60) != 0
    assert "goes on from here" in process.stdout.read()
    assert not children[0].is_running()
    _, found = runs(folder)
    assert {run.info.status for run in found} == {"KILLED"}
    assert len(found) == 2


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    folder = make_project(tmp_path)
    monkeypatch.chdir(folder)
    settings = config.load()
    index = folder / "data/stores/index.json"
    slides = json.loads(index.read_text())["slides"]
    index.write_text(json.dumps({"slides": [slide for slide in slides if slide["split"] != "validation"]}))
    with pytest.raises(UsageError, match="train and validation"):
        command.run(settings, fresh=False)
