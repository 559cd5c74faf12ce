"""Which machine of a cluster computes which tiles: each a run of neighbouring ones, the same part of every map.

So most of what a tile reads was made on its machine, and only what lies along the borders of the parts travels.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from gigaslide.cluster.step.pieces import Job

# Tiles that are handed out together, at most: a task costs some milliseconds, and its first tile is read before
# anything is computed. The less is left, the fewer, so that all workers of a machine end at about the same time.
_MOST_TILES, _FEWEST_TILES = 32, 4
_TASKS_LEFT = 2  # for each worker, where there are several


class Machine(NamedTuple):
    """A machine as the pool sees it now."""

    name: str
    workers: int  # tasks computed at once
    ahead: int  # tasks that may be handed out at once: some wait, so that no worker does


class Division:
    """The parts of the machines, as large as their numbers of workers say."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = machines
        self._ends = list(accumulate(machine.workers for machine in machines))

    def of(self, tile: int, tiles: int) -> int:
        """Return the number of the machine whose part holds the middle of one of so many tiles."""
        return bisect_right(self._ends, (2 * tile + 1) * self._ends[-1] / (2 * tiles))

    def shares(self, jobs: Iterable[Job], tiles: int) -> Iterator["Share"]:
        """Yield what each machine gets of a sweep over so many tiles, one after the other in the order of the tiles."""
        shares = [Share(machine, deque()) for machine in self.machines]
        for job in jobs:
            shares[self.of(job.tile, tiles)].left.append(job)
        yield from (share for share in shares if share.left)


class Share(NamedTuple):
    """What a machine has left of a sweep."""

    machine: Machine
    left: deque[Job]

    def take(self, most: int) -> list[Job]:
        """Take the jobs of one task, at most so many."""
        workers = self.machine.workers
        evenly = -(-len(self.left) // workers)
        fair = evenly if workers == 1 else max(min(_FEWEST_TILES, evenly), -(-evenly // _TASKS_LEFT))
        return [self.left.popleft() for _ in range(min(most, _MOST_TILES, fair))]
