"""Tasks over the machines of a Ray cluster: `stages.workers.run_all`, with machines that may be lost.

A task that raises has that as its outcome. One whose process or machine ends is done again, after those that have not
begun, and has an outcome of its own when that happens again and again. Trying again is decided here, not by Ray: it
would do so for ever where memory runs out, and every try is to be given a place of its own for what it writes. No more
tasks are handed out than there are places for, and nothing large travels, so memory does not grow with the cluster.

How far a task is goes through an actor, a process without work beside: who tells it waits for no answer, and if it is
lost another one takes its place, which knows nothing until it is told.
"""

import os
import pickle
import socket
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gigaslide.cluster.connection import ray_module
from gigaslide.console import console
from gigaslide.errors import GigaslideError
from gigaslide.stages.workers import Outcome, ProcessDiedError, Turn

# How often a task is begun at most: one that ends every process that it gets must end one day.
TRIES = 4
_LOOK_S = 0.2
_SIGN = ".cluster-"
_TELL_S = 0.5  # not more often


@dataclass(frozen=True)
class Need:
    """What a task takes of a machine, or what a machine has: cores, and memory."""

    cores: int
    memory_bytes: int


class NotSharedError(GigaslideError):
    """A machine does not see the files that all have to see."""


class _Board:
    """The actor: the share that is done of each task that is under way."""

    def __init__(self) -> None:
        self._shares: dict[int, float] = {}

    def tell(self, number: int, share: float) -> None:
        self._shares[number] = share

    def shares(self, numbers: list[int]) -> float:
        """Return the sum of the shares of these, and forget the others."""
        self._shares = {number: self._shares.get(number, 0.0) for number in numbers}
        return sum(self._shares.values())


class _Turn:
    """The turn of a task in the process of a worker: it has the cores that were asked for."""

    def __init__(self, number: int, board: Any, cores: int) -> None:
        self._number, self._board, self._cores = number, board, cores
        self._told_s = -_TELL_S

    def __call__(self, share: float) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            self._board.tell.remote(self._number, share)

    def threads(self) -> int:
        return self._cores


def _work(
    task: Callable[[Any, Turn], Any], job: Any, number: int, board: Any, cores: int, sign: Path, folder: Path
) -> tuple[Any, Exception | None, float]:
    """Run in the process of a worker: the task's value or error, and its time in s."""
    start = time.perf_counter()
    os.environ.setdefault("GIGASLIDE_DEVICE", "cpu")  # a machine's GPU is not asked for
    try:
        if not sign.exists():
            raise NotSharedError(
                f"every machine of the cluster should see the folder {sign.parent} under that path; on "
                f"{socket.gethostname()} it is not there, or another one: share it, or take the machine out"
            )
        # Relative paths are those of the process that hands out; whose folder not every machine need have.
        with suppress(OSError):
            os.chdir(folder)
        return task(job, _Turn(number, board, cores)), None, time.perf_counter() - start
    except Exception as error:
        return None, _portable(error), time.perf_counter() - start


def _portable(error: Exception) -> Exception:
    """Return the error, or what it says if it cannot travel between processes."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


@contextmanager
def _sign(shared: Path) -> Iterator[Path]:
    """Put a file into a folder, by which who sees it knows the folder."""
    for left in shared.glob(f"{_SIGN}*"):  # by a run that was killed
        left.unlink(missing_ok=True)
    sign = shared.absolute() / f"{_SIGN}{uuid.uuid4().hex}"
    sign.touch()
    try:
        yield sign
    finally:
        sign.unlink(missing_ok=True)


def machines() -> list[Need]:
    """Return what each machine of the cluster has for tasks, now."""
    found = [node["Resources"] for node in ray_module().nodes() if node["Alive"]]
    return [Need(int(has.get("CPU", 0)), int(has.get("memory", 0))) for has in found]


def _places(need: Need) -> int:
    """Return how many such tasks the cluster could do at once, now."""
    return sum(min(has.cores // need.cores, has.memory_bytes // max(1, need.memory_bytes)) for has in machines())


def _refuse_too_small(need: Need) -> None:
    if not _places(need):
        largest = max(machines(), key=lambda has: (has.cores, has.memory_bytes), default=Need(0, 0))
        raise GigaslideError(
            f"a slide needs {need.cores} core(s) and {need.memory_bytes / 1e9:.2f} GB of one machine, and the largest "
            f"of the cluster has {largest.cores} and {largest.memory_bytes / 1e9:.2f} GB: give it a larger machine"
        )


class _Tasks:
    """Tasks that are waiting, and those that were handed out."""

    def __init__(
        self, task: Callable[[Any, Turn], Any], begin: Callable[[int], Any], count: int, need: Need, sign: Path
    ) -> None:
        self._ray = ray_module()
        self._remote = self._ray.remote(num_cpus=need.cores, memory=need.memory_bytes, max_retries=0)(_work)
        self._board = self._ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
        self._task, self._begin, self._need, self._sign = task, begin, need, sign
        self._waiting, self._running = deque(range(count)), dict[Any, int]()
        self._lost = Counter[int]()
        self._asked: Any = None
        self._shares = 0.0

    @property
    def under_way(self) -> int:
        """How many are handed out."""
        return len(self._running)

    @property
    def left(self) -> int:
        """How many have no outcome yet."""
        return len(self._waiting) + len(self._running)

    def hand_out(self, most: int) -> None:
        """Hand out as many as there are places for, and no more than `most` at once."""
        room = min(_places(self._need), most)
        while self._waiting and len(self._running) < room:
            number = self._waiting.popleft()
            result = self._remote.remote(
                self._task, self._begin(number), number, self._board, self._need.cores, self._sign, Path.cwd()
            )
            self._running[result] = number

    def ended(self) -> Iterator[Outcome]:
        """Wait a moment; yield what became of those that ended. What was lost waits again, behind the others."""
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=_LOOK_S)
        for result in ready:
            number = self._running.pop(result)
            outcome = _outcome(number, result)
            if outcome is not None:
                yield outcome
                continue
            self._lost[number] += 1
            if self._lost[number] < TRIES:
                self._waiting.append(number)
            else:
                yield Outcome(number, None, ProcessDiedError(), 0.0)

    def shares(self) -> float:
        """Return what was last heard of how far those under way are, in tasks; asks anew, and does not wait for it."""
        if self._asked is None:
            self._asked = self._board.shares.remote(list(self._running.values()))
        if self._ray.wait([self._asked], timeout=0)[0]:
            try:
                self._shares = float(self._ray.get(self._asked))
            except self._ray.exceptions.RayError:
                self._shares = 0.0
            self._asked = None
        return min(self._shares, len(self._running))

    def close(self) -> None:
        """End those that are still under way, with their processes."""
        for result in self._running:
            self._ray.cancel(result, force=True)
        self._ray.kill(self._board)


def run_all(
    task: Callable[[Any, Turn], Any],
    jobs: Sequence[Any],
    need: Need,
    shared: Path,
    show: Callable[[float], None] = lambda done: None,
    begin: Callable[[int], Any] | None = None,
    most: int | None = None,
) -> Iterator[Outcome]:
    """Call `task(job, turn)` for every job, on the cluster this process is connected to; yield what became of each.

    Args:
        task: a function of a module; it may tell its `Turn` the share it has done, 0 to 1.
        jobs: what it is called with; they and its values travel, so they are small.
        need: what each takes of its machine.
        shared: a folder that every machine has to see; in it lies a file meanwhile, `.cluster-<something>`.
        show: told, several times a second, how many jobs are done, with fractions.
        begin: asked before every try for what the task is called with, by the number of the job; None: the job.
        most: how many at once; None: as many as there are places.

    Raises:
        NotSharedError: a machine does not see the folder.
        GigaslideError: no machine is large enough.
    """
    if not jobs:
        return
    _refuse_too_small(need)
    done, was_idle = 0, False
    with _sign(shared) as sign:
        tasks = _Tasks(task, begin or jobs.__getitem__, len(jobs), need, sign)
        try:
            while tasks.left:
                tasks.hand_out(most or len(jobs))
                is_idle = not tasks.under_way
                if is_idle and not was_idle:
                    console.print("no machine of the cluster is left for a slide: waiting for one", markup=False)
                was_idle = is_idle
                if is_idle:
                    time.sleep(_LOOK_S)
                    continue
                for outcome in tasks.ended():
                    if isinstance(outcome.error, NotSharedError):
                        raise outcome.error
                    done += 1
                    yield outcome
                show(done + tasks.shares())
        finally:
            tasks.close()
    show(done)


def _outcome(number: int, result: Any) -> Outcome | None:
    """Return what became of a task that ended; None if its process or its machine is lost."""
    errors = ray_module().exceptions
    try:
        return Outcome(number, *ray_module().get(result))
    except errors.RayTaskError as error:
        return Outcome(number, None, error.cause or error, 0.0)  # a value that does not travel, for one
    except errors.RayError:
        return None
