"""What runs warm is what a process of its own would do."""

import os
import subprocess

import pytest

from tests import warm
from tests.stages.project import gigaslide, warm_gigaslide

pytestmark = pytest.mark.skipif(not warm.IS_POSSIBLE, reason="no process is forked here")


@pytest.mark.parametrize("arguments", [("--version",), ("fly",), ("train",), ("--debug", "prepare")])
def test_words_and_exit_code_are_the_same(tmp_path, arguments):
    alone, forked = gigaslide(tmp_path, *arguments), warm_gigaslide(tmp_path, *arguments)
    assert (forked.returncode, forked.stdout, forked.stderr.splitlines()[-1:]) == (
        alone.returncode,
        alone.stdout,
        alone.stderr.splitlines()[-1:],
    )


def test_a_command_leaves_nothing_to_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("GIGASLIDE_DEVICE", "tpu")
    (tmp_path / "params.yaml").write_text("demo: {}\n")
    assert warm_gigaslide(tmp_path, "train").returncode == 2
    monkeypatch.delenv("GIGASLIDE_DEVICE")
    other = tmp_path / "other"
    other.mkdir()
    done = warm_gigaslide(other, "train")
    assert f"params.yaml is not in {other}" in done.stderr


def test_one_that_does_not_end_is_ended(tmp_path):
    # A named pipe in the place of the settings: opening it waits for a writer.
    os.mkfifo(tmp_path / "params.yaml")
    with pytest.raises(subprocess.TimeoutExpired):
        warm.waiting().run(tmp_path, ("train",), dict(os.environ), 1.0)
    assert warm_gigaslide(tmp_path, "--version").returncode == 0
