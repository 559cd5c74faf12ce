"""deploy/two_machines.sh and docs/cluster.md, on two addresses of this machine."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cluster.lock import one_cluster_at_a_time
from tests.cluster.real_nodes import DEPLOY, running, short_folder, variables
from tests.cluster.test_command import project, weights
from tests.deploy.mlflow_server import free_port
from tests.stages.project import warm_gigaslide
from tests.stages.test_train import _rows

pytest.importorskip("ray", reason="NOT TESTED over a cluster: Ray is not installed (gigaslide[cluster])")

SCRIPT = DEPLOY / "two_machines.sh"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the address of a cluster of two, and the environment of a shell on either."""
    with one_cluster_at_a_time(tmp_path_factory), short_folder() as folder:
        port = free_port()
        shell = variables(RAY_TMPDIR=str(folder), RAY_AUTH_TOKEN_PATH=str(folder / "token"), PORT=str(port))
        made = subprocess.run([SCRIPT, "token"], env=shell, check=True, capture_output=True, text=True)
        assert str(folder / "token") in made.stdout
        assert (folder / "token").stat().st_mode & 0o777 == 0o600
        first, second = (["--num-cpus=1", f"--node-ip-address=127.0.0.{number}", "--block"] for number in (1, 2))
        with (
            running([SCRIPT, "lead", *first], folder / "lead.log", "Ray runtime started", shell),
            running([SCRIPT, "join", f"127.0.0.1:{port}", *second], folder / "join.log", "Ray runtime started", shell),
        ):
            yield f"127.0.0.1:{port}", shell


def test_a_training_over_two_machines_is_the_training_without_ray(
    cluster: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    address, shell = cluster
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    here, there = project(tmp_path / "here"), project(tmp_path / "there")
    done = warm_gigaslide(here, "train")
    assert done.returncode == 0, done.stderr
    over = subprocess.run(
        [SCRIPT, "train", address], cwd=there, env=shell, capture_output=True, text=True, timeout=300, check=False
    )
    assert (over.returncode, over.stderr) == (0, "")
    assert "2 workers of 1 thread(s)" in over.stdout  # each machine lends one core
    assert _rows(there) == _rows(here)
    expected, found = weights(here), weights(there)
    assert len(expected) >= 12
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_a_machine_without_a_token_is_told_so(tmp_path: Path) -> None:
    shell = variables(RAY_AUTH_TOKEN_PATH=str(tmp_path / "none"))
    for what in ("lead", "join", "train", "stop"):
        done = subprocess.run([SCRIPT, what, "h:1"], env=shell, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"there is no token in {tmp_path / 'none'}: make it on the first machine" in done.stderr


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.sh")) + sorted(DEPLOY.rglob("*.sbatch")), ids=lambda p: p.name)
def test_a_shell_finds_no_mistake(path: Path) -> None:
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", path], capture_output=True, text=True, check=False)
        assert done.stdout == ""
