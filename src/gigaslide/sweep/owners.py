"""Which of the processes that work on a study are alive, so that what a dead one left is taken up again.

On one machine a file lock tells at once: the kernel frees it when its holder dies. For other machines there is a
number in the study that an owner keeps changing; a trial whose number has stood still for STALE_S, by this process's
own clock, belongs to nobody.
"""

import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from filelock import FileLock, Timeout

from gigaslide.sweep.results import Trial

BEAT_S = 20.0
STALE_S = 120.0


class Owners:
    """One process as an owner of trials, and what it has seen of the others."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Take a name and hold its lock in `folder` as long as this process lives."""
        self.name = uuid.uuid4().hex[:12]
        self._folder, self._clock = folder, clock
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(folder / f"{self.name}.lock")
        self._lock.acquire()
        self._seen: dict[int, tuple[int, float]] = {}

    def dead(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the running trials whose owner is dead."""
        return [trial for trial in trials if trial.is_running and self._is_dead(trial)]

    def close(self) -> None:
        """Give the name back."""
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)

    def _is_dead(self, trial: Trial) -> bool:
        if trial.owner == self.name:
            return False
        lock_file = self._folder / f"{trial.owner}.lock"
        if trial.owner is not None and lock_file.exists():
            try:
                with FileLock(lock_file, timeout=0):
                    return True
            except Timeout:
                return False
        beat, since = self._seen.get(trial.number, (None, 0.0))
        if beat != trial.beat:
            self._seen[trial.number] = trial.beat, self._clock()
            return False
        return self._clock() - since > STALE_S
