"""Ray: whether it is there, and the cluster that this process connects to or starts. Sole importer of ray.

Who needs Ray itself gets it from here: step/pool.py for tiles, trials.py, tasks.py for slides.
"""

import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gigaslide.config import Cluster
from gigaslide.errors import GigaslideError, UsageError

_ANSWER_S = 10.0
_CLIENT_TRIES = 3
_INSTALL = "pip install 'gigaslide[cluster]'"


def ray_module() -> Any:
    """Return Ray, quiet.

    Raises:
        UsageError: it is not installed.
    """
    # Ray reports to its makers who uses it, unless it is told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    try:
        import ray
    except ImportError:
        raise UsageError(f"--cluster and cluster.address need Ray, which is not installed: {_INSTALL}") from None
    return ray


def check_installed() -> None:
    """Refuse at once, before anything is made, if Ray is not there.

    Raises:
        UsageError: it is not.
    """
    ray_module()


def check(address: str) -> None:
    """Refuse at once, before anything is made, what cannot be connected to.

    Raises:
        UsageError: Ray is not there, or `address` is no address.
        GigaslideError: nothing answers there.
    """
    try:
        Cluster(address=address)
    except ValidationError:
        raise UsageError(f"--cluster is auto, HOST:PORT or ray://HOST:PORT; received {address!r}") from None
    ray_module()
    if address != "auto":
        _check_answers(address)


def _check_answers(address: str) -> None:
    """Ray itself would try for minutes, or for ever."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), _ANSWER_S).close()
    except (OSError, OverflowError, ValueError) as error:
        raise _no_cluster(address, error) from None


def _running_here() -> str | None:
    """Return the address of the cluster that runs on this machine, None if none does.

    Ray notes it in a file, which stays behind when the cluster was killed, and then waits for one that is gone.
    """
    noted = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray" / "ray_current_cluster"
    address = os.environ.get("RAY_ADDRESS") or (noted.read_text().strip() if noted.is_file() else "")
    try:
        _check_answers(address)
    except GigaslideError:
        return None
    return address


def _no_cluster(address: str, error: Exception) -> GigaslideError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    said = f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
    return GigaslideError(
        f"there is no Ray cluster at {address} ({said}): start one with `ray start --head --port=6379`, and give the "
        "address that it says; if it asks for a token, see docs/cluster.md"
    )


def _connect(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    """Connect; behind ray:// Ray starts a process for whoever connects, which was seen to end at once, now and then."""
    for left in range(_CLIENT_TRIES - 1 if address.startswith("ray://") else 0, -1, -1):
        try:
            ray.init(address=address, **quiet)
            return
        except ConnectionError:
            ray.shutdown()
            if not left:
                raise


@contextmanager
def connected(
    address: str, threads: int, local_workers: int, store_bytes: int, local_gpus: int | None = 0
) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine; within, Ray.

    Args:
        address: `auto`, the cluster that runs on this machine, and one of its own if there is none; or `HOST:PORT`,
            `ray://HOST:PORT`.
        threads: of a worker.
        local_workers: of a cluster that is started here.
        store_bytes: what the object store of a cluster that is started here may take of the memory; more goes to disk.
        local_gpus: of a cluster that is started here; None: those of this machine.

    Raises:
        UsageError: Ray is not installed.
        GigaslideError: there is no cluster at `address`, or it has too few cores.
    """
    ray = ray_module()
    quiet = {"configure_logging": True, "logging_level": logging.ERROR, "log_to_driver": False}
    found: str | None = address
    if address == "auto":
        found = _running_here()
    else:
        _check_answers(address)
    try:
        if found is not None:
            _connect(ray, found, quiet)
        else:
            ray.init(
                address="local",
                num_cpus=local_workers * threads,
                num_gpus=local_gpus,
                object_store_memory=store_bytes,
                include_dashboard=False,
                **quiet,
            )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, error) from None
    try:
        cores = int(ray.cluster_resources().get("CPU", 0))
        if cores < threads:
            raise GigaslideError(
                f"a worker has {threads} threads (cluster.threads_per_worker), and the cluster at {address} has "
                f"{cores} cores"
            )
        yield ray
    finally:
        ray.shutdown()
