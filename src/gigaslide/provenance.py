"""Where a result comes from: commit, code, data; and one fingerprint over all of it."""

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

_PACKAGE = Path(__file__).parent
_LOCK_FILE = Path("dvc.lock")
# Tracked, and written by the very pipeline and benchmarks that ask.
_WRITTEN = (_LOCK_FILE.name, "benchmarks", "docs/bench.png", "docs/cluster_scaling.png")


def git_commit() -> str:
    """Return the commit of the working folder, with `-dirty` if tracked files differ from it; `unknown` without git."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return "unknown"
    written = [f":(exclude){path}" for path in _WRITTEN]
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *written)
    return f"{commit}-dirty" if changes else commit


def dvc_hash(path: str) -> str | None:
    """Return the hash under which DVC knows the output `path`, from dvc.lock; None if it does not."""
    if not _LOCK_FILE.exists():
        return None
    stages = yaml.safe_load(_LOCK_FILE.read_text(encoding="utf-8")).get("stages", {})
    for stage in stages.values():
        for out in stage.get("outs", []):
            if out["path"] == path:
                return str(out["md5"])
    return None


def fingerprint(*parts: Any) -> str:
    """Return one hash over `parts` (what JSON can hold) and the source code of the package."""
    found = hashlib.sha256(digest(parts).encode())
    for file in sorted(_PACKAGE.rglob("*.py")):
        found.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def digest(value: Any) -> str:
    """Return the hash of what JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _git(*arguments: str) -> str | None:
    # The trials of a sweep train in folders of their own, which link to the project's lock file.
    project = _LOCK_FILE.resolve().parent
    try:
        done = subprocess.run(
            ["git", "-C", str(project), *arguments], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
