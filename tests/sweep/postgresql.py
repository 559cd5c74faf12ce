"""A real PostgreSQL server for tests, installed with apt where that is possible and needed."""

import os
import shutil
import signal
import socket
import subprocess
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from filelock import FileLock

INSTALL_S = 400


def programs():
    """Return the folder of initdb and postgres, or None."""
    folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    folders += [Path(found).parent for found in [shutil.which("initdb")] if found]
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


def installed(lock_file):
    """Return the folder of the programs, installing them if need be; skip the test, loudly, where that fails."""
    with FileLock(lock_file):
        found = programs()
        if found is None and os.name == "posix" and os.geteuid() == 0 and shutil.which("apt-get"):
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (
                ["apt-get", "update"],
                ["apt-get", "install", "-y", "--no-install-recommends", "postgresql"],
            ):
                subprocess.run(command, env=environment, capture_output=True, timeout=INSTALL_S, check=False)
            found = programs()
    if found is None:
        reason = "NOT TESTED: PostgreSQL is not installed, and apt-get could not install it"
        warnings.warn(pytest.PytestWarning(reason), stacklevel=1)
        pytest.skip(reason)
    return found


@contextmanager
def server(folder, lock_file):
    """Yield the address of a database on a server of its own."""
    bin_folder = installed(lock_file)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    data = folder / "data"
    data.mkdir(parents=True)
    # The server refuses to run as root.
    user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    if user:
        shutil.chown(data, "postgres", "postgres")
        for parent in data.parents:
            if str(parent).startswith(("/tmp/", str(folder))):
                parent.chmod(0o755)
    init = [bin_folder / "initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync"]
    subprocess.run(init, check=True, capture_output=True, cwd=data, **user)
    options = ["-c", "fsync=off", "-c", f"unix_socket_directories={data}", "-c", "listen_addresses=127.0.0.1"]
    process = subprocess.Popen(
        [bin_folder / "postgres", "-D", data, "-p", str(port), *options],
        cwd=data,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **user,
    )
    try:
        url = f"postgresql://tester@127.0.0.1:{port}/postgres"
        for attempt in range(100):
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                if attempt == 99:
                    raise
                time.sleep(0.2)
        yield url
    finally:
        process.send_signal(signal.SIGINT)  # without waiting for connections to be closed
        process.wait(30)
