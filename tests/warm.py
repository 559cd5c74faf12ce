"""`gigaslide COMMAND` in a process of its own that need not import TensorFlow and MLflow first.

They take ten seconds of a core, most of what a command on a small project takes. A process that has imported them, and
has used neither, waits here; each command is a fork of it: its own folder, arguments, environment, standard output and
error, exit code and peak of memory, and none of what an earlier command left behind. What is tested about the start of
a process itself, or needs signals, starts one as a user does (tests/stages/project.py: `command`).
"""

import atexit
import functools
import importlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What the commands import besides, of other projects: never a module of this one.
_LIBRARIES = ("mlflow.tensorflow", "optuna", "matplotlib.figure", "numba", "scipy.ndimage", "tensorstore", "shapely")
# Forking a process that has loaded Apple's frameworks is not safe.
IS_POSSIBLE = sys.platform == "linux"


def _run(request: dict, output: int, errors: int) -> None:
    """Be the command, in the fork: never returns."""
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.closerange(3, 256)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = ["gigaslide", *request["arguments"]]
    code = 1
    try:
        from gigaslide.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            # As at the end of a program: what is registered to run then, and what is still in a buffer.
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _serve(pipe: socket.socket) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # as the command line sets it, read when TensorFlow is loaded
    from gigaslide import quiet

    quiet.import_tensorflow()
    for name in _LIBRARIES:
        importlib.import_module(name)
    while True:
        data, files, _, _ = socket.recv_fds(pipe, 1 << 20, 2)
        if not data:
            return
        child = os.fork()
        if child == 0:
            pipe.close()
            _run(json.loads(data), *files)
        for file in files:
            os.close(file)
        pipe.sendall(json.dumps(child).encode())
        _, status = os.waitpid(child, 0)
        pipe.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode())


class Warm:
    """The waiting process, started with the first command."""

    def __init__(self) -> None:
        self._pipe, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *_python_path()]))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", str(there.fileno())], pass_fds=[there.fileno()], env=environment
        )
        there.close()

    def run(self, folder: Path, arguments: tuple[str, ...], environment: dict[str, str], timeout_s: float):
        """Run one command to its end: see `subprocess.run`."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            request = {"folder": str(folder), "arguments": arguments, "environment": environment}
            files = [output.fileno(), errors.fileno()]
            socket.send_fds(self._pipe, [json.dumps(request).encode()], files)
            child = json.loads(self._pipe.recv(1 << 10))
            self._pipe.settimeout(timeout_s)
            try:
                code = json.loads(self._pipe.recv(1 << 10))
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                self._pipe.settimeout(None)
                self._pipe.recv(1 << 10)
                raise subprocess.TimeoutExpired(list(arguments), timeout_s) from None
            finally:
                self._pipe.settimeout(None)
            said = []
            for file in (output, errors):
                file.seek(0)
                said.append(file.read().decode())
        return subprocess.CompletedProcess(["gigaslide", *arguments], code, *said)

    def close(self) -> None:
        self._pipe.close()
        self._process.wait()


def _python_path() -> list[str]:
    return os.environ.get("PYTHONPATH", "").split(os.pathsep)


@functools.cache
def waiting() -> Warm:
    """Return this process's one; it ends with it."""
    warm = Warm()
    atexit.register(warm.close)
    return warm


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _serve(socket.socket(fileno=int(sys.argv[1])))
