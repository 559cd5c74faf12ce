"""The runs of tiles of `machines.Division`, and what `machines.Share` gives their workers, for millions of tiles."""

import heapq
from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gigaslide.cluster.step.machines import Machine, Share
from gigaslide.cluster.step.pieces import Job

Numbers = NDArray[np.int64]
# With so many tiles left for each worker, every task is of the largest size (machines.Share).
_FULL_TASKS = 64
_LARGEST_TASK = 32


class Busy(NamedTuple):
    """What one machine does in a sweep."""

    tasks: int
    tiles: int  # of the worker that has most
    its_tasks: int


def runs(tiles: int, workers: Sequence[int]) -> Numbers:
    """Return the first tile of each machine's run, and the number of tiles at the end; some runs may be empty."""
    ends = list(accumulate(workers))
    # The first tile whose middle is not before the machine's part: (2 tile + 1) / (2 tiles) >= end / all.
    starts = [-(-(2 * tiles * end - ends[-1]) // (2 * ends[-1])) for end in (0, *ends[:-1])]
    return np.array([*starts, tiles], np.int64).clip(0, tiles)


def machine_of(tile: Numbers | int, starts: Numbers) -> Numbers:
    """Return the machine whose run a tile is in."""
    found: Numbers = np.searchsorted(starts[1:-1], tile, "right")
    return found


def share(total: int, parts: int) -> list[int]:
    """Divide `total` into `parts` whole numbers that differ by one at most, the larger ones first."""
    return [total // parts + (part < total % parts) for part in range(parts)]


@cache
def busy(tiles: int, workers: int, most: int) -> Busy:
    """Return what a machine's workers do with so many tiles, in tasks of at most `most`, taken by whoever is free."""
    largest = min(most, _LARGEST_TASK)
    if workers == 1:
        return Busy(-(-tiles // largest), tiles, -(-tiles // largest))
    # While all tasks are of one size all workers are in step.
    rounds = max(0, tiles - _FULL_TASKS * workers) // (largest * workers)
    done = rounds * largest
    share = Share(Machine("", workers, workers), deque([Job("forward", 0, 0)] * (tiles - workers * done)))
    free = [(done, rounds)] * workers
    tasks = rounds * workers
    while share.left:
        at, count = heapq.heappop(free)
        heapq.heappush(free, (at + len(share.take(most)), count + 1))
        tasks += 1
    most_tiles, its_tasks = max(free)
    return Busy(tasks, most_tiles, its_tasks)
