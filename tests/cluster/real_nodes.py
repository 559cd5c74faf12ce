"""Real Ray nodes on addresses of this machine, each in a session of its own, as the files in deploy/ start them."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy"
_START_S = 120


@contextmanager
def short_folder() -> Iterator[Path]:
    """Yield a folder for Ray's sockets, whose paths have at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def variables(**more: str) -> dict[str, str]:
    """Return the environment of a shell in which gigaslide is installed."""
    source = str(Path(__file__).parents[2] / "src")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": source, "COLUMNS": "120", **more}


@contextmanager
def running(command: Sequence[str | Path], log: Path, says: str, environment: dict[str, str]) -> Iterator[None]:
    """Have a command run, from when it says something until all that it started is ended."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
    try:
        for _ in range(_START_S * 5):
            if says in log.read_text():
                break
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.2)
        else:
            raise AssertionError(log.read_text()[-3000:])
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
