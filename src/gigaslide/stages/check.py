"""Checking slides: each is opened, its corners and its smallest level are read, its annotation is opened.

A slide is checked in a process of its own, so that a reader that crashes takes nothing along.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gigaslide.config import Labels
from gigaslide.console import progress_bar
from gigaslide.errors import GigaslideError, GigaslideWarning, SlideError
from gigaslide.geometry import Window
from gigaslide.machine import usable_threads
from gigaslide.slides.arrays import Bytes
from gigaslide.slides.copying import Progress
from gigaslide.slides.damage import Damage
from gigaslide.slides.labels import open_labels
from gigaslide.slides.reader import SlideReader, open_slide
from gigaslide.stages.workers import Outcome, ProcessDiedError, run_all

THUMBNAIL_PX = 200  # longer side
_CORNER_PX = 256
# A slide whose smallest level is larger has no overview that can be read in a moment.
_LARGEST_OVERVIEW_PX = 1 << 26


@dataclass(frozen=True)
class CheckJob:
    """A slide to check: what of it is in the cohort table, or will be.

    With `max_corrupt_fraction` above 0, tiles that cannot be decoded are told, as `prepare` leaves them out; with 0,
    and where nothing that is looked at can be decoded, they are a problem.
    """

    slide: Path
    annotation: Path | None
    mpp_um_per_px: float | None
    labels: Labels
    max_corrupt_fraction: float = 0.01


@dataclass(frozen=True)
class Found:
    """What is known of a slide that could be read; the thumbnail is uint8 (y, x, 3)."""

    vendor: str
    shape: tuple[int, int]
    level_count: int
    mpp_um_per_px: tuple[float, float] | None
    mpp_source: str
    notes: tuple[str, ...]
    thumbnail: Bytes


@dataclass(frozen=True)
class Checked:
    """The outcome for one slide: what was found, or the problem."""

    found: Found | None
    problem: str | None


def check_all(jobs: Sequence[CheckJob], workers: int | None) -> list[Checked]:
    """Check all slides, several at a time; the answers are in the order of the jobs."""
    outcomes: dict[int, Outcome] = {}
    with progress_bar() as bar:
        task = bar.add_task("reading slides", total=len(jobs))

        def show(done: float) -> None:
            bar.update(task, completed=done)

        for outcome in run_all(check_slide, jobs, workers or usable_threads(), show):
            outcomes[outcome.number] = outcome
    return [_checked(outcomes[number]) for number in range(len(jobs))]


def _checked(outcome: Outcome) -> Checked:
    error = outcome.error
    if error is None:
        return Checked(outcome.value, None)
    if isinstance(error, GigaslideError):
        return Checked(None, str(error))
    if isinstance(error, ProcessDiedError):
        return Checked(None, "the process that read it died: the slide is damaged, or memory ran out; copy it again")
    return Checked(None, f"it cannot be read: {type(error).__name__}: {error}")


def check_slide(job: CheckJob, progress: Progress) -> Found:
    """Read what tells whether the slide and its annotation can be used.

    Raises:
        SlideError: one of them cannot.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GigaslideWarning)
        reader = open_slide(job.slide, job.mpp_um_per_px)
        damage = Damage()
        if job.max_corrupt_fraction > 0:
            reader = reader.counting(damage)
        try:
            looked_at_px = _read_corners(reader)
            if damage.lost_px == looked_at_px:
                raise SlideError(f"{damage.first}; so are all of its corners: copy the slide again")
            progress(0.3)
            thumbnail, notes = _thumbnail(reader)
            progress(0.8)
            if job.annotation is not None:
                open_labels(reader, job.annotation, job.labels)
        finally:
            reader.close()
    notes += [str(item.message) for item in caught if issubclass(item.category, GigaslideWarning)]
    if damage.tiles:
        notes.append(
            f"{len(damage.tiles)} corrupt tile(s) where it was looked at ({damage.first}): prepare leaves them out, "
            "and refuses the slide where they are more than slides.max_corrupt_fraction"
        )
    if reader.resolution.mpp_um_per_px is None:
        notes.append("does not say how large its pixels are; give it in the mpp column if slides.mpp_um_per_px is set")
    return Found(
        reader.vendor,
        reader.level0_shape,
        len(reader.levels),
        reader.resolution.mpp_um_per_px,
        reader.resolution.source,
        tuple(notes),
        thumbnail,
    )


def _read_corners(reader: SlideReader) -> int:
    """Read them; return how many pixels that was."""
    height, width = reader.level0_shape
    size_y, size_x = min(_CORNER_PX, height), min(_CORNER_PX, width)
    tops, lefts = ({0, full - size} for full, size in ((height, size_y), (width, size_x)))
    for top in sorted(tops):
        for left in sorted(lefts):
            reader.read(Window.of(top, left, size_y, size_x))
    return len(tops) * len(lefts) * size_y * size_x


def _thumbnail(reader: SlideReader) -> tuple[Bytes, list[str]]:
    """Read the smallest level; return it small, and what is to be said of it."""
    height, width = reader.levels[-1].shape
    factor = THUMBNAIL_PX / max(reader.level0_shape)
    small = tuple(max(1, min(size, round(size * factor))) for size in reader.level0_shape)
    if height * width > _LARGEST_OVERVIEW_PX:
        size_y, size_x = (min(full, THUMBNAIL_PX) for full in reader.level0_shape)
        top, left = (reader.level0_shape[0] - size_y) // 2, (reader.level0_shape[1] - size_x) // 2
        middle, _ = reader.read(Window.of(top, left, size_y, size_x))
        said = f"its smallest level is {height} x {width} px: only its corners and its middle were read"
        return middle, [said]
    if max(height, width) < THUMBNAIL_PX:
        smallest = reader.at_shape((height, width))
        smallest.read(Window.of(0, 0, height, width))
    # Averaged from the smallest level that is large enough.
    reader = reader.at_shape((small[0], small[1]))
    rgb, _ = reader.read(Window.of(0, 0, *reader.shape))
    return rgb, []
