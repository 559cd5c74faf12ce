"""`gigaslide sweep`: open the study, work on it until nothing is left, say what came out."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gigaslide import tracking
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.files import remove, write_text
from gigaslide.slides.store import open_split
from gigaslide.stages.paths import STORES
from gigaslide.sweep import log, report, results, space, storage
from gigaslide.sweep.display import Display
from gigaslide.sweep.owners import Owners
from gigaslide.sweep.paths import OWNERS, SWEEP, TRIALS, TRIALS_CSV, TRIALS_JSON
from gigaslide.sweep.results import Result, Trial
from gigaslide.sweep.runner import Runner, memory_here
from gigaslide.sweep.schedule import Schedule
from gigaslide.sweep.space import Space
from gigaslide.sweep.study import Study, delete
from gigaslide.sweep.verdict import Here, Running


def run(settings: Settings, fresh: bool) -> int:
    """Run the sweep, or what is left of it; return the exit code: 1 if a trial failed, or none is feasible.

    Raises:
        UsageError: nothing is prepared, no cell is valid, or the study was made with other settings.
    """
    found = space.make(settings)
    here = _here(settings)
    url = settings.sweep.storage or storage.DEFAULT
    trials = TRIALS / settings.sweep.name
    if fresh:
        delete(url, settings.sweep.name)
        remove(trials)
    study = Study(url, settings.sweep.name, found, settings.sweep.seed)
    _check_identity(study, _identity(settings), settings.sweep.name)
    for out in found.left_out:
        console.print(f"left out: {space.describe(out.cell)} ({out.reason})", markup=False)
    owners = Owners(OWNERS)
    try:
        schedule = Schedule(settings, here)
        for trial in owners.dead(study.trials()):
            study.release(trial, "its process died")
        if found.cells is not None:
            study.enqueue(schedule.order(found.cells))
        parent = log.open_parent(settings, study)
        total = settings.sweep.trials if found.cells is None else len(found.cells)
        with Display(total) as display:
            progress = _Progress(settings, found, study, parent, schedule, display)
            Runner(settings, found, study, here, owners, progress, trials, parent.run_id).run()
        table = _write_tables(settings, found, study)
        recommendation = report.write(settings, found, table)
        log.close_parent(parent, report.metrics(table), SWEEP)
    except KeyboardInterrupt:
        console.print("stopped; `make sweep` goes on from here")
        raise
    finally:
        owners.close()
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
        for trial in study.trials():
            if trial.result is not None and trial.is_live:
                display.add(trial, trial.result, is_new=False)

    def looked(self, running: Sequence[Running]) -> None:
        if console.is_terminal:
            waiting = [trial.cell for trial in self._study.trials() if trial.is_waiting]
            self._display.show(running, self._schedule.left_s(waiting, running))

    def closing(self, trial: Trial, result: Result) -> Result:
        return replace(result, run_id=log.log_trial(self._settings, self._parent.run_id, trial, result))

    def closed(self, trial: Trial, result: Result) -> None:
        if result.state == "complete":
            self._schedule.ended(trial.cell, result.time_s)
        self._display.add(trial, result)
        _write_tables(self._settings, self._space, self._study)

    def stopped(self, running: Running) -> None:
        run = tracking.resume(running.child.run_id) if running.child.run_id else None
        if run is not None:
            run.finish("KILLED")


def _here(settings: Settings) -> Here:
    train, validation = (open_split(STORES, split) for split in ("train", "validation"))
    if not train or not validation:
        raise UsageError("a sweep needs a slide in each of the splits train and validation")
    shape = max((store.shape for store in (*train, *validation)), key=lambda shape: shape[0] * shape[1])
    return Here(shape, len(train), memory_here(settings))


def _identity(settings: Settings) -> dict[str, Any]:
    """Return what decides the results of a study, flat, so that a difference can be named."""
    flat = settings.flat()
    blocks = ("network.", "train.", "memory.", "evaluate.threshold")
    identity: dict[str, Any] = {key: value for key, value in flat.items() if key.startswith(blocks)}
    sweep = settings.sweep.model_dump(mode="json", include={"space", "values", "extent_px"})
    identity |= {f"sweep.{key}": json.dumps(value) for key, value in sweep.items()}
    stores = [store for split in ("train", "validation") for store in open_split(STORES, split)]
    identity["slides"] = ", ".join(f"{store.name} {store.attributes.get('slide_sha256', '')[:12]}" for store in stores)
    varied = {*settings.sweep.space, *settings.sweep.values}
    return {key: value for key, value in identity.items() if key not in varied}


def _check_identity(study: Study, identity: dict[str, Any], name: str) -> None:
    known = study.identity
    if known is None:
        study.set_identity(identity)
        return
    changes = [
        f"{key}: {_text(known.get(key))} -> {_text(identity.get(key))}"
        for key in {**known, **identity}
        if known.get(key) != identity.get(key)
    ]
    if changes:
        raise UsageError(
            f"the study {name!r} was made with other settings ({'; '.join(changes)}): `gigaslide sweep --fresh` starts "
            "anew, another sweep.name keeps both"
        )


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _write_tables(settings: Settings, found: Space, study: Study) -> list[dict[str, Any]]:
    table = results.rows(study.trials(), found.left_out, settings.sweep.space)
    write_text(TRIALS_JSON, json.dumps(table, indent=1) + "\n")
    write_text(TRIALS_CSV, results.as_csv(table))
    return table
