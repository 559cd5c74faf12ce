"""`gigaslide sweep`: open the study, work on it until nothing is left, say what came out."""

import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from filelock import FileLock

from gigaslide import tracking
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.files import remove, write_text
from gigaslide.slides.store import open_split
from gigaslide.stages.stored import place
from gigaslide.sweep import identity, log, report, results, space, storage
from gigaslide.sweep.display import Display
from gigaslide.sweep.owners import Owners
from gigaslide.sweep.paths import OWNERS, RECOMMENDATION, SWEEP, TRIALS, TRIALS_CSV, TRIALS_JSON
from gigaslide.sweep.places import Places, ThisMachine
from gigaslide.sweep.results import Result, Trial
from gigaslide.sweep.runner import Runner
from gigaslide.sweep.schedule import Schedule
from gigaslide.sweep.space import Cell, Space
from gigaslide.sweep.study import Study, delete
from gigaslide.sweep.verdict import Here, Running

_BYTES_PER_GB = 1e9


def run(settings: Settings, fresh: bool, places: Places | None = None) -> int:
    """Run the sweep, or what is left of it; return the exit code: 1 if a trial failed, or none is feasible.

    Trials run on `places`; None: on this machine.

    Raises:
        UsageError: nothing is prepared, no cell is valid, the study was made with other settings, or it is to be
            forgotten while another process works on it.
        GigaslideError: no trial is feasible, or complete.
    """
    # As Ctrl-C: what runs is stopped, and its cells wait.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found = space.make(settings)
    places = places or ThisMachine(settings)
    here = _here(settings, places)
    url, trials = settings.sweep.storage or storage.DEFAULT, TRIALS / settings.sweep.name
    owners = Owners(OWNERS)
    runner: Runner | None = None
    try:
        if fresh:
            _forget(settings, url, owners)
        study = Study(url, settings.sweep.name, found, settings.sweep.seed)
        _check_identity(study, identity.of(settings, found), settings.sweep.name)
        for out in found.left_out:
            console.print(f"left out: {space.describe(out.cell)} ({out.reason})", markup=False)
        parent = log.open_parent(settings, study)
        try:
            schedule = Schedule(settings, here)
            if found.cells is not None:
                study.enqueue(schedule.order(found.cells))
            with Display() as display:
                progress = _Progress(settings, found, study, parent, schedule, display)
                runner = Runner(settings, found, study, here, owners, progress, trials, parent.run_id, places)
                runner.run()
            with _tables():
                table = _write_tables(settings, found, study)
                recommendation = report.write(settings, found, table)
                log.close_parent(parent, report.metrics(table), SWEEP)
        except BaseException as error:
            parent.finish("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
            raise
    except KeyboardInterrupt:
        console.print("stopped; `make sweep` goes on from here")
        raise
    finally:
        owners.close(runner is None or runner.has_left_nothing)
    failed = [row for row in table if row["state"] == "failed"]
    for row in failed:
        console.print(f"trial {row['number']} failed: {row['reason']} ({trials} has its log)", markup=False)
    if recommendation is None:
        raise GigaslideError(report.why_nothing(settings, table))
    console.print(recommendation, markup=False)
    return 1 if failed else 0


class _Progress:
    """The observer of the runner: MLflow, the tables and the display."""

    def __init__(
        self,
        settings: Settings,
        found: Space,
        study: Study,
        parent: tracking.Run,
        schedule: Schedule,
        display: Display,
    ) -> None:
        self._settings, self._space, self._study, self._parent = settings, found, study, parent
        self._schedule, self._display = schedule, display

    def looked(self, running: Sequence[Running]) -> None:
        if self._display.is_due():
            trials = self._study.trials()
            waiting: list[Cell] = [trial.cell for trial in trials if trial.is_waiting]
            unknown = self._to_come(trials)
            self._display.show(
                trials, len(waiting) + unknown, running, self._schedule.left_s(waiting, running, unknown)
            )

    def closing(self, trial: Trial, result: Result) -> Result:
        try:
            return replace(result, run_id=log.log_trial(self._settings, self._parent.run_id, trial, result))
        except Exception as error:
            # The result is worth more than its record.
            console.print(f"MLflow does not have the end of trial {trial.number}: {error}", markup=False)
            return result

    def closed(self, trial: Trial, result: Result) -> None:
        if result.state == "complete":
            self._schedule.ended(trial.cell, result.time_s)
        trials = self._study.trials()
        self._display.say(trial, result, trials, self._to_come(trials))
        with _tables():
            _write_tables(self._settings, self._space, self._study)

    def _to_come(self, trials: Sequence[Trial]) -> int:
        """Return how many trials of a sampled space are not in the study yet."""
        return 0 if self._space.cells is not None else max(0, self._settings.sweep.trials - len(trials))

    def released(self, trial: Trial, run_id: str | None) -> None:
        run = tracking.resume(run_id, uri=self._settings.tracking.uri) if run_id else None
        if run is not None:
            run.finish("KILLED")


def _here(settings: Settings, places: Places) -> Here:
    train, validation = (open_split(place(settings), split) for split in ("train", "validation"))
    if not train or not validation:
        raise UsageError("a sweep needs a slide in each of the splits train and validation")
    shape = max((store.shape for store in (*train, *validation)), key=lambda shape: shape[0] * shape[1])
    memory_bytes = min(settings.memory.budget_gb * _BYTES_PER_GB, places.free_bytes())
    return Here(shape, len(train), memory_bytes, places.threads, places.name)


def _forget(settings: Settings, url: str, owners: Owners) -> None:
    if owners.others_here():
        raise UsageError("another `gigaslide sweep` is at work in this folder: stop it before --fresh")
    # In this order: killed in between, no result of the old study is taken for one of the new one.
    remove(TRIALS / settings.sweep.name)
    remove(RECOMMENDATION)
    delete(url, settings.sweep.name)


def _tables() -> FileLock:
    """Return the lock under which results/sweep is written: several processes may work on a study in one folder."""
    return FileLock(OWNERS / "tables.lock")


def _check_identity(study: Study, now: dict[str, Any], name: str) -> None:
    known = study.identity
    if known is None:
        study.set_identity(now)
        return
    changes = identity.changes(known, now)
    if changes:
        raise UsageError(
            f"the study {name!r} was made with other settings ({'; '.join(changes)}): `gigaslide sweep --fresh` starts "
            "anew, another sweep.name keeps both"
        )


def _write_tables(settings: Settings, found: Space, study: Study) -> list[dict[str, Any]]:
    table = results.rows(study.trials(), found.left_out, settings.sweep.space)
    write_text(TRIALS_JSON, json.dumps(table, indent=1) + "\n")
    write_text(TRIALS_CSV, results.as_csv(table))
    return table
