"""The workers of a Ray cluster, that compute tiles.

A few jobs are a Ray task; their results and the pieces of maps that they make are objects, which stay on the machine
that made them until a task elsewhere needs them. A task whose process ends is started again elsewhere, and so are those
that made an object that is lost with its machine: Ray keeps how each object was made (its lineage) as long as someone
needs it. Machines that join get tasks as soon as there are any.
"""

from typing import Any

from gigaslide.cluster import worker
from gigaslide.cluster.connection import ray_module
from gigaslide.cluster.pieces import Job
from gigaslide.errors import GigaslideError
from gigaslide.streaming.plan import READ_AHEAD

# How often a tile is computed again because its process or its machine ended: a tile that ends every process that
# computes it, because it needs more memory than there is, must end the training one day.
_RETRIES = 10


def _compute(recipe: worker.Recipe, visit: worker.Visit, jobs: list[Job], *pieces: Any) -> Any:
    """Compute some jobs, in the process of a worker."""
    found = worker.here(recipe).compute(visit, jobs, pieces)
    return found[0] if len(found) == 1 else found


class RayPool:
    """The workers of the cluster that this process is connected to."""

    def __init__(self, threads: int, most: int | None = None) -> None:
        """Use at most `most` workers, of `threads` threads each; None: all that the cluster has cores for."""
        self._ray = ray_module()
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
