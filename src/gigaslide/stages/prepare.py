"""Stage `prepare`: the slides of the cohort table into stores, several side by side, and the windows of the last ones.

A slide whose files, annotation and settings are unchanged keeps its store, a slide no longer in the table
loses it, and one that cannot be prepared is named at the end without stopping the others. Killed at any
moment, the next run goes on with the windows that are missing.

Outputs: `data/stores/<name>.zarr` and `index.json`; `results/prepare/summary.json`, the same for the same
inputs; `summary.md`, which also tells what this run did, how long it took and how often it was tried.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from gigaslide import files
from gigaslide.config import Settings
from gigaslide.console import console, progress_bar
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.machine import usable_threads
from gigaslide.slides.bucket import publish
from gigaslide.slides.cohort import CohortRow, read_cohort
from gigaslide.slides.partial_store import belongs_to
from gigaslide.slides.preparation import Job, Prepared, prepare_slide
from gigaslide.slides.store import INDEX_FILE
from gigaslide.stages.paths import PREPARE, STORES
from gigaslide.stages.prepare_state import SlideState, after, at_start, read_states, write_states
from gigaslide.stages.prepare_workers import choose_workers
from gigaslide.stages.workers import Outcome, ProcessDiedError, RunAll, Turn, run_all

_COLUMNS = (
    "slide",
    "split",
    "status",
    "height x width",
    "um per px",
    "from",
    "tissue",
    "time",
    "attempts",
    "last tried",
    "reason",
)


def _store_name(row: CohortRow) -> str:
    return f"{row.name}.zarr"


def _clean(stores: Path, rows: list[CohortRow]) -> None:
    """Remove the index, stores of slides that left the table, and what a killed run left half done."""
    stores.mkdir(parents=True, exist_ok=True)
    files.remove(stores / INDEX_FILE)
    wanted = {_store_name(row) for row in rows}
    for path in stores.iterdir():
        if path.name in wanted or any(belongs_to(path, stores / name) for name in wanted):
            continue
        if path.suffix == ".zarr" or path.name.startswith("."):
            files.remove(path)


def _interrupted(stores: Path, rows: list[CohortRow]) -> list[str]:
    """Return the slides that a killed run was at work on."""
    found = list(stores.iterdir())
    return [row.name for row in rows if any(belongs_to(path, stores / _store_name(row)) for path in found)]


def _reason(error: BaseException) -> str:
    if isinstance(error, GigaslideError):
        return str(error)
    if isinstance(error, ProcessDiedError):
        return (
            "its process died: memory ran out (set prepare.workers or prepare.window_px lower), or the slide is damaged"
        )
    return f"{type(error).__name__}: {error}"


def _summary(row: CohortRow, outcome: Outcome) -> dict[str, Any]:
    """Return what is to be said of a slide, without time and without what an earlier run did."""
    summary: dict[str, Any] = {"slide": row.name, "split": row.split}
    if outcome.error is not None:
        return {**summary, "status": "failed", "reason": _reason(outcome.error)}
    about = outcome.value.store.attributes
    labelled_px = about["tissue_px"] + about["glass_px"]
    return {
        **summary,
        "status": "ready",
        "height_px": about["shape_px"][0],
        "width_px": about["shape_px"][1],
        "mpp_um_per_px": about["mpp_um_per_px"],
        "mpp_source": about["mpp_source"],
        "label_source": about["label_source"],
        "tissue_share": about["tissue_px"] / labelled_px if labelled_px else 0.0,
        "invalid_px": about["invalid_px"],
        "corrupt_px": about["corrupt_px"],
        "reader": about["reader"],
        "warnings": about["warnings"],
    }


def _status(outcome: Outcome) -> str:
    if outcome.error is not None:
        return "failed"
    prepared: Prepared = outcome.value
    return "unchanged" if prepared.unchanged else "prepared"


def _cells(summary: dict[str, Any], state: SlideState) -> tuple[str, ...]:
    """Return the row of the table, one text per column."""
    known = [summary["slide"], summary["split"], state.state]
    tried = ["" if state.time_s is None else f"{state.time_s:.1f} s", str(state.attempts), state.tried or ""]
    if summary["status"] == "failed":
        return (*known, "", "", "", "", *tried, summary["reason"])
    mpp = summary["mpp_um_per_px"]
    reason = "; ".join(summary["warnings"])
    if summary["tissue_share"] == 0:
        reason = "; ".join(filter(None, ["no tissue", reason]))
    return (
        *known,
        f"{summary['height_px']} x {summary['width_px']}",
        f"{(mpp[0] * mpp[1]) ** 0.5:.4g}" if mpp else "",
        summary["mpp_source"],
        f"{summary['tissue_share']:.1%}",
        *tried,
        reason,
    )


def _markdown(rows: list[tuple[str, ...]], counts: str) -> str:
    lines = [_COLUMNS, ("---",) * len(_COLUMNS), *rows]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join(["# Prepared slides", "", counts, "", *(f"| {' | '.join(line)} |" for line in cells), ""])


def _table(rows: list[tuple[str, ...]]) -> str:
    """Return the rows under their header, columns aligned; the last one, of any length, is left as it is."""
    lines = [_COLUMNS, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )


def _prepare(job: Job, turn: Turn) -> Prepared:
    return prepare_slide(job, turn, turn.threads)


def _prepare_all(
    jobs: list[Job], workers: int, state_file: Path, states: dict[str, SlideState], run_all: RunAll
) -> list[Outcome]:
    """Return the outcomes in the order of the jobs; says each as it comes, and keeps `states` and their file."""
    outcomes: dict[int, Outcome] = {}
    with progress_bar() as bar:
        task = bar.add_task("slides", total=len(jobs))
        for outcome in run_all(_prepare, jobs, workers, lambda done: bar.update(task, completed=done)):
            outcomes[outcome.number] = outcome
            name, status = jobs[outcome.number].row.name, _status(outcome)
            reason = None if outcome.error is None else _reason(outcome.error)
            states[name] = after(states.get(name), status, outcome.time_s, reason, datetime.now())
            write_states(state_file, states)
            line = f"{len(outcomes)}/{len(jobs)} {name}: {status} in {outcome.time_s:.1f} s"
            console.print(line if outcome.error is None else f"{line}: {_reason(outcome.error)}", markup=False)
    return [outcomes[number] for number in range(len(jobs))]


def _write_results(
    rows: list[CohortRow], outcomes: list[Outcome], states: dict[str, SlideState], stores: Path, results: Path
) -> list[tuple[str, ...]]:
    summaries = [_summary(row, outcome) for row, outcome in zip(rows, outcomes, strict=True)]
    cells = [_cells(summary, states[summary["slide"]]) for summary in summaries]
    index = [
        {
            "name": row.name,
            "split": row.split,
            "store": _store_name(row),
            "sha256": outcome.value.store.attributes["slide_sha256"],
            "annotation_sha256": outcome.value.store.attributes["annotation_sha256"],
        }
        for row, outcome in zip(rows, outcomes, strict=True)
        if outcome.error is None
    ]
    statuses = [_status(outcome) for outcome in outcomes]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in ("prepared", "unchanged", "failed"))
    files.write_text(stores / INDEX_FILE, json.dumps({"slides": index}, indent=1) + "\n")
    files.write_text(results / "summary.json", json.dumps({"slides": summaries}, indent=1) + "\n")
    files.write_text(results / "summary.md", _markdown(cells, f"{counts}."))
    return cells


def run(settings: Settings, stores: Path = STORES, results: Path = PREPARE, run_all: RunAll = run_all) -> int:
    """Bring all stores up to date with the cohort table and the settings, each as a task that `run_all` runs.

    Returns:
        The exit code: 0, or 1 when a slide failed.

    Raises:
        UsageError: the cohort table has mistakes, or another run works on the same stores.
    """
    rows = read_cohort(settings.slides.cohort_path)
    stores.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Beside the folder, not in it: the folder is an output. The kernel frees the lock of a dead process.
        with FileLock(stores.with_name(f".{stores.name}.lock"), timeout=0):
            _clean(stores, rows)
            state_file = stores.with_name(f".{stores.name}.state.json")
            names = [row.name for row in rows]
            states = at_start(read_states(state_file), names, _interrupted(stores, rows))
            write_states(state_file, states)
            jobs = [
                Job(
                    row,
                    settings.labels,
                    settings.prepare,
                    settings.slides.mpp_um_per_px,
                    stores / _store_name(row),
                    settings.slides.max_corrupt_fraction,
                    None if settings.slides.cache_dir is None else Path(settings.slides.cache_dir),
                )
                for row in rows
            ]
            free_bytes = float(psutil.virtual_memory().available)
            workers = choose_workers(settings, rows, usable_threads(), free_bytes)
            outcomes = _prepare_all(jobs, workers, state_file, states, run_all)
            cells = _write_results(rows, outcomes, states, stores, results)
            publish(stores, settings.cluster.stores, INDEX_FILE)
    except Timeout:
        raise UsageError(f"another `gigaslide prepare` is at work on {stores}: wait for it to end") from None
    console.print(_table(cells), markup=False)
    failed = sum(outcome.error is not None for outcome in outcomes)
    if failed:
        console.print(f"{failed} of {len(rows)} slides failed; correct them, or take them out of the cohort table")
    return int(failed > 0)
