"""Preparing slides beside decoding them with OpenSlide alone, on the same cores, in one run.

OpenSlide's side (openslide_alone.py): processes, one per core, read all pixels of level 0 and throw them away; nothing
is hashed, labelled or written. Ours: `prepare_slide`, from the slide file to the finished store, hash, labels, glass
and compression included. Both are timed in processes that have started and imported their libraries, turn by turn.

The real slide is small, so what Python needs to start counts there: the whole commands are timed, too, `gigaslide
prepare` on a cohort of both slides beside OpenSlide's processes reading both.
"""

import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from gigaslide import files, machine, provenance
from gigaslide.benchmarks import large_slide
from gigaslide.config import PARAMS_FILE, Settings, as_yaml
from gigaslide.console import console
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.slides.cohort import CohortRow, read_cohort
from gigaslide.slides.preparation import Job, prepare_slide
from gigaslide.stages.demo import REAL_SLIDE

ROUNDS = 3
# In a round; the median of all rounds counts. A small slide takes hundredths of a second.
_SMALL_BYTES, _SMALL_TIMES = 20e6, 10
_MOST_OF_OPENSLIDE = 0.5


def rows_of(settings: Settings) -> list[CohortRow]:
    """Return the slides: the real one of the demo, and that of 16000 x 64000 px.

    Raises:
        UsageError: one of them is not there.
    """
    large, mask = (large_slide.FOLDER / f"{large_slide.NAME}{end}" for end in (".tiff", "_mask.tif"))
    if not (large.exists() and mask.exists()):
        raise UsageError(f"there is no {large}: `gigaslide bench steps --make-slide` makes it")
    found = [row for row in read_cohort(settings.slides.cohort_path) if row.slide.name == REAL_SLIDE.name]
    if not found:
        raise UsageError(f"{settings.slides.cohort_path} does not have {REAL_SLIDE.name}: run `gigaslide demo`")
    return [replace(found[0], regions=None), CohortRow(large_slide.NAME, large, mask, "train", None, None)]


def openslide_alone(slides: Sequence[Path], times: int, processes: int) -> dict[str, list[float]]:
    """Return the seconds that OpenSlide alone needs to decode each slide, each time."""
    command = [sys.executable, "-m", "gigaslide.benchmarks.openslide_alone", str(times), str(processes)]
    done = subprocess.run([*command, *map(str, slides)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise GigaslideError(f"OpenSlide alone failed: {done.stderr.strip()[-500:]}")
    seconds: dict[str, list[float]] = json.loads(done.stdout)
    return seconds


def _prepare(job: Job, times: int, threads: int) -> list[float]:
    """Run in a process of its own: the seconds of each time, after one that is not counted."""
    seconds = []
    for _ in range(times + 1):
        files.remove(job.store)
        started = time.perf_counter()
        prepare_slide(job, lambda share: None, lambda: threads)
        seconds.append(time.perf_counter() - started)
    files.remove(job.store)
    return seconds[1:]


def _prepare_anew(job: Job, times: int, threads: int) -> list[float]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_prepare, job, times, threads).result()


def _one_slide(settings: Settings, row: CohortRow, folder: Path, cores: int, rounds: int) -> dict[str, Any]:
    small = row.slide.stat().st_size < _SMALL_BYTES
    job = Job(row, settings.labels, settings.prepare, None, folder / f"{row.name}.zarr")
    openslide, ours = [], []
    for _ in range(rounds):
        times = _SMALL_TIMES if small else 1
        openslide += openslide_alone([row.slide], times, cores)[str(row.slide)]
        ours += _prepare_anew(job, times, cores)
    return {
        "slide": row.slide.name,
        "openslide_s": statistics.median(openslide),
        "prepare_s": statistics.median(ours),
        "ratio": statistics.median(ours) / statistics.median(openslide),
        "openslide_s_all": openslide,
        "prepare_s_all": ours,
    }


def _whole_commands(settings: Settings, rows: Sequence[CohortRow], folder: Path, cores: int) -> dict[str, float]:
    """Return what a user waits for, from the start of the first process to the end of the last."""
    values = settings.replaced({"slides.dir": ".", "slides.cohort": "cohort.csv", "prepare.region_px": "whole"})
    (folder / PARAMS_FILE).write_text(as_yaml(values), encoding="utf-8")
    lines = ["slide,annotation,split,mpp"]
    for row, split in zip(rows, ("train", "validation"), strict=True):
        lines.append(f"{row.slide.resolve()},{row.annotation.resolve() if row.annotation else ''},{split},")
    (folder / "cohort.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    started = time.perf_counter()
    openslide_alone([row.slide for row in rows], 1, cores)
    openslide_s = time.perf_counter() - started
    started = time.perf_counter()
    command = [sys.executable, "-m", "gigaslide", "prepare"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    prepare_s = time.perf_counter() - started
    if done.returncode:
        raise GigaslideError(f"gigaslide prepare failed: {(done.stdout + done.stderr).strip()[-500:]}")
    return {"openslide_s": openslide_s, "prepare_s": prepare_s, "ratio": prepare_s / openslide_s}


def measure(
    settings: Settings, rows: Sequence[CohortRow], folder: Path, cores: int, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Return the figures; stores are made in `folder`, and removed."""
    whole = settings.replaced({"prepare.region_px": "whole"})
    slides = [_one_slide(whole, row, folder, cores, rounds) for row in rows]
    sums = {key: sum(slide[key] for slide in slides) for key in ("openslide_s", "prepare_s")}
    together = {**sums, "ratio": sums["prepare_s"] / sums["openslide_s"]}
    return {
        "cores": cores,
        "slides": slides,
        "together": together,
        "at_most_half": together["ratio"] <= _MOST_OF_OPENSLIDE,
        "whole_commands": _whole_commands(settings, rows, folder, cores),
        "machine": machine.describe_machine(),
        "git_commit": provenance.git_commit(),
    }


def run(settings: Settings, json_file: Path) -> None:
    """Measure, print and write the figures.

    Raises:
        UsageError: a slide is not there.
        GigaslideError: preparing took more than half of OpenSlide's time; the figures are written all the same.
    """
    rows = rows_of(settings)
    # On the disk of the data: that is where stores go.
    with tempfile.TemporaryDirectory(prefix=".preparing-", dir=large_slide.FOLDER) as name:
        figures = measure(settings, rows, Path(name), machine.usable_threads())
    files.write_text(json_file, json.dumps(figures, indent=2) + "\n")
    lines = [*figures["slides"], figures["together"] | {"slide": "both"}]
    lines.append(figures["whole_commands"] | {"slide": "whole commands, both slides"})
    for line in lines:
        text = "{slide}: OpenSlide alone {openslide_s:.2f} s, prepared in {prepare_s:.2f} s, {ratio:.2f} of it"
        console.print(text.format(**line), markup=False)
    if not figures["at_most_half"]:
        raise GigaslideError(
            f"preparing both slides should take at most half of OpenSlide's time; it took "
            f"{figures['together']['ratio']:.2f} of it"
        )
