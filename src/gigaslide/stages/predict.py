"""`gigaslide predict`: slides into masks, several side by side, each with a state of its own.

    OUT/model.keras     the network that was used
    OUT/<slide>/        mask.tif, mask.geojson, overlay.png, summary.json (prediction/outputs.py)
    OUT/summary.csv     a row for each slide of this run
    OUT/index.html      the contact sheet: failures first, then by area of tissue

A slide whose file, network and settings are those of its summary is not predicted again. One that fails is tried again
by the next run; it stops no other. Killed at any moment, the same command goes on with the slides that are missing.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from gigaslide import __version__, files, provenance
from gigaslide.console import console, progress_bar
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.machine import usable_threads
from gigaslide.network.model_file import read_about
from gigaslide.prediction import outputs
from gigaslide.prediction.request import Request
from gigaslide.slides.slide_files import slide_files
from gigaslide.stages import model_source
from gigaslide.stages.predict_inputs import Input, read_inputs
from gigaslide.stages.predict_results import write_results
from gigaslide.stages.predict_worker import Job, predict
from gigaslide.stages.workers import Outcome, ProcessDiedError, run_all

_BYTES_PER_GB = 1e9
_CORES_PER_JOB = 4  # below, a second slide beside the first gains nothing


@dataclass(frozen=True)
class Options:
    """What `gigaslide predict` was asked for; `jobs` and `budget_gb` None: by what the machine has."""

    paths: tuple[Path, ...]
    out: Path
    model: str | None = None
    jobs: int | None = None
    budget_gb: float | None = None
    request: Request = field(default_factory=Request)


def run(options: Options) -> int:
    """Predict all slides; return the exit code, 1 when one failed.

    Raises:
        UsageError: there is nothing to predict, the network cannot be found, or another run works in the same folder.
    """
    inputs = read_inputs(options.paths, options.out)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(options.out / ".lock", timeout=0):
            return _run(options, inputs)
    except Timeout:
        raise UsageError(
            f"another `gigaslide predict` is at work in {options.out}: wait for it to end, or give another --out"
        ) from None


def _run(options: Options, inputs: Sequence[Input]) -> int:
    model, name = model_source.bring(options.model, options.out)
    read_about(model)  # a file that is no network is said before any process starts
    jobs = _jobs(options, inputs, model, name)
    summaries: dict[int, dict[str, Any]] = {}
    waiting: list[int] = []
    for number, job in enumerate(jobs):
        known = outputs.read_summary(job.folder)
        if known and known.get("made_from") == job.made_from and outputs.is_whole(job.folder, known):
            summaries[number] = known
        else:
            waiting.append(number)
    if len(waiting) < len(jobs):
        console.print(f"{len(jobs) - len(waiting)} of {len(jobs)} slides are predicted already, with these settings")
    _predict([jobs[number] for number in waiting], waiting, summaries, options)
    ordered = [summaries[number] for number in range(len(jobs))]
    return write_results(options.out, [item.name for item in inputs], ordered, name)


def _predict(
    jobs: Sequence[Job], numbers: Sequence[int], summaries: dict[int, dict[str, Any]], options: Options
) -> None:
    """Predict, and put each summary under the slide's number; says each as it comes."""
    with progress_bar(percent=True) as bar:
        task = bar.add_task("predict", total=len(jobs))

        def show(done: float) -> None:
            bar.update(task, completed=done)

        for outcome in run_all(predict, jobs, _side_by_side(options, len(jobs)), show):
            job = jobs[outcome.number]
            summary = outcome.value if outcome.error is None else _failure(job, outcome)
            summaries[numbers[outcome.number]] = summary
            console.print(f"{job.folder.name}: {_in_words(summary, outcome.time_s)}", markup=False)


def _in_words(summary: dict[str, Any], time_s: float) -> str:
    if summary["status"] == outputs.FAILED:
        return f"failed: {summary['reason']}"
    if summary["status"] == outputs.NO_TISSUE:
        return f"no tissue, in {time_s:.1f} s"
    area = summary["tissue_mm2"]
    size = f"{area:.2f} mm2" if area is not None else f"{summary['tissue_px']} px"
    pieces = summary["pieces"]
    return f"{size} of tissue in {pieces} piece{'' if pieces == 1 else 's'}, in {time_s:.1f} s"


def _failure(job: Job, outcome: Outcome) -> dict[str, Any]:
    """Return, and keep, the summary of a slide that failed; what an earlier run made of it is gone."""
    error = outcome.error
    if isinstance(error, GigaslideError):
        reason = str(error)
    elif isinstance(error, ProcessDiedError):
        reason = (
            "its process died: memory ran out (give fewer --jobs, or a smaller --budget-gb), or the slide is damaged"
        )
    else:
        reason = f"{type(error).__name__}: {error}"
    summary = {
        "status": outputs.FAILED,
        "slide": str(job.slide),
        "reason": reason,
        "attempts": job.attempt,
        "time_all_s": round(outcome.time_s, 2),
        "made_from": job.made_from,
    }
    files.remove(job.folder)
    job.folder.mkdir(parents=True)
    outputs.write_summary(job.folder, summary)
    return summary


def _side_by_side(options: Options, slides: int) -> int:
    return min(options.jobs or max(1, usable_threads() // _CORES_PER_JOB), max(1, slides))


def _jobs(options: Options, inputs: Sequence[Input], model: Path, name: str) -> list[Job]:
    count = _side_by_side(options, len(inputs))
    free = psutil.virtual_memory().available
    budget = free if options.budget_gb is None else min(free, options.budget_gb * _BYTES_PER_GB)
    model_sha256 = files.sha256(model)
    found = []
    for item in inputs:
        folder = options.out / item.name
        made_from = _made_from(item, model_sha256, options.request)
        known = outputs.read_summary(folder) or {}
        attempts = known.get("attempts", 0) if known.get("made_from") == made_from else 0
        found.append(
            Job(
                item.path,
                item.mpp_um_per_px,
                model,
                name,
                options.request,
                folder,
                max(1, usable_threads() // count),
                budget / count,
                made_from,
                attempts + 1,
            )
        )
    return found


def _made_from(item: Input, model_sha256: str, request: Request) -> dict[str, Any]:
    """Everything that the outputs follow from; a slide is known by its files' sizes and times, not by their bytes."""
    try:
        parts = slide_files(item.path).parts
    except GigaslideError:
        parts = (item.path,)
    states = [(part.name, part.stat().st_size, part.stat().st_mtime_ns) for part in parts]
    return {
        "slide": str(item.path),
        "files": provenance.digest(states),
        "mpp_um_per_px": item.mpp_um_per_px,
        "model_sha256": model_sha256,
        "request": json.loads(json.dumps(asdict(request))),
        "gigaslide_version": __version__,
        "code": provenance.fingerprint(),
    }
