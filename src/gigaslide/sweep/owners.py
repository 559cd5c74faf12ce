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
        self._lock = FileLock(self._file(self.name))
        self._lock.acquire()
        self._seen: dict[int, tuple[int, float]] = {}

    def dead(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the running trials whose owner is dead."""
        return [trial for trial in trials if trial.is_running and self._is_dead(trial)]

    def others_here(self) -> bool:
        """Whether another process works on a study in this folder now."""
        return any(_is_held(file) for file in self._folder.glob("owner-*.lock") if file != self._file(self.name))

    def close(self, has_left_nothing: bool) -> None:
        """Give the name back; the lock file stays, for the next one to see, where trials may still be in it."""
        self._lock.release()
        if has_left_nothing:
            Path(self._lock.lock_file).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / f"owner-{name}.lock"

    def _is_dead(self, trial: Trial) -> bool:
        if trial.owner == self.name:
            return False
        if trial.owner is not None and self._file(trial.owner).exists():
            return not _is_held(self._file(trial.owner))
        beat, since = self._seen.get(trial.number, (None, 0.0))
        if beat != trial.beat:
            self._seen[trial.number] = trial.beat, self._clock()
            return False
        return self._clock() - since > STALE_S


def _is_held(lock_file: Path) -> bool:
    try:
        with FileLock(lock_file, timeout=0):
            return False
    except Timeout:
        return True
