"""Works on a study until nothing is left of it: claims trials, runs them side by side, and tells what came out.

Each trial is a process. Those that share a machine share its cores, and keep to the memory budget together: each gets
its part of it, and one that needs more waits until it can have all of it.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gigaslide.config import Settings
from gigaslide.streaming.plan import WHOLE
from gigaslide.sweep import feasibility, verdict
from gigaslide.sweep.feasibility import Need
from gigaslide.sweep.owners import BEAT_S, Owners
from gigaslide.sweep.places import Places
from gigaslide.sweep.process import Ending, run_id_of
from gigaslide.sweep.results import Result, Trial
from gigaslide.sweep.space import AUTO, Cell, Space, describe, invalid, trial_settings
from gigaslide.sweep.study import Study
from gigaslide.sweep.verdict import Here, Running

_BYTES_PER_GB = 1e9
_LOOK_S = 0.5
# Nothing here to do, but others are at work: how often to look whether they still are.
_WAIT_S = 5.0


@dataclass(frozen=True)
class _Waiting:
    """A claimed trial that waits until there is room for it."""

    trial: Trial
    at_extent: Need
    here: Need
    is_alone: bool


class Observer(Protocol):
    """What is told of the progress: the display, MLflow, the tables."""

    def looked(self, running: Sequence[Running]) -> None:
        """Called several times a second."""

    def closing(self, trial: Trial, result: Result) -> Result:
        """A trial has ended, or is not run at all; return the result with the MLflow run that says so."""

    def closed(self, trial: Trial, result: Result) -> None:
        """The study knows it."""

    def released(self, trial: Trial, run_id: str | None) -> None:
        """A trial was given up, because the sweep was stopped or its process died; its cell may be tried again."""


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
        places: Places,
        look_s: float = _LOOK_S,
    ) -> None:
        """Nothing happens before `run`. `folder` gets a folder per trial; `look_s` is for tests."""
        self._settings, self._space, self._study, self._here = settings, space, study, here
        self._owners, self._observer, self._folder = owners, observer, folder
        self._parent_run_id, self._places, self._look_s = parent_run_id, places, look_s
        self.has_left_nothing = False  # no trial that it claimed is left running in the study
        self._running: list[Running] = []
        self._waiting: list[_Waiting] = []
        self._exhausted_after = -1  # trials that the study had when nothing new was found in a sampled space

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
                started = self._places.has_room(self._running, is_alone=False) and self._start_next()
                self._observer.looked(self._running)
                if started:
                    continue
                if not self._running and not self._waiting:
                    if not self._others_are_at_work():
                        return
                    time.sleep(min(_WAIT_S, 10 * self._look_s))
                time.sleep(self._look_s)
        finally:
            self._give_up()

    def _give_up(self) -> None:
        """Stop what runs, and let the cells wait; every trial for itself, so that one error is not the others'."""
        for running in self._running:
            running.child.stop()
        for trial in self._study.trials():
            if trial.is_running and trial.owner == self._owners.name:
                self._release(trial, "interrupted")
        self.has_left_nothing = True

    def _release(self, trial: Trial, reason: str) -> None:
        self._study.release(trial, reason)
        self._observer.released(trial, run_id_of(self._folder / folder_name(trial.cell)))

    def _start_next(self) -> bool:
        """Start, or decide without starting, the next trial; False if there is none, or it has to wait for room."""
        if not self._waiting:
            trial = self._next()
            if trial is None:
                return False
            self._study.beat(trial, self._owners.name, 0)
            waiting = self._judge(trial)
            if waiting is None:
                return True
            self._waiting.append(waiting)
        waiting = self._waiting[0]
        if not self._places.has_room(self._running, waiting.is_alone):
            return False
        self._running.append(self._start(waiting))
        self._waiting.pop(0)
        return True

    def _judge(self, trial: Trial) -> "_Waiting | None":
        """Return the trial as one to be started; None if it was closed because it needs too much."""
        settings = trial_settings(self._settings, trial.cell)
        extent = self._settings.sweep.extent_px
        budget_gb = settings.memory.budget_gb
        threads = self._here.threads
        at_extent = feasibility.at(settings, (extent[0], extent[1]), budget_gb * _BYTES_PER_GB, threads)
        jobs = self._settings.sweep.jobs
        here, share_bytes = feasibility.here(settings, self._here.shape, self._here.memory_bytes, jobs, threads)
        refusal = verdict.refusal(self._settings, self._here, at_extent, here)
        if refusal is not None:
            self._tell(trial, refusal)
            return None
        return _Waiting(trial, at_extent, here, here.peak_gb * _BYTES_PER_GB > share_bytes)

    def _next(self) -> Trial | None:
        for trial in self._owners.dead(self._study.trials()):
            self._release(trial, "its process died")
        if self._space.cells is not None:
            return self._study.claim()
        known = sum(trial.result is not None for trial in self._study.trials())
        if len(self._study.trials()) >= self._settings.sweep.trials or known == self._exhausted_after:
            return None
        proposed = self._study.propose(lambda cell: invalid(self._settings, cell))
        if proposed is None:
            self._exhausted_after = known  # until another result tells the sampler more
        return proposed

    def _start(self, waiting: "_Waiting") -> Running:
        settings = trial_settings(self._settings, waiting.trial.cell)
        jobs = 1 if waiting.is_alone else self._settings.sweep.jobs
        memory = settings.memory
        if jobs > 1:
            # Of what the machine has, not of what is free: a trial that goes on after a kill has to find the settings
            # that it had.
            most_gb = min(memory.budget_gb, self._places.total_bytes // _BYTES_PER_GB)
            settings = settings.replaced({"memory.budget_gb": most_gb / jobs})
        if memory.plan not in (AUTO, WHOLE):
            settings = settings.replaced({"memory.plan": str(Path(memory.plan).resolve())})
        request = {"parent_run_id": self._parent_run_id, "run_name": run_name(settings, waiting.trial.cell)}
        folder = self._folder / folder_name(waiting.trial.cell)
        needed_bytes = self._here.memory_bytes if waiting.is_alone else waiting.here.peak_gb * _BYTES_PER_GB
        child = self._places.start(folder, settings, request, jobs, needed_bytes)
        return Running(waiting.trial, child, waiting.at_extent, waiting.here, waiting.is_alone)

    def _look_after(self, running: Running) -> None:
        ending = running.child.ended()
        if ending is None:
            if self._settings.sweep.prune and verdict.is_hopeless(running, self._settings, self._study):
                running.child.stop()
                self._close(running, Ending("stopped", ""))
            return
        self._close(running, ending)

    def _close(self, running: Running, ending: Ending) -> None:
        is_share = self._settings.sweep.jobs > 1 and not running.is_alone
        if ending.kind == "over budget" and is_share:
            # It passed its share of the budget, which is not the constraint: again, with all of it.
            self._waiting.append(_Waiting(running.trial, running.at_extent, running.here, is_alone=True))
        else:
            self._tell(running.trial, verdict.of(running, ending, self._settings, self._here), running.child.curve)
        self._running.remove(running)

    def _tell(self, trial: Trial, result: Result, curve: Sequence[float] = ()) -> None:
        result = self._observer.closing(trial, result)
        if self._study.tell(trial, result, curve):
            self._observer.closed(trial, result)

    def _beat(self) -> None:
        for running in self._running:
            running.beats += 1
            self._study.beat(running.trial, self._owners.name, running.beats)
        for waiting in self._waiting:
            self._study.beat(waiting.trial, self._owners.name, int(time.monotonic()))

    def _others_are_at_work(self) -> bool:
        is_grid = self._space.cells is not None
        return any(trial.is_running or (is_grid and trial.is_waiting) for trial in self._study.trials())


def run_name(settings: Settings, cell: Cell) -> str:
    """Return the name of a trial's MLflow run: k11-s4, and what else the space varies."""
    others = {key: value for key, value in cell.items() if key not in ("network.kernel_size", "network.stride")}
    name = f"k{settings.network.kernel_size}-s{settings.network.stride}"
    return f"{name}, {describe(others)}" if others else name


def folder_name(cell: Cell) -> str:
    """Return the name of a cell's folder, the same whenever it is tried."""
    text = "_".join(f"{key.rpartition('.')[2]}-{json.dumps(value)}" for key, value in sorted(cell.items()))
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in text)
