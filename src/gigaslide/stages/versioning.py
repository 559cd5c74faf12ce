"""Putting the slide folder under DVC, which runs as a process of this Python."""

import os
import subprocess
import sys
from pathlib import Path

from gigaslide.errors import GigaslideError, UsageError


def check_project(folder: Path) -> None:
    """Make sure that DVC can track `folder`.

    Raises:
        UsageError: this is no DVC project, or the folder is outside it.
    """
    project = Path.cwd().resolve()
    if not (project / ".dvc").is_dir():
        raise UsageError(f"{project} is no DVC project, and slides are kept with DVC: run `dvc init` in it first")
    if not folder.resolve().is_relative_to(project):
        raise UsageError(
            f"slides.dir should be a folder of this project, which DVC can track; found {folder}, outside {project}: "
            "set slides.dir in params.yaml, to data/slides for example"
        )


def add(folder: Path) -> bool:
    """Let DVC track the folder (`dvc add`): its cache has what is in it, `<folder>.dvc` names it.

    Returns:
        Whether a remote is configured, to which `dvc push` uploads.

    Raises:
        GigaslideError: DVC failed; what it said is in the message.
    """
    done = _run("gigaslide.stages.dvc_add", str(folder))
    if done.returncode != 0:
        raise GigaslideError(
            f"the slides are in {folder} and in the cohort table, but `dvc add {folder}` failed: {_said(done)}; "
            "correct that and run the same command again"
        )
    return done.stdout.splitlines()[-1:] == ["remote"]  # DVC's own words come before


def push(folder: Path) -> None:
    """Upload the folder to the remote (`dvc push`).

    Raises:
        GigaslideError: DVC failed; what it said is in the message.
    """
    done = _run("dvc", "push", "--quiet", f"{folder}.dvc")
    if done.returncode != 0:
        raise GigaslideError(f"`dvc push {folder}.dvc` failed: {_said(done)}; run it again once that is corrected")


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].removeprefix("ERROR: ") if lines else f"exit code {done.returncode}"
