import json
import subprocess
import sys
from pathlib import Path

import pytest

from gigaslide import config
from gigaslide.errors import UsageError
from gigaslide.memory import plan_file, planner
from gigaslide.memory.planner import DoesNotFit
from gigaslide.network.describe import describe
from gigaslide.stages import engines
from gigaslide.streaming.plan import Plan
from tests.stages.project import make_project, warm_gigaslide

PARAMS = Path(__file__).parents[2] / "params.yaml"
PAPER = (16000, 64000)


def _settings(**memory: object) -> config.Settings:
    settings = config.load(PARAMS)
    return settings.model_copy(update={"memory": settings.memory.model_copy(update=memory)})


def test_the_plan_is_made_for_the_largest_area() -> None:
    choice = engines.choose(_settings(), [(100, 100), (2000, 3000), (3000, 1000)])
    assert choice.shape == (2000, 3000)
    assert choice.candidate.plan.cuts


def test_what_the_machine_has_free_counts_if_it_is_less_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    class Free:
        available = 1_500_000_000

    monkeypatch.setattr(engines.psutil, "virtual_memory", Free)
    monkeypatch.setattr(engines.psutil.Process, "memory_info", lambda self: type("Info", (), {"rss": 700_000_000}))
    assert engines.choose(_settings(budget_gb=128), [(2000, 3000)]).budget_bytes == 2.2e9
    assert engines.choose(_settings(budget_gb=1.5), [(2000, 3000)]).budget_bytes == 1.5e9


def test_the_whole_image_is_refused_where_it_does_not_fit() -> None:
    with pytest.raises(DoesNotFit, match=r"memory\.plan: whole needs .* GB for 16000 x 64000 px.* auto"):
        engines.choose(_settings(plan="whole", budget_gb=40), [PAPER])


def test_one_gigabyte_is_refused_in_words() -> None:
    with pytest.raises(DoesNotFit, match=r"set memory\.budget_gb to"):
        engines.choose(_settings(budget_gb=0.2), [PAPER])


def test_maps_that_do_not_fit_the_disk_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Free:
        free = 1_000_000_000

    monkeypatch.setattr(engines.shutil, "disk_usage", lambda path: Free)
    monkeypatch.setattr(engines.psutil.Process, "memory_info", lambda self: type("Info", (), {"rss": 700_000_000}))
    with pytest.raises(UsageError, match=r"GB on disk and 1\.0 GB are free"):
        engines.choose(_settings(budget_gb=1.5), [PAPER])


def test_a_plan_for_a_cluster_need_not_fit_here_with_its_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.psutil.Process, "memory_info", lambda self: type("Info", (), {"rss": 700_000_000}))
    settings = _settings(budget_gb=2, plan=str(tmp_path / "plan.json"))
    graph = describe(settings.network)
    cut = graph.ops[1].name
    plan = Plan("wide", (cut,), dict.fromkeys((cut, graph.output.name), (512, 512)))
    found = planner.candidate(graph, PAPER, plan, 1)
    (tmp_path / "plan.json").write_text(json.dumps(plan_file.as_json(found, PAPER, 1e12)))
    with pytest.raises(DoesNotFit, match=r"plan\.json needs .* GB"):
        engines.choose(settings, [PAPER])
    choice = engines.choose(settings, [PAPER], maps_elsewhere=True)
    assert choice.candidate.peak_bytes > choice.budget_bytes
    # What follows the training is computed here, by another plan.
    assert engines.choose_here(settings.replaced({"cluster.address": "auto"}), [PAPER]).candidate.plan.name != "wide"
    with pytest.raises(DoesNotFit):
        engines.choose_here(settings, [PAPER])
    with pytest.raises(DoesNotFit, match=r"memory\.plan: whole needs"):
        engines.choose(_settings(plan="whole", budget_gb=3), [PAPER], maps_elsewhere=True)


@pytest.mark.slow
def test_a_plan_of_ones_own_trains(tmp_path: Path) -> None:
    folder = make_project(tmp_path, train={"epochs": 2}, memory={"plan": "mine.json"})
    plan = {"name": "mine", "cuts": ["down2"], "tiles_px": {"down2": [32, 48], "head": [64, 32]}, "workers": 2}
    (folder / "mine.json").write_text(json.dumps(plan))
    done = warm_gigaslide(folder, "train")
    assert done.returncode == 0, done.stderr
    summary = json.loads((folder / "results/train/summary.json").read_text())
    assert summary["plan"] == "mine"
    assert summary["predicted_peak_gb"] > 0
    written = json.loads((folder / "results/train/plan.json").read_text())
    assert {key: written[key] for key in plan} == plan


@pytest.mark.slow
def test_a_budget_that_is_passed_ends_training_with_exit_code_3(tmp_path: Path) -> None:
    folder = make_project(tmp_path, train={"epochs": 2})
    # The plan is believed to need little, and the process is already larger.
    code = (
        "import gigaslide.stages.engines as e, sys; from gigaslide.cli import main; choose = e.choose; "
        "import dataclasses; e.choose = lambda *a, **k: dataclasses.replace(choose(*a, **k), budget_bytes=3e8); "
        "sys.argv = ['gigaslide', 'train']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "the budget is 0.30 GB (plan cut:" in done.stderr
    assert "predicted" in done.stderr
    assert not (folder / "models/model.keras").exists()
