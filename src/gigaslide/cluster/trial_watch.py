"""A trial of a sweep on a machine of the cluster: its process, seen from the worker of Ray that started it there.

The trial is the same child process as without Ray (sweep/process.py). It ends when the worker does, so when Ray ends
the worker, or someone kills it with all of Ray on that machine.
"""

import os
import random
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from gigaslide.config import Settings
from gigaslide.errors import GigaslideError
from gigaslide.sweep.process import COMMAND, Child, Ending

_LOOK_S = 0.2


class Seen(NamedTuple):
    """What is known of a trial: how it ended, None while it runs, and what `process.Child` tells."""

    ending: Ending | None = None
    curve: Sequence[float] = ()
    step_time_s: float | None = None
    summary: dict[str, Any] | None = None
    run_id: str | None = None


def watch(
    project: Path,
    folder: Path,
    settings: Settings,
    request: dict[str, Any],
    cores: int,
    command: Sequence[str] | None,
) -> Iterator[str | Seen]:
    """Start the process of a trial; yield the name of this machine, and then what is new of it, until it has ended.

    Whatever ends this before the process ends that, too.

    Args:
        project: the folder of the project, absolute.
        folder: of the trial, relative to it; it is there.
        settings: what it trains with.
        request: as `process.Child`'s, without the cores.
        cores: how many it has.
        command: as `process.Child`'s; None: the training.

    Raises:
        GigaslideError: the folders are not those of the machine that leads the sweep.
    """
    machine = socket.gethostname()
    if not (project / folder).is_dir():
        raise GigaslideError(
            f"{project / folder} is not there on {machine}: a sweep over a cluster needs the project's folder on "
            "storage that its machines share, at the same path on all of them (docs/cluster.md)"
        )
    os.chdir(project)
    with ExitStack() as held:
        request = {**request, "cores": take_cores(cores, held)}
        child = Child(folder, settings, request, COMMAND if command is None else command)
        try:
            yield machine
            seen = Seen()
            while seen.ending is None:
                before, seen = seen, _look(child)
                if seen != before:
                    yield seen
                time.sleep(_LOOK_S)
        finally:
            child.stop()


def _look(child: Child) -> Seen:
    ending = child.ended()  # before the rest: what it wrote at its end is there then
    return Seen(ending, child.curve, child.step_time_s, child.summary if ending else None, child.run_id)


def take_cores(count: int, held: ExitStack) -> list[int]:
    """Return cores of this machine that no other trial has until `held` is closed; none where all are asked for.

    Ray counts cores, and does not say which. Where it was told of more than there are, some have two trials.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    usable = sorted(os.sched_getaffinity(0))
    if count >= len(usable):
        return []
    folder = Path(tempfile.gettempdir()) / f"gigaslide-cores-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    # Containers on one machine do not see each other's locks: so not all of them from the first one on.
    first = random.randrange(len(usable))
    found: list[int] = []
    for core in usable[first:] + usable[:first]:
        lock = FileLock(folder / f"{core}.lock")
        if len(found) < count and _acquired(lock):
            held.callback(lock.release)
            found.append(core)
    return found + [core for core in usable if core not in found][: count - len(found)]


def _acquired(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True
