"""The machines of a Ray cluster, for the trials of a sweep; the study and all decisions stay where the sweep runs.

A trial is a Ray task that watches the trial's process on the machine that Ray chose, and tells of it as it goes on. A
machine that is lost takes its trials along; they are started again on another, and go on from their last epoch: their
folders are shared.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gigaslide.cluster.trial_watch import Seen, watch
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.errors import GigaslideError
from gigaslide.sweep.places import enough
from gigaslide.sweep.process import Ending, TrialProcess, run_id_of
from gigaslide.sweep.verdict import Running

# How often a trial is started again because its machine was lost: one that brings every machine down must end one day.
_MOST_LOSSES = 10
_STOP_S = 20.0  # longer than process.Child takes
_BYTES_PER_GB = 1e9


class Machines:
    """The machines of a cluster as places of trials."""

    name = "the largest machine of the cluster"

    def __init__(self, ray: Any, settings: Settings, command: Sequence[str] | None = None) -> None:
        """Look at the machines that are there; `command` is for tests.

        Raises:
            GigaslideError: none of them has a core.
        """
        self._ray, self._command = ray, command
        found = self._machines()
        if not found:
            raise GigaslideError("no machine of the cluster has a core for a trial: see `ray status`")
        # Every trial has the same, so that their step times can be compared; and every machine gets trials.
        self.threads = int(min(machine["CPU"] for machine in found))
        self._cores = max(1, self.threads // settings.sweep.jobs)
        self._gpus = int(all(machine.get("GPU", 0) >= 1 for machine in found))
        self.total_bytes = max(machine.get("memory", 0.0) for machine in found)

    def free_bytes(self) -> float:
        """Return the memory of the largest machine: Ray sees to it that trials do not take more."""
        return enough(self.total_bytes, f"on {self.name}")

    def has_room(self, running: Sequence[Running], is_alone: bool) -> bool:
        """Whether every trial that was started has found a machine; the next one may wait for one, then."""
        return all(one.child.where is not None for one in running)

    def start(
        self, folder: Path, settings: Settings, request: dict[str, Any], jobs: int, memory_bytes: float
    ) -> TrialProcess:
        """Start a trial as soon as a machine has the cores and the memory for it."""
        folder.mkdir(parents=True, exist_ok=True)
        asked = {"num_cpus": self._cores, "num_gpus": self._gpus, "memory": int(memory_bytes)}
        if not self._can_hold(asked):
            needs = f"{self._cores} cores and {memory_bytes / _BYTES_PER_GB:.2f} GB"
            console.print(f"no machine of the cluster has {needs} now: waiting for one", markup=False)
        arguments = Path.cwd(), folder, settings, request, self._cores, self._command
        return RemoteTrial(self._ray, asked, folder, arguments)

    def _can_hold(self, asked: Mapping[str, float]) -> bool:
        names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
        return any(
            all(machine.get(names[key], 0) >= count for key, count in asked.items()) for machine in self._machines()
        )

    def _machines(self) -> list[dict[str, float]]:
        """Return what the machines have that are there now and have cores."""
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return [machine for machine in alive if machine.get("CPU", 0) >= 1]


class RemoteTrial:
    """A trial on a machine of the cluster."""

    def __init__(self, ray: Any, asked: Mapping[str, float], folder: Path, arguments: tuple[Any, ...]) -> None:
        """Ask Ray for a machine.

        Args:
            ray: Ray.
            asked: num_cpus, num_gpus and memory (bytes) that the machine has to have free.
            folder: of the trial.
            arguments: of `watch`.
        """
        self._ray, self._folder, self._arguments = ray, folder, arguments
        # Ray itself would start a trial again for ever whose machine runs out of memory.
        self._task = ray.remote(max_retries=0, num_returns="streaming", scheduling_strategy="SPREAD", **asked)(watch)
        self._seen, self._losses = Seen(), 0
        self._started: float | None = None
        self._begin()

    def ended(self) -> Ending | None:
        """Return how it ended; None while it waits or runs.

        Raises:
            GigaslideError: its machine cannot run trials.
        """
        while self._seen.ending is None and self._ray.wait([self._news], timeout=0)[0]:
            self._take()
        return self._seen.ending

    def stop(self) -> None:
        """End it, and wait until it has."""
        if self._seen.ending is not None:
            return
        self._ray.cancel(self._news)
        end = time.monotonic() + _STOP_S
        # It is gone already, if its machine is.
        with suppress(self._ray.exceptions.RayError, StopIteration):
            while self._ray.wait([self._news], timeout=max(0.0, end - time.monotonic()))[0]:
                self._ray.get(next(self._news))
        self._seen = self._seen._replace(ending=Ending("stopped", ""))

    @property
    def seconds(self) -> float:
        """For how long it has run, also on machines that were lost."""
        return 0.0 if self._started is None else time.monotonic() - self._started

    @property
    def curve(self) -> list[float]:
        """Validation Dice after each epoch so far."""
        return list(self._seen.curve)

    @property
    def step_time_s(self) -> float | None:
        """Median time of a step so far."""
        return self._seen.step_time_s

    @property
    def summary(self) -> dict[str, Any]:
        """What a training that ended well says of itself."""
        return self._seen.summary or {}

    @property
    def run_id(self) -> str | None:
        """The MLflow run; None if it did not come to open one."""
        return self._seen.run_id or run_id_of(self._folder)

    def _begin(self) -> None:
        self.where: str | None = None
        self._news = self._task.remote(*self._arguments)

    def _take(self) -> None:
        """Take what is new of it."""
        errors = self._ray.exceptions
        try:
            found = self._ray.get(next(self._news))
        except errors.OutOfMemoryError:
            ending = Ending("out of memory", "its machine ran out of memory, and Ray ended it")
            self._seen = self._seen._replace(ending=ending)
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, GigaslideError):
                raise cause from None
            raise GigaslideError(
                f"a machine of the cluster cannot run trials ({type(cause).__name__}: {cause}): docs/cluster.md says "
                "what it needs"
            ) from None
        except (errors.RayError, StopIteration) as error:
            self._lost(error)
        else:
            if isinstance(found, Seen):
                self._seen = found
            else:
                self.where = found
                self._started = self._started or time.monotonic()

    def _lost(self, error: Exception) -> None:
        """Its machine, or Ray's worker there, is gone, and so is its process: again, elsewhere."""
        self._losses += 1
        if self._losses > _MOST_LOSSES:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            ending = Ending("error", f"its machine was lost {self._losses} times; the last time Ray said: {said}")
            self._seen = self._seen._replace(ending=ending)
            return
        console.print(f"{self._folder.name}: {self.where or 'its machine'} was lost; again on another", markup=False)
        self._begin()
