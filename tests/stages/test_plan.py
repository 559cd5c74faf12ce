import json
import subprocess
import sys
from pathlib import Path

import pytest

from gigaslide import config
from gigaslide.memory import plan_file, planner
from gigaslide.network.describe import describe
from tests.stages.project import PARAMS, gigaslide, make_project

AREA = ("--height", "16000", "--width", "64000")
DEFAULT = ("--kernel", "11", "--stride", "4")


def test_the_table_marks_the_plan_that_is_chosen(tmp_path: Path) -> None:
    done = gigaslide(make_project(tmp_path), "plan", *AREA, *DEFAULT, "--budget-gb", "8", "--cores", "2")
    assert (done.returncode, done.stderr) == (0, "")
    graph = describe(config.load(PARAMS).network)
    found = planner.candidates(graph, (16000, 64000), 2)
    chosen = planner.choose(found, (16000, 64000), 8e9)
    lines = done.stdout.splitlines()
    marked = [line for line in lines if line.startswith("->")]
    assert len(marked) == 1
    assert chosen.plan.name in marked[0]
    assert f"{chosen.peak_bytes / 1e9:.2f}" in marked[0]
    whole = next(line for line in lines if line.split()[:1] == ["whole"])
    assert whole.split()[-1] == "no"
    assert 4 <= len(lines) <= 25


def test_the_plan_that_is_written_can_be_read_back(tmp_path: Path) -> None:
    folder = make_project(tmp_path)
    done = gigaslide(folder, "plan", *AREA, *DEFAULT, "--budget-gb", "2", "--cores", "3", "--json", "plan.json")
    assert done.returncode == 0, done.stderr
    values = json.loads((folder / "plan.json").read_text())
    assert values["extent_px"] == [16000, 64000]
    assert values["predicted_peak_bytes"] <= values["budget_bytes"] == 2e9
    graph = describe(config.load(PARAMS).network)
    plan = plan_file.read(folder / "plan.json", graph)
    assert plan == planner.choose(planner.candidates(graph, (16000, 64000), 3), (16000, 64000), 2e9).plan


def test_nothing_fits(tmp_path: Path) -> None:
    done = gigaslide(make_project(tmp_path), "plan", *AREA, "--budget-gb", "0.1", "--json", "plan.json")
    assert done.returncode == 1
    assert "does not fit 0.10 GB" in done.stderr
    assert "->" not in done.stdout
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"), [(("--kernel", "2", "--stride", "4"), "network: stride is at most kernel_size")]
)
def test_what_makes_no_sense_is_said(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    done = gigaslide(make_project(tmp_path), "plan", *AREA, *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_it_imports_neither_tensorflow_nor_anything_else_that_is_slow(tmp_path: Path) -> None:
    heavy = ["tensorflow", "keras", "numba", "scipy", "matplotlib", "tensorstore", "openslide", "mlflow", "skimage"]
    code = (
        "import sys; from gigaslide import config; from gigaslide.stages import plan; "
        f"plan.run(config.load(), (1000, 4000), 4.0, 2, None); print('found', *set({heavy}) & set(sys.modules))"
    )
    folder = make_project(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "found"
