import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from filelock import FileLock

WAIT = """
import sys
from gigaslide.sweep import child
acquire = child.FileLock.acquire
def noted(*arguments):
    open("waits", "w")
    return acquire(*arguments)
child.FileLock.acquire = noted
child._LOCK_S = float(sys.argv[1])
sys.exit(child.main())
"""


def start(folder: Path, wait_s: float) -> Any:
    """Start a trial whose settings are wrong: should it train, it ends with an error."""
    (folder / "trial.json").write_text('{"cores": []}')
    (folder / "params.yaml").write_text("nothing: 1\n")
    started = subprocess.Popen([sys.executable, "-c", WAIT, str(wait_s)], cwd=folder, stdin=subprocess.PIPE)
    end = time.monotonic() + 60
    while not (folder / "waits").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    return started


def test_it_waits_for_the_one_before_and_takes_what_that_has_finished(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".lock"):
        second = start(tmp_path, 60)
        for file in (tmp_path / "models/run.json", tmp_path / "results/train/summary.json"):
            file.parent.mkdir(parents=True)
            file.write_text("{}")
        assert second.poll() is None
    assert second.wait(60) == 0


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".lock"):
        assert start(tmp_path, 0.1).wait(60) == 2
    assert "mistake" in (tmp_path / "error.json").read_text()
