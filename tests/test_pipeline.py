"""dvc.yaml against the code and the settings: what a stage reads is what makes it run again."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gigaslide import config
from gigaslide.cli import app
from tests.test_architecture import internal_imports

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/gigaslide"
STAGES: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
DEMO: dict[str, Any] = yaml.safe_load((ROOT / "demo/dvc.yaml").read_text())["stages"]
# They say or record something, or are settings that `params` names; no number depends on them.
NO_DEPENDENCY = {"mlflow_server", "config", "console", "errors", "machine", "provenance", "tracking", "__version__", ""}


def reached(module: str, graph: dict[str, set[str]]) -> set[str]:
    seen, left = set(), {module}
    while left:
        name = left.pop()
        if name in NO_DEPENDENCY or name in seen:
            continue
        seen.add(name)
        left |= graph.get(name, set())
    return seen


def file_of(module: str) -> Path:
    path = PACKAGE / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@pytest.mark.parametrize("stage", ["prepare", "train", "evaluate", "report"])
def test_a_stage_depends_on_all_code_it_runs(stage: str) -> None:
    graph = internal_imports(PACKAGE)
    deps = [ROOT / dep for dep in STAGES[stage]["deps"] if dep.startswith("src/")]
    assert all(dep.exists() for dep in deps)
    missing = []
    for module in sorted(reached(f"stages.{stage}", graph)):
        file = file_of(module)
        if file.name == "__init__.py" and len(file.read_text().splitlines()) == 1:
            continue  # only a docstring
        if not any(file == dep or dep in file.parents for dep in deps):
            missing.append(str(file.relative_to(ROOT)))
    assert missing == []


def test_demo_depends_on_its_code() -> None:
    assert {"src/gigaslide/demo", "src/gigaslide/stages/demo.py"} <= set(DEMO["demo"]["deps"])


def test_stage_block_command_and_results_have_one_name() -> None:
    blocks = set(config.Settings.model_fields)
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback}
    for stage, body in STAGES.items():
        assert body["cmd"] == f"gigaslide {stage}"
        assert stage in commands
        assert stage in blocks
        assert stage in {param.partition(".")[0] for param in body["params"]}
        outs = [next(iter(out)) if isinstance(out, dict) else out for out in body["outs"]]
        assert any(out.startswith(f"results/{stage}") for out in outs)


def test_every_block_of_the_settings_reruns_something() -> None:
    named = {param.partition(".")[0] for body in (*STAGES.values(), *DEMO.values()) for param in body.get("params", [])}
    # Names in MLflow change no result, nor does a cluster; a sweep is no stage.
    assert named == set(config.Settings.model_fields) - {"tracking", "sweep", "cluster"}


def test_what_mlflow_keeps_is_no_output() -> None:
    outs = [str(out) for body in STAGES.values() for out in (*body["outs"], *body.get("metrics", []))]
    assert not any("mlruns" in out for out in outs)
