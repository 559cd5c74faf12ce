import subprocess
from pathlib import Path

import pytest

from gigaslide import provenance


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _git(*arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_commit_says_when_the_code_differs_from_it(folder: Path) -> None:
    assert provenance.git_commit() == "unknown"
    _git("init")
    for name in ("code.py", "dvc.lock"):
        (folder / name).write_text("1")
    _git("add", ".")
    _git("commit", "-m", "one")
    commit = _git("rev-parse", "HEAD")
    (folder / "untracked").write_text("")
    (folder / "dvc.lock").write_text("2")
    assert provenance.git_commit() == commit
    (folder / "code.py").write_text("2")
    assert provenance.git_commit() == f"{commit}-dirty"


def test_dvc_hash_is_that_of_the_lock_file(folder: Path) -> None:
    assert provenance.dvc_hash("data/stores") is None
    lock = "schema: '2.0'\nstages:\n  prepare:\n    outs:\n    - path: data/stores\n      md5: abc.dir\n  x: {cmd: y}\n"
    (folder / "dvc.lock").write_text(lock)
    assert provenance.dvc_hash("data/stores") == "abc.dir"
    assert provenance.dvc_hash("data") is None


def test_fingerprint_changes_with_every_part_and_with_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = provenance.fingerprint({"a": 1, "b": [2]}, "x")
    assert provenance.fingerprint({"b": [2], "a": 1}, "x") == first
    assert provenance.fingerprint({"a": 1, "b": [3]}, "x") != first
    monkeypatch.setattr(provenance, "_PACKAGE", tmp_path)
    empty = provenance.fingerprint({"a": 1, "b": [2]}, "x")
    (tmp_path / "new.py").write_text("")
    assert len({first, empty, provenance.fingerprint({"a": 1, "b": [2]}, "x")}) == 3
