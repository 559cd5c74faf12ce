"""Tasks side by side in processes: one that fails, or whose process dies, does not take the others along.

Processes are spawned, not forked (libraries with threads do not survive a fork), and end when this one
does, however it ends. Progress goes through shared memory, one number per task, so that no lock can be left
behind by a process that was killed.
"""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol

_LOOK_S = 0.2
_shares: MutableSequence[float] = []  # in a worker: the share done of every task
_workers = 1  # in a worker: how many of them there may be


class ProcessDiedError(Exception):
    """The process of a task ended without an answer."""


@dataclass(frozen=True)
class Outcome:
    """What became of one task: `value`, or the `error` it raised."""

    number: int
    value: Any
    error: BaseException | None
    time_s: float


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Turn(Protocol):
    """What a task is given."""

    def __call__(self, share: float) -> None:
        """Tell the share that is done, 0 to 1."""

    def threads(self) -> int:
        """Return how many threads the task may use now."""
        ...


class RunAll(Protocol):
    """`run_all`, or what does the same elsewhere (cluster/)."""

    def __call__(
        self,
        task: Callable[[Any, Turn], Any],
        jobs: Sequence[Any],
        workers: int,
        show: Callable[[float], None],
        /,
    ) -> Iterator[Outcome]:
        """Call `task(job, turn)` for every job; yield what became of each, as they end."""
        ...


@dataclass(frozen=True)
class _Turn:
    """The turn of a task in a process of the pool."""

    number: int

    def __call__(self, share: float) -> None:
        _shares[self.number] = share

    def threads(self) -> int:
        """The workers that have no task left are shared out."""
        active = sum(share < 1 for share in _shares)
        return max(1, _workers // max(1, min(active, _workers)))


def _start(shares: MutableSequence[float], workers: int) -> None:
    """Run in each new worker."""
    global _shares, _workers
    _shares, _workers = shares, workers
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _work(task: Callable[[Any, Turn], Any], number: int, job: Any) -> tuple[Any, Exception | None, float]:
    """Run in a worker: the task's value or error, and its time in s."""
    start, turn = time.perf_counter(), _Turn(number)
    try:
        return task(job, turn), None, time.perf_counter() - start
    except Exception as error:
        return None, error, time.perf_counter() - start
    finally:
        turn(1.0)


def _run(
    task: Callable[..., Any],
    jobs: Sequence[Any],
    numbers: Sequence[int],
    workers: int,
    shares: MutableSequence[float],
    show: Callable[[float], None],
) -> Iterator[Outcome]:
    """Yield the outcomes of these jobs as they come; those whose pool broke have no outcome."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(numbers)), context, _start, (shares, workers))
    try:
        waiting = {pool.submit(_work, task, number, jobs[number]): number for number in numbers}
        while waiting:
            done, _ = wait(waiting, _LOOK_S, FIRST_COMPLETED)
            show(sum(shares))
            for future in done:
                number = waiting.pop(future)
                broken = future.exception()
                if broken is None:
                    yield Outcome(number, *future.result())
                elif not isinstance(broken, BrokenProcessPool):
                    yield Outcome(number, None, broken, 0.0)  # a value that does not come back, for one
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run_all(
    task: Callable[[Any, Turn], Any],
    jobs: Sequence[Any],
    workers: int,
    show: Callable[[float], None] = lambda done: None,
) -> Iterator[Outcome]:
    """Call `task(job, turn)` for every job, `workers` at a time; yield what became of each, as they end.

    When a process dies, nobody knows which task it died of: those without an outcome are then run one by
    one.

    Args:
        task: a function of a module; it may tell its `Turn` the share it has done, 0 to 1.
        jobs: what it is called with; they and its values travel between processes.
        workers: how many processes; when fewer tasks are left, those have threads instead (`Turn.threads`).
        show: told, several times a second, how many jobs are done, with fractions.
    """
    if not jobs:
        return
    shares = multiprocessing.get_context("spawn").RawArray("d", len(jobs))
    missing = set(range(len(jobs)))
    for outcome in _run(task, jobs, sorted(missing), workers, shares, show):
        missing.remove(outcome.number)
        yield outcome
    for number in sorted(missing):
        shares[number] = 0.0
        alone = list(_run(task, jobs, [number], 1, shares, show))
        yield alone[0] if alone else Outcome(number, None, ProcessDiedError(), 0.0)
