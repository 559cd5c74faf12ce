"""A real MLflow server over a real PostgreSQL, as deploy/mlflow/server.sh starts it, and a way to cut it off."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.sweep import postgresql

DEPLOY = Path(__file__).parents[2] / "deploy"
_START_S = 120


def free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextmanager
def server(folder: Path, **environment: str) -> Iterator[int]:
    """Yield the port of a server whose database, and artifacts if nothing else is said, are in `folder`."""
    port = free_port()
    (folder / "server").mkdir()
    lock = Path(__file__).parents[2] / ".pytest_cache/postgresql.lock"
    lock.parent.mkdir(exist_ok=True)
    with postgresql.server(folder / "postgresql", lock) as database, (folder / "server.log").open("w") as log:
        variables = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MLFLOW_BACKEND_STORE_URI": database.replace("postgresql://", "postgresql+psycopg://"),
            "PORT": str(port),
            **environment,
        }
        process = subprocess.Popen(
            ["sh", DEPLOY / "mlflow/server.sh"],
            cwd=folder / "server",
            env=variables,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            for _ in range(_START_S * 5):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except OSError:
                    assert process.poll() is None, (folder / "server.log").read_text()[-2000:]
                    time.sleep(0.2)
            yield port
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too
            process.wait()


def ask(port: int, what: str, **query: Any) -> Any:
    """Ask the server's own API."""
    url = f"http://127.0.0.1:{port}/api/2.0/mlflow/{what}"
    if what.endswith("search"):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(query).encode(), headers)
    else:
        request = urllib.request.Request(f"{url}?{urllib.parse.urlencode(query)}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


class Line:
    """The network between this machine and a server on another: a port that hands on, until it is cut."""

    def __init__(self, port: int) -> None:
        self.port, self._target = free_port(), port
        self._listener: socket.socket | None = None
        self._ends: list[socket.socket] = []
        self.mend()

    def mend(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._listen, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        assert self._listener is not None
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends = []

    def _listen(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = listener.accept()
                there = socket.create_connection(("127.0.0.1", self._target))
                self._ends += [here, there]
                for source, target in ((here, there), (there, here)):
                    threading.Thread(target=self._hand_on, args=(source, target), daemon=True).start()

    @staticmethod
    def _hand_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
