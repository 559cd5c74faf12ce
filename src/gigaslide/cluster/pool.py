"""The workers of a Ray cluster, started here or found: sole importer of ray.

A few jobs are a Ray task; their results and the pieces of maps that they make are objects, which stay on the machine
that made them until a task elsewhere needs them. A task whose process ends is started again elsewhere, and so are those
that made an object that is lost with its machine: Ray keeps how each object was made (its lineage) as long as someone
needs it. Machines that join get tasks as soon as there are any.
"""

import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gigaslide.cluster import worker
from gigaslide.cluster.pieces import Job
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.streaming.plan import READ_AHEAD

# How often a tile is computed again because its process or its machine ended: a tile that ends every process that
# computes it, because it needs more memory than there is, must end the training one day.
_RETRIES = 10
_ANSWER_S = 10.0
_INSTALL = "pip install 'gigaslide[cluster]'"


def _ray() -> Any:
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
    _ray()


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
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return GigaslideError(
        f"there is no Ray cluster at {address} ({said}): start one with `ray start --head --port=6379`, and give the "
        "address that it says; if it asks for a token, see docs/cluster.md"
    )


def _compute(recipe: worker.Recipe, visit: worker.Visit, jobs: list[Job], *pieces: Any) -> Any:
    """Compute some jobs, in the process of a worker."""
    found = worker.here(recipe).compute(visit, jobs, pieces)
    return found[0] if len(found) == 1 else found


class RayPool:
    """The workers of the cluster that this process is connected to."""

    def __init__(self, threads: int, most: int | None = None) -> None:
        """Use at most `most` workers, of `threads` threads each; None: all that the cluster has cores for."""
        self._ray = _ray()
        self.threads, self._most = threads, most
        self._task = self._ray.remote(num_cpus=threads, max_retries=_RETRIES)(_compute)

    @property
    def workers(self) -> int:
        """How many tasks can be computed at once, now; machines come and go."""
        return max(1, min(self._places(), self._most or self._places()))

    @property
    def ahead(self) -> int:
        """How many tasks may be handed out at once.

        Some wait, so that no worker does; not where fewer are wanted than there are places, which would take them all.
        """
        return self.workers * (1 + READ_AHEAD) if self.workers >= self._places() else self.workers

    def _places(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0)) // self.threads

    def put(self, value: Any) -> Any:
        """Give a value to all workers."""
        return self._ray.put(value)

    def submit(self, recipe: Any, visit: Any, jobs: list[Job], pieces: list[Any], made: int) -> list[Any]:
        """Hand out some jobs; return the references of their results and of the `made` pieces."""
        found = self._task.options(num_returns=1 + made).remote(recipe, visit, jobs, *pieces)
        return found if isinstance(found, list) else [found]

    def get(self, result: Any) -> Any:
        """Wait for a value, and return it.

        Raises:
            GigaslideError: a worker was lost again and again, or a value with all that is needed to make it again.
            Exception: what the job raised.
        """
        try:
            return self._ray.get(result)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise GigaslideError(
                f"the cluster lost a tile, and could not compute it again ({type(error).__name__}: {said}): see "
                "`ray status` and the memory of its machines, and start again, which goes on after the last epoch"
            ) from None

    def cancel(self, result: Any) -> None:
        """Do not compute these jobs, if nobody has begun with them."""
        self._ray.cancel(result, force=False)


@contextmanager
def connected(address: str, threads: int, most: int | None, local_workers: int, store_bytes: int) -> Iterator[RayPool]:
    """Connect to a cluster, or start one on this machine; within, its workers.

    Args:
        address: `auto`, the cluster that runs on this machine, and one of its own if there is none; or `HOST:PORT`,
            `ray://HOST:PORT`.
        threads: of a worker.
        most: workers at once; None: all that the cluster has cores for.
        local_workers: of a cluster that is started here.
        store_bytes: what the object store of a cluster that is started here may take of the memory; more goes to disk.

    Raises:
        UsageError: Ray is not installed.
        GigaslideError: there is no cluster at `address`, or it has too few cores.
    """
    ray = _ray()
    quiet = {"configure_logging": True, "logging_level": logging.ERROR, "log_to_driver": False}
    found: str | None = address
    if address == "auto":
        found = _running_here()
    else:
        _check_answers(address)
    try:
        if found is not None:
            ray.init(address=found, **quiet)
        else:
            ray.init(
                address="local",
                num_cpus=local_workers * threads,
                num_gpus=0,
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
        yield RayPool(threads, most)
    finally:
        ray.shutdown()
