import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gigaslide import __version__
from gigaslide.cli import app
from gigaslide.stages import prepare
from tests.stages.project import gigaslide, make_project, warm_gigaslide


def test_help_names_every_stage_in_order(tmp_path: Path) -> None:
    done = gigaslide(tmp_path, "--help")
    assert done.returncode == 0
    places = [done.stdout.index(f" {name} ") for name in ("demo", "prepare", "train", "evaluate", "report", "bench")]
    assert places == sorted(places)


def test_version(tmp_path: Path) -> None:
    assert gigaslide(tmp_path, "--version").stdout == f"gigaslide {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [("fly",), ("train", "--fast"), ("bench", "seeds", "--count", "0"), ("add", "x", "--move", "--copy")]
)
def test_wrong_words_exit_with_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = gigaslide(tmp_path, *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("stage", ["demo", "add x", "cohort check", "prepare", "train", "evaluate", "report"])
def test_outside_a_project_every_stage_says_so(tmp_path: Path, stage: str) -> None:
    done = gigaslide(tmp_path, *stage.split())
    assert done.returncode == 2
    assert done.stderr == f"gigaslide: params.yaml is not in {tmp_path}: run gigaslide in the project's folder\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("prepare", "cohort.csv"),
        ("evaluate", "run `gigaslide train` first"),
        ("report", "run `gigaslide train` first"),
    ],
)
def test_a_stage_without_its_input_says_what_to_run(tmp_path: Path, stage: str, message: str) -> None:
    done = (gigaslide if stage == "prepare" else warm_gigaslide)(make_project(tmp_path), stage)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = gigaslide(tmp_path, "--debug", "train")
    assert done.returncode != 0
    assert "Traceback" in done.stderr


def test_an_unforeseen_error_is_no_traceback_either(tmp_path: Path) -> None:
    folder = make_project(tmp_path)
    (folder / "results").write_text("in the way")
    code = (
        "import sys; from gigaslide import cli, config\n"
        "def broken(*_): raise RuntimeError('boom')\n"
        "config.load = broken; sys.argv = ['gigaslide', 'train']; cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 1
    assert done.stderr.startswith("gigaslide: RuntimeError: boom (this is a defect")


@pytest.mark.parametrize(("arguments", "fraction"), [((), 0.01), (("--strict",), 0.0)])
def test_strict_allows_no_corrupt_pixel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], fraction: float
) -> None:
    seen = []
    monkeypatch.chdir(make_project(tmp_path))
    monkeypatch.setattr(prepare, "run", lambda settings: seen.append(settings.slides.max_corrupt_fraction) or 0)
    assert CliRunner().invoke(app, ["prepare", *arguments]).exit_code == 0
    assert seen == [fraction]
