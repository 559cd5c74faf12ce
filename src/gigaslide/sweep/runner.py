"""Works on a study until nothing is left of it: claims trials, runs them side by side, and tells what came out.

Each trial is a process. Those that run share the cores, and keep to the memory budget together: each gets its part of
it, and one that needs more waits until it can have all of it.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import psutil

from gigaslide.config import Settings
from gigaslide.errors import GigaslideError
from gigaslide.machine import usable_threads
from gigaslide.sweep import feasibility, verdict
from gigaslide.sweep.feasibility import Need
from gigaslide.sweep.owners import BEAT_S, Owners
from gigaslide.sweep.process import COMMAND, Child, Ending
from gigaslide.sweep.results import Result, Trial
from gigaslide.sweep.space import Cell, Space, describe, invalid, trial_settings
from gigaslide.sweep.study import Study
from gigaslide.sweep.verdict import Here, Running

_BYTES_PER_GB = 1e9
_LOOK_S = 0.5
# Nothing here to do, but others are at work: how often to look whether they still are.
_WAIT_S = 5.0


class Observer(Protocol):
    """What is told of the progress: the display, MLflow, the tables."""

    def looked(self, running: Sequence[Running]) -> None:
        """Called several times a second."""

    def closing(self, trial: Trial, result: Result) -> Result:
        """A trial has ended, or is not run at all; return the result with the MLflow run that says so."""

    def closed(self, trial: Trial, result: Result) -> None:
        """The study knows it."""

    def stopped(self, running: Running) -> None:
        """A trial was stopped because the sweep was; it will go on another time."""


class Runner:
    """One process's work on a study."""

    def __init__(
        self,
        settings: Settings,
        space: Space,
        study: Study,
        here: Here,
        owners: Owners,
        observer: Observer,
        folder: Path,
        parent_run_id: str,
        command: Sequence[str] = COMMAND,
        look_s: float = _LOOK_S,
    ) -> None:
        """Nothing happens before `run`. `folder` gets a folder per trial; `command` and `look_s` are for tests."""
        self._settings, self._space, self._study, self._here = settings, space, study, here
        self._owners, self._observer, self._folder = owners, observer, folder
        self._parent_run_id, self._command, self._look_s = parent_run_id, command, look_s
        self._running: list[Running] = []
        self._waiting: tuple[Trial, Need, Need, bool] | None = None  # claimed; waits for memory

    def run(self) -> None:
        """Work until every trial has ended, also those of other processes.

        Raises:
            KeyboardInterrupt: the trials that ran were stopped; their cells wait, and go on from their last epoch.
        """
        last_beat = -BEAT_S
        try:
            while True:
                for running in list(self._running):
                    self._look_after(running)
                if time.monotonic() - last_beat >= BEAT_S:
                    self._beat()
                    last_beat = time.monotonic()
                started = len(self._running) < self._settings.sweep.jobs and self._start_next()
                self._observer.looked(self._running)
                if started:
                    continue
                if not self._running and self._waiting is None:
                    if not self._others_are_at_work():
                        return
                    time.sleep(min(_WAIT_S, 10 * self._look_s))
                time.sleep(self._look_s)
        finally:
            for running in self._running:
                running.child.stop()
                self._study.release(running.trial, "interrupted")
                self._observer.stopped(running)
            if self._waiting is not None:
                self._study.release(self._waiting[0], "interrupted")

    def _start_next(self) -> bool:
        """Start, or decide without starting, the next trial; False if there is none, or it has to wait for memory."""
        if self._waiting is None:
            trial = self._next()
            if trial is None:
                return False
            self._study.beat(trial, self._owners.name, 0)
            settings = trial_settings(self._settings, trial.cell)
            extent = self._settings.sweep.extent_px
            budget_bytes = settings.memory.budget_gb * _BYTES_PER_GB
            at_extent = feasibility.at(settings, (extent[0], extent[1]), budget_bytes)
            over_gb = at_extent.peak_gb - settings.memory.budget_gb
            if over_gb > 0:
                self._not_run(trial, at_extent, None, over_gb, verdict.too_much(self._settings, at_extent))
                return True
            share = self._share_bytes()
            here = feasibility.at(settings, self._here.shape, share, self._cores_each())
            is_alone = here.peak_gb * _BYTES_PER_GB > share
            most = min(budget_bytes, self._here.memory_bytes)
            if here.peak_gb * _BYTES_PER_GB > most:
                height, width = self._here.shape
                reason = (
                    f"not run: it needs {here.peak_gb:.2f} GB for the {height} x {width} px of the slides here, and "
                    f"{most / _BYTES_PER_GB:.2f} GB are free"
                )
                self._not_run(trial, at_extent, here, here.peak_gb - most / _BYTES_PER_GB, reason)
                return True
            self._waiting = trial, at_extent, here, is_alone
        trial, at_extent, here, is_alone = self._waiting
        if self._running and (is_alone or any(running.is_alone for running in self._running)):
            return False
        self._waiting = None
        self._running.append(self._start(trial, at_extent, here, is_alone))
        return True

    def _next(self) -> Trial | None:
        for trial in self._owners.dead(self._study.trials()):
            self._study.release(trial, "its process died")
        if self._space.cells is not None:
            return self._study.claim()
        if len(self._study.trials()) >= self._settings.sweep.trials:
            return None
        return self._study.propose(lambda cell: invalid(self._settings, cell))

    def _start(self, trial: Trial, at_extent: Need, here: Need, is_alone: bool) -> Running:
        settings = trial_settings(self._settings, trial.cell)
        jobs = 1 if is_alone else self._settings.sweep.jobs
        # Not what is free: a trial that goes on after a kill has to find the settings that it had.
        settings = settings.replaced({"memory.budget_gb": settings.memory.budget_gb / jobs})
        slot = min(set(range(self._settings.sweep.jobs)) - {running.slot for running in self._running})
        request = {
            "parent_run_id": self._parent_run_id,
            "run_name": run_name(settings, trial.cell),
            "cores": self._cores(slot, jobs),
        }
        child = Child(self._folder / folder_name(trial.cell), settings, request, self._command)
        return Running(trial, child, at_extent, here, slot, is_alone)

    def _look_after(self, running: Running) -> None:
        ending = running.child.ended()
        if ending is None:
            if self._settings.sweep.prune and verdict.is_hopeless(running, self._settings, self._study):
                running.child.stop()
                self._close(running, Ending("stopped", ""))
            return
        self._close(running, ending)

    def _close(self, running: Running, ending: Ending) -> None:
        self._running.remove(running)
        self._tell(running.trial, verdict.of(running, ending, self._settings, self._here), running.child.curve)

    def _tell(self, trial: Trial, result: Result, curve: Sequence[float] = ()) -> None:
        result = self._observer.closing(trial, result)
        if self._study.tell(trial, result, curve):
            self._observer.closed(trial, result)

    def _not_run(self, trial: Trial, at_extent: Need, here: Need | None, over_gb: float, reason: str) -> None:
        result = Result(
            state="infeasible",
            reason=reason,
            predicted_peak_gb=at_extent.peak_gb,
            predicted_step_s=at_extent.step_s,
            over_budget_gb=over_gb,
            predicted_here_gb=here.peak_gb if here else None,
        )
        self._tell(trial, result)

    def _share_bytes(self) -> float:
        return min(self._settings.memory.budget_gb * _BYTES_PER_GB, self._here.memory_bytes) / self._settings.sweep.jobs

    def _cores_each(self) -> int:
        return max(1, usable_threads() // self._settings.sweep.jobs)

    def _cores(self, slot: int, jobs: int) -> list[int]:
        """Return the cores of a slot; none where they cannot be chosen, or need not."""
        if jobs == 1 or not hasattr(os, "sched_getaffinity"):
            return []
        usable = sorted(os.sched_getaffinity(0))
        return usable[slot % len(usable) :: jobs]

    def _beat(self) -> None:
        for running in self._running:
            running.beats += 1
            self._study.beat(running.trial, self._owners.name, running.beats)
        if self._waiting is not None:
            self._study.beat(self._waiting[0], self._owners.name, int(time.monotonic()))

    def _others_are_at_work(self) -> bool:
        return any(trial.is_running or trial.is_waiting for trial in self._study.trials())


def run_name(settings: Settings, cell: Cell) -> str:
    """Return the name of a trial's MLflow run: k11-s4, and what else the space varies."""
    others = {key: value for key, value in cell.items() if key not in ("network.kernel_size", "network.stride")}
    name = f"k{settings.network.kernel_size}-s{settings.network.stride}"
    return f"{name}, {describe(others)}" if others else name


def folder_name(cell: Cell) -> str:
    """Return the name of a cell's folder, the same whenever it is tried."""
    text = "_".join(f"{key.rpartition('.')[2]}-{json.dumps(value)}" for key, value in sorted(cell.items()))
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in text)


def memory_here(settings: Settings) -> float:
    """Return the bytes that trials may take on this machine.

    Raises:
        GigaslideError: there is next to nothing.
    """
    free = float(psutil.virtual_memory().available)
    if free < _BYTES_PER_GB:
        raise GigaslideError(f"a trial takes at least 1 GB, and {free / _BYTES_PER_GB:.2f} GB are free here")
    return min(settings.memory.budget_gb * _BYTES_PER_GB, free)
