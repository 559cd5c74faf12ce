import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gigaslide import files


def test_write_text_replaces(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "a.json"
    files.write_text(target, "one")
    files.write_text(target, "two")
    assert target.read_text() == "two"
    assert list(target.parent.iterdir()) == [target]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), files.atomic_path(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_replaces_a_folder(tmp_path: Path) -> None:
    target = tmp_path / "store"
    for name in ("one", "two"):
        with files.atomic_path(target) as temporary:
            temporary.mkdir()
            (temporary / name).touch()
    assert [p.name for p in target.iterdir()] == ["two"]
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


def test_killed_while_writing(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    code = (
        "import os, signal, sys; from pathlib import Path; from gigaslide import files\n"
        "with files.atomic_path(Path(sys.argv[1])) as t:\n"
        "    t.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_text() == "old"
    files.write_text(target, "new")
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_sha256_of_a_folder_sees_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a").write_text("1")
    first = files.sha256(tmp_path / "s")
    (tmp_path / "s" / "a").rename(tmp_path / "s" / "b")
    renamed = files.sha256(tmp_path / "s")
    (tmp_path / "s" / "b").write_text("2")
    assert len({first, renamed, files.sha256(tmp_path / "s")}) == 3


def test_sha256_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    # FIPS 180-2, appendix B.1.
    assert files.sha256(tmp_path / "a").startswith("ba7816bf8f01cfea")
