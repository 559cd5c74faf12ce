"""`gigaslide predict`: slides into masks, several side by side, each with a state of its own.

    OUT/model.keras     the network that was used
    OUT/<slide>/        mask.tif, mask.geojson, overlay.png, summary.json (prediction/outputs.py)
    OUT/exports/<tool>/ what other tools take patches from (exports/tools.py), if that is asked for
    OUT/summary.csv     a row for each slide of this run
    OUT/index.html      the contact sheet: failures first, then by area of tissue

A slide whose file, network and settings are those of its summary is not predicted again; what is still to be handed on
of it to other tools is made from its mask. One that fails is tried again
by the next run; it stops no other. Killed at any moment, the same command goes on with the slides that are missing.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from gigaslide import __version__, files, provenance
from gigaslide.console import console, progress_bar
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.exports import tools
from gigaslide.exports.request import PatchRequest
from gigaslide.machine import usable_threads
from gigaslide.network.model_file import read_about
from gigaslide.prediction import outputs
from gigaslide.prediction.request import Request
from gigaslide.slides.slide_files import slide_files
from gigaslide.stages import model_source
from gigaslide.stages.predict_inputs import Input, read_inputs
from gigaslide.stages.predict_results import write_results
from gigaslide.stages.predict_worker import Handing, Job, predict
from gigaslide.stages.workers import Outcome, ProcessDiedError, RunAll, run_all

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
    handing: Handing = field(default_factory=Handing)


def run(options: Options, run_all: RunAll = run_all) -> int:
    """Predict all slides, each as a task that `run_all` runs; return the exit code, 1 when one failed.

    Raises:
        UsageError: there is nothing to predict, the network cannot be found, another run works in the same folder, or
            two slides have one name in a tool they are to be handed to.
    """
    inputs = read_inputs(options.paths, options.out)
    _refuse_one_name(inputs, options.handing)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(options.out / ".lock", timeout=0):
            return _run(options, inputs, run_all)
    except Timeout:
        raise UsageError(
            f"another `gigaslide predict` is at work in {options.out}: wait for it to end, or give another --out"
        ) from None


def _run(options: Options, inputs: Sequence[Input], run_all: RunAll) -> int:
    model, name = model_source.bring(options.model, options.out)
    read_about(model)  # a file that is no network is said before any process starts
    jobs = _jobs(options, inputs, model, name)
    summaries: dict[int, dict[str, Any]] = {}
    waiting: list[int] = []
    for number, job in enumerate(jobs):
        known = outputs.read_summary(job.folder)
        if known and known.get("made_from") == job.made_from and outputs.is_whole(job.folder, known):
            summaries[number] = known
            if _is_handed_on(known, options):
                continue
            jobs[number] = replace(job, done=known)
        waiting.append(number)
    if summaries:
        console.print(f"{len(summaries)} of {len(jobs)} slides are predicted already, with these settings")
    _predict([jobs[number] for number in waiting], waiting, summaries, options, run_all)
    ordered = [summaries[number] for number in range(len(jobs))]
    failed = [tool for tool in options.handing.tools if _finish(tool, inputs, ordered, options.out)]
    return write_results(options.out, [item.name for item in inputs], ordered, name) or int(bool(failed))


def _refuse_one_name(inputs: Sequence[Input], handing: Handing) -> None:
    for tool in handing.tools:
        counts = Counter(tools.slide_id(tool, item.path).casefold() for item in inputs)
        for item in inputs:
            if counts[tools.slide_id(tool, item.path).casefold()] > 1:
                raise UsageError(
                    f"{tool} knows a slide by its file's name, and several are named "
                    f"{tools.slide_id(tool, item.path)}; give them to runs of their own, with another --out each"
                )


def _is_handed_on(summary: Mapping[str, Any], options: Options) -> bool:
    request, states = options.handing.patches or PatchRequest(), summary.get("exports", {})
    return all(tools.is_current(states.get(tool), request, options.out) for tool in options.handing.tools)


def _finish(tool: str, inputs: Sequence[Input], summaries: Sequence[Mapping[str, Any]], out: Path) -> bool:
    """Write what a tool needs beside the slides, and say how much it got; return whether it would not take a slide."""
    states = [summary.get("exports", {}).get(tool, {}) for summary in summaries]
    slides = [item.path for item, state in zip(inputs, states, strict=True) if state.get("patches")]
    tools.finish(tool, slides, out)
    errors = [state["error"] for state in states if "error" in state]
    patches = sum(state.get("patches", 0) for state in states)
    console.print(f"for {tool}: {patches} patches of {len(slides)} slides", markup=False)
    for error in errors:
        console.print(f"not for {tool}: {error}", markup=False)
    return bool(errors)


def _predict(
    jobs: Sequence[Job],
    numbers: Sequence[int],
    summaries: dict[int, dict[str, Any]],
    options: Options,
    run_all: RunAll,
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
    """Return, and keep, the summary of a slide that failed; what an earlier run made of it is gone.

    A slide that is predicted, and only could not be handed on, stays as it is.
    """
    error = outcome.error
    if isinstance(error, GigaslideError):
        reason = str(error)
    elif isinstance(error, ProcessDiedError):
        reason = (
            "its process died: memory ran out (give fewer --jobs, or a smaller --budget-gb), or the slide is damaged"
        )
    else:
        reason = f"{type(error).__name__}: {error}"
    if job.done is not None:
        return {**job.done, "exports": {tool: {"patches": 0, "error": reason} for tool in job.handing.tools}}
    summary = {
        "status": outputs.FAILED,
        "slide": str(job.slide),
        "reason": reason,
        "attempts": job.attempt,
        "time_all_s": round(outcome.time_s, 2),
        "made_from": job.made_from,
    }
    tools.remove(tools.TOOLS, job.slide, job.folder.parent)
    outputs.clear(job.folder)
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
                options.handing,
            )
        )
    return found


@cache
def _code() -> str:
    """Hash the package once, not for every slide."""
    return provenance.fingerprint()


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
        "code": _code(),
    }
