import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TARGETS = ["setup", "repro", "test", "slow", "check", "docs", "ui", "sweep", "bench", "clean"]
TOOLS = ["sh", "awk", "cat", "cut", "find", "make", "mkdir", "rm", "touch"]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


@pytest.fixture
def project(tmp_path):
    """An empty project: the Makefile and what its set-up reads, no .venv."""
    folder = tmp_path / "project with a space"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture
def tools(tmp_path):
    """A folder for PATH with what the Makefile needs, but no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool))
    return folder


def python_named(folder, name, version):
    """Put a program on the PATH that says it is Python `version`, and fails to import venv."""
    program = folder / name
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.version_info = {version}\n"
        "if 'venv' in sys.argv[2]: sys.exit(1)\nexec(sys.argv[2])\n"
    )
    program.chmod(0o755)


def make(project, *arguments, path=None, **environment):
    """Run make as a user would, who is not in the middle of another make."""
    foreign = re.compile(r"MAKE|MFLAGS|PIP_|UV_|PYTHON$")
    clean = {key: value for key, value in os.environ.items() if not foreign.match(key)}
    clean |= environment | ({} if path is None else {"PATH": str(path)})
    command = [shutil.which("make"), *arguments]
    return subprocess.run(command, cwd=project, env=clean, capture_output=True, text=True, timeout=300)


def one_sentence(error):
    """The line of ours in what make wrote to stderr."""
    lines = [line for line in error.splitlines() if line.startswith("Set-up stopped: ")]
    assert len(lines) == 1, error
    return lines[0]


def test_bare_make_lists_every_target_with_a_line_and_does_nothing(project):
    done = make(project)
    listed = re.findall(r"^  make (\w+) +\S.{10,}$", done.stdout, re.MULTILINE)
    assert (done.returncode, listed, done.stderr) == (0, TARGETS, "")
    assert not (project / ".venv").exists()


def test_the_recipes_stay_within_make_3_81_and_posix(project):
    text = (ROOT / "Makefile").read_text()
    assert not re.search(r"^\.ONESHELL|::=|\$\(file |\[\[|&>|\bpipefail\b", text, re.MULTILINE)


@pytest.mark.parametrize("target", ["setup", "repro", "test"])
def test_no_python(project, tools, target):
    done = make(project, target, path=tools)
    assert done.returncode == 2
    assert "Python 3.11 or 3.12 is needed, and none is on the PATH" in one_sentence(done.stderr)
    assert not (project / ".venv").exists()


def test_only_a_python_of_another_version(project, tools):
    python_named(tools, "python3", (3, 13, 0))
    assert "none is on the PATH" in one_sentence(make(project, "setup", path=tools).stderr)


def test_a_named_python_that_does_not_fit(project):
    done = make(project, "setup", "PYTHON=/no/such/python")
    assert done.returncode == 2
    assert "/no/such/python is not one" in one_sentence(done.stderr)


def test_a_python_without_venv(project, tools):
    python_named(tools, "python3.12", (3, 12, 1))
    done = make(project, "setup", path=tools)
    assert done.returncode == 2
    assert "python3.12 has no venv module" in one_sentence(done.stderr)


def test_no_network_then_the_half_made_environment_is_made_anew(project):
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    unreachable |= {"PIP_CONFIG_FILE": os.devnull, "PYTHON": sys.executable}
    done = make(project, "setup", **unreachable)
    assert done.returncode == 2
    assert "is there a network connection" in one_sentence(done.stderr)
    assert not (project / ".venv/.set-up").exists()
    (project / ".venv/left-over").touch()
    assert make(project, "setup", **unreachable).returncode == 2
    assert not (project / ".venv/left-over").exists()


def test_clean_keeps_slides_runs_and_the_cache(project):
    kept = ["data/demo/a.tif", "data/mine.svs", "mlruns/mlflow.db", ".dvc/cache/x", "models/mine.keras"]
    removed = ["results/a.html", "data/stores/a.zarr/c", "models/model.keras", "src/a/__pycache__/a.pyc"]
    for name in kept + removed:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    (project / "tests").mkdir()
    assert make(project, "clean").returncode == 0
    assert [name for name in kept + removed if (project / name).exists()] == kept
