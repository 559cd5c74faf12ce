"""Where trials run: what a machine there has, whether there is room for one more, and how one is started.

This machine is one such place; the machines of a cluster are another (cluster/trials.py).
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

from gigaslide.config import Settings
from gigaslide.errors import GigaslideError
from gigaslide.machine import usable_threads
from gigaslide.sweep.process import COMMAND, Child, TrialProcess
from gigaslide.sweep.verdict import Running

_BYTES_PER_GB = 1e9


class Places(Protocol):
    """Machines that trials run on; `sweep.jobs` of them share one."""

    name: str  # of the machine with most memory, as in "is free on ..."
    threads: int  # of a machine
    total_bytes: float  # memory of that machine

    def free_bytes(self) -> float:
        """Return what of its memory trials may take now.

        Raises:
            GigaslideError: next to nothing.
        """

    def has_room(self, running: Sequence[Running], is_alone: bool) -> bool:
        """Whether another trial may be started now, or one that needs a machine's memory for itself."""

    def start(
        self, folder: Path, settings: Settings, request: dict[str, Any], jobs: int, memory_bytes: float
    ) -> TrialProcess:
        """Start a trial, which shares a machine with `jobs` - 1 others and takes `memory_bytes`.

        `folder`, `settings` and `request` are those of `process.Child`, without the cores.
        """


class ThisMachine:
    """`sweep.jobs` trials side by side on this machine; where there are several, each has cores of its own."""

    def __init__(self, settings: Settings, command: Sequence[str] = COMMAND) -> None:
        """Nothing is started; `command` is for tests."""
        self.name, self.threads = "this machine", usable_threads()
        self.total_bytes = float(psutil.virtual_memory().total)
        self._jobs, self._command = settings.sweep.jobs, command
        self._slots: list[Child | None] = [None] * self._jobs

    def free_bytes(self) -> float:
        """Return the memory that is free."""
        return enough(float(psutil.virtual_memory().available), "here")

    def has_room(self, running: Sequence[Running], is_alone: bool) -> bool:
        """Whether fewer than `sweep.jobs` trials run, and none that needs the memory for itself."""
        return len(running) < self._jobs and not (running and (is_alone or any(one.is_alone for one in running)))

    def start(
        self, folder: Path, settings: Settings, request: dict[str, Any], jobs: int, memory_bytes: float
    ) -> TrialProcess:
        """Start a trial as a child of this process."""
        slot = next(n for n, child in enumerate(self._slots) if child is None or child.ended() is not None)
        child = Child(folder, settings, {**request, "cores": self._cores(slot, jobs)}, self._command)
        self._slots[slot] = child
        return child

    def _cores(self, slot: int, jobs: int) -> list[int]:
        """Return the cores of a slot; none where they cannot be chosen, or need not."""
        if jobs == 1 or not hasattr(os, "sched_getaffinity"):
            return []
        usable = sorted(os.sched_getaffinity(0))
        return usable[slot % len(usable) :: jobs]


def enough(memory_bytes: float, where: str) -> float:
    """Return `memory_bytes`.

    Raises:
        GigaslideError: no trial can do with it.
    """
    if memory_bytes < _BYTES_PER_GB:
        raise GigaslideError(f"a trial takes at least 1 GB, and {memory_bytes / _BYTES_PER_GB:.2f} GB are free {where}")
    return memory_bytes
