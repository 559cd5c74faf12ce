"""The workers of a Ray cluster, that compute tiles.

A few jobs are a Ray task; their results and the pieces of maps that they make are objects, which stay on the machine
that made them until a task elsewhere needs them. A task whose process ends is started again elsewhere, and so are those
that made an object that is lost with its machine: Ray keeps how each object was made (its lineage) as long as someone
needs it. Machines that join get tasks as soon as there are any.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gigaslide.cluster.connection import ray_module
from gigaslide.cluster.step import worker
from gigaslide.cluster.step.handing_out import Task
from gigaslide.cluster.step.machines import Machine
from gigaslide.cluster.step.pieces import Job
from gigaslide.errors import GigaslideError
from gigaslide.geometry import Window
from gigaslide.streaming.plan import READ_AHEAD

# How often a tile is computed again because its process or its machine ended: a tile that ends every process that
# computes it, because it needs more memory than there is, must end the training one day.
_RETRIES = 10
_ANY = ""  # the machine that comes next, when there is none


def _compute(
    recipe: worker.Recipe,
    visit: worker.Visit,
    jobs: list[Job],
    places: list[tuple[int, int, Window]],
    cuts: list[list[tuple[int, Window]]],
    *bundles: Any,
) -> Any:
    """Compute some jobs, in the process of a worker."""
    found = worker.here(recipe).compute(visit, jobs, places, cuts, bundles)
    return found[0] if len(found) == 1 else found


def machines_of(nodes: Iterable[Mapping[str, Any]], threads: int, most: int | None) -> list[Machine]:
    """Return the machines among Ray's `nodes` for at most so many workers of some threads each; at least one."""
    alive = sorted((node for node in nodes if node["Alive"]), key=lambda node: node["NodeID"])
    found, left = [], most
    for node in alive:
        places = int(node["Resources"].get("CPU", 0)) // threads
        workers = places if left is None else min(places, left)
        left = None if left is None else left - workers
        if workers:
            # Where fewer are wanted than there are places, those that wait would take them all.
            ahead = workers * (1 + READ_AHEAD) if workers == places else workers
            found.append(Machine(node["NodeID"], workers, ahead))
    return found or [Machine(_ANY, 1, 1)]


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
        return sum(machine.workers for machine in self.machines())

    def machines(self) -> list[Machine]:
        """Return the machines there are now, in an order that stays; at least one."""
        return machines_of(self._ray.nodes(), self.threads, self._most)

    def put(self, value: Any) -> Any:
        """Give a value to all workers."""
        return self._ray.put(value)

    def submit(self, machine: str, task: Task, recipe: Any, visit: Any) -> list[Any]:
        """Hand a task out, to this machine if it is still there; return the references of its result and its pieces."""
        options: dict[str, Any] = {"num_returns": task.values}
        if machine != _ANY:
            strategies = self._ray.util.scheduling_strategies
            options["scheduling_strategy"] = strategies.NodeAffinitySchedulingStrategy(machine, soft=True)
        remote = self._task.options(**options).remote
        found = remote(recipe, visit, task.jobs, task.places, task.cuts, *task.bundles)
        return found if isinstance(found, list) else [found]

    def wait(self, results: Sequence[Any]) -> list[Any]:
        """Wait until at least one of these is computed, or failed; return all that are."""
        self._ray.wait(list(results), fetch_local=False)
        return list(self._ray.wait(list(results), num_returns=len(results), timeout=0, fetch_local=False)[0])

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
        """Do not compute this task, if nobody has begun with it."""
        self._ray.cancel(result, force=False)
