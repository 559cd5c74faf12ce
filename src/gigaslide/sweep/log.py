"""A sweep in MLflow: one run for all of it, and below it one for every trial."""

import uuid
from pathlib import Path
from typing import Any

from filelock import FileLock

from gigaslide import machine, provenance, tracking
from gigaslide.config import Settings
from gigaslide.files import write_text
from gigaslide.sweep.paths import OWNERS
from gigaslide.sweep.results import Result, Trial
from gigaslide.sweep.runner import run_name
from gigaslide.sweep.space import trial_settings
from gigaslide.sweep.study import Study

# How MLflow calls the end of a run.
_STATUS = {"complete": "FINISHED", "infeasible": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}


def open_parent(settings: Settings, study: Study) -> tracking.Run:
    """Open the run of the sweep in this project's folder again, or a new one."""
    with FileLock(OWNERS / "parent.lock"):
        place = _place()
        known = study.parent_run_id(place)
        run = tracking.resume(known, uri=settings.tracking.uri) if known else None
        if run is not None:
            return run
        run = tracking.start(settings.tracking.experiment, f"sweep {settings.sweep.name}", uri=settings.tracking.uri)
        study.set_parent_run_id(place, run.run_id)
    run.log_params({f"sweep.{key}": value for key, value in settings.sweep.model_dump().items() if key != "storage"})
    run.log_params({"memory.budget_gb": settings.memory.budget_gb, "memory.plan": settings.memory.plan})
    tags = {f"machine.{key}": str(value) for key, value in machine.describe_machine().items()}
    run.set_tags(tags | {"git_commit": provenance.git_commit(), "kind": "sweep"})
    return run


def _place() -> str:
    """Return the name of this project's folder in a study that several machines share."""
    file = OWNERS / "place.txt"
    if not file.exists():
        write_text(file, uuid.uuid4().hex[:12])
    return file.read_text(encoding="utf-8")


def log_trial(settings: Settings, parent_run_id: str, trial: Trial, result: Result) -> str:
    """Say in MLflow what became of a trial, in the run of its training or in one of its own; return the run's id."""
    trained = trial_settings(settings, trial.cell)
    run = tracking.resume(result.run_id, uri=settings.tracking.uri) if result.run_id else None
    if run is None:
        name = run_name(trained, trial.cell)
        run = tracking.start(settings.tracking.experiment, name, parent_run_id=parent_run_id, uri=settings.tracking.uri)
        run.log_params(trained.flat())
    metrics: dict[str, Any] = {
        "feasible": None if result.feasible is None else float(result.feasible),
        "predicted_peak_gb": result.predicted_peak_gb,
        "predicted_step_s": result.predicted_step_s,
        "predicted_here_gb": result.predicted_here_gb,
        "best_validation_dice": result.dice,
        "step_time_median_s": result.step_time_s,
    }
    run.log_metrics({key: value for key, value in metrics.items() if value is not None})
    run.set_tags({"kind": "trial", "state": result.state, "reason": result.reason, "trial": str(trial.number)})
    run.finish(_STATUS[result.state])
    return run.run_id


def close_parent(run: tracking.Run, metrics: dict[str, float], folder: Path) -> None:
    """Log what came out of the sweep, with its tables and pictures, and close its run."""
    run.log_metrics(metrics)
    for file in sorted(folder.iterdir()):
        if file.is_file() and not file.name.startswith("."):
            run.log_artifact(file, "sweep")
    run.finish()
