"""The real command in a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `gigaslide view --no-browser` in `folder`; yield the process and the address it prints."""
    environment = {**os.environ, "COLUMNS": "300"}
    command = [sys.executable, "-u", "-m", "gigaslide", "view", "--no-browser", *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            address = re.search(r"http://\S+", line)
            assert address, line + process.stderr.read()
            yield process, address[0]
        finally:
            if process.poll() is None:
                process.terminate()
