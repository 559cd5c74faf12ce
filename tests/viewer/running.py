"""The viewer as a page would reach it: the real command in a process of its own, or its server in this one."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from gigaslide.viewer import server
from gigaslide.viewer.command import Options, open_session


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


@contextmanager
def served(options: Options) -> Iterator[str]:
    """Serve in a thread; yield the address with the key."""
    session = open_session(options)
    session.start()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        serving = uvicorn.Server(uvicorn.Config(server.build(session, port, "the-key"), log_level="error"))
        thread = threading.Thread(target=serving.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/?key=the-key"
        finally:
            serving.should_exit = True
            thread.join()
            session.close()
