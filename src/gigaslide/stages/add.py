"""`gigaslide add`: slides and their annotations into the slide folder, the cohort table and DVC.

Every slide is read before anything is changed; one that cannot be is named, with its cause, and the others are added.
Files appear in the folder when they are whole, the table is extended when all are there, then DVC takes the folder. A
run that was killed anywhere in this is repaired by running it again: a slide that is in the folder with the same bytes,
and in the table, is left as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from gigaslide import files
from gigaslide.config import PARAMS_FILE, Settings
from gigaslide.console import console, progress_bar
from gigaslide.errors import GigaslideError, SlideError, UsageError
from gigaslide.slides.cohort import read_cohort
from gigaslide.slides.labels import ANNOTATION_SUFFIXES
from gigaslide.slides.slide_files import find_slides
from gigaslide.slides.splits import DEFAULT_SHARES
from gigaslide.stages import listing, matching, params_file, placing, versioning
from gigaslide.stages.candidates import Candidate, choose
from gigaslide.stages.check import CheckJob, check_all
from gigaslide.stages.demo import FOLDER as DEMO_FOLDER
from gigaslide.stages.listing import Line
from gigaslide.stages.paths import ADD, SLIDES
from gigaslide.stages.patients import read_patients
from gigaslide.stages.split_new import set_splits
from gigaslide.stages.table import extend, repair

ANNOTATIONS = "annotations"  # in the slide folder


@dataclass(frozen=True)
class Options:
    """What was asked for; `split` is auto or the one that all new slides go to."""

    paths: tuple[str, ...]
    annotations: Path | None = None
    split: str = "auto"
    bring: Literal["link", "copy", "move"] = "link"
    shares: tuple[float, float, float] = DEFAULT_SHARES
    seed: int = 0
    patients: Path | None = None
    use: bool = False
    push: bool = False


def run(settings: Settings, options: Options, results: Path = ADD) -> int:
    """Add the slides; return the exit code, 1 if one could not be added.

    Raises:
        UsageError: the paths, the options or the cohort table are wrong, or another run is at work.
        GigaslideError: the slides are in place, and DVC could not take them.
    """
    for path in options.paths:
        if "://" in path:
            raise UsageError(
                f"PATH should be a file or a folder of this machine; found the address {path}: fetch it first, "
                f"for example with `dvc get-url {path} FILE`"
            )
    folder = SLIDES if Path(settings.slides.dir) == DEMO_FOLDER else Path(settings.slides.dir)
    versioning.check_project(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # Beside the folder, not in it: DVC tracks all that is in it.
        with FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0):
            return _add(settings, options, folder, results)
    except Timeout:
        raise UsageError(f"another `gigaslide add` is at work on {folder}: wait for it to end") from None


def _add(settings: Settings, options: Options, folder: Path, results: Path) -> int:
    patients = {} if options.patients is None else read_patients(options.patients)
    table = folder / settings.slides.cohort
    placing.remove_unfinished(folder)
    slides, annotations = _look(options, folder)
    repair(table, folder, slides)
    rows = read_cohort(table, required_splits=()) if table.exists() else []
    candidates = choose(slides, annotations, rows, folder)
    _check(candidates, settings)
    _place(candidates, folder, options.bring == "copy")
    set_splits(candidates, rows, options.split, options.shares, options.seed, patients)
    extend(table, candidates)
    lines = [_line(candidate) for candidate in candidates]
    listing.show(lines)
    listing.write_thumbnails(results / "thumbnails.png", lines)
    if table.exists():
        _version(table, folder, options)
        if options.bring == "move":
            _remove_sources(candidates, folder)
    _say(candidates, settings, folder, options)
    return int(any(candidate.problem is not None for candidate in candidates))


def _look(options: Options, folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the slides among the paths, and the annotations that may be theirs."""
    paths = [Path(path) for path in options.paths]
    leave_out = [folder / ANNOTATIONS]
    if options.annotations is not None:
        if not options.annotations.is_dir():
            raise UsageError(f"--annotations should be a folder; there is none at {options.annotations}")
        if options.annotations.absolute() not in [path.absolute() for path in paths]:
            leave_out.append(options.annotations)
    slides = find_slides(paths, leave_out)
    masks = matching.masks_among(slides)
    slides = [slide for slide in slides if slide not in masks]
    if options.annotations is None:
        return slides, matching.find_beside(slides, ANNOTATION_SUFFIXES)
    return slides, matching.find_below(options.annotations, ANNOTATION_SUFFIXES, slides)


def _check(candidates: Sequence[Candidate], settings: Settings) -> None:
    """Read what is new, and note what was found."""
    new = [candidate for candidate in candidates if candidate.problem is None and candidate.needs_check]
    jobs = [
        CheckJob(
            candidate.files.main,
            candidate.annotation,
            candidate.row.mpp_um_per_px if candidate.row else None,
            settings.labels,
            settings.slides.max_corrupt_fraction,
        )
        for candidate in new
    ]
    for candidate, checked in zip(new, check_all(jobs, settings.prepare.workers), strict=True):
        candidate.found, candidate.problem = checked.found, checked.problem


def _place(candidates: Sequence[Candidate], folder: Path, copy: bool) -> None:
    good = [candidate for candidate in candidates if candidate.problem is None and candidate.needs_check]
    with progress_bar() as bar:
        for candidate in bar.track(good, description="bringing files"):
            try:
                if candidate.row is None:
                    placing.place(candidate.files, candidate.target, copy)
                if candidate.annotation is not None:
                    candidate.placed_annotation = _place_annotation(candidate, candidate.annotation, folder)
            except SlideError as error:
                candidate.problem = str(error)


def _place_annotation(candidate: Candidate, annotation: Path, folder: Path) -> Path:
    """Bring it under the slide's name, as a copy: annotations are exported again, over the file that was there."""
    if placing.is_below(annotation, folder):
        return annotation
    target = folder / ANNOTATIONS / f"{candidate.files.name}{annotation.suffix.lower()}"
    try:
        with files.atomic_path(target) as temporary:
            placing.bring(annotation, temporary, copy=True)
    except OSError as error:
        raise SlideError(f"{annotation} cannot be copied to {target}: {error.strerror or error}") from None
    return target


def _version(table: Path, folder: Path, options: Options) -> None:
    console.print(f"putting {folder} under DVC", markup=False)
    has_remote = versioning.add(folder)
    if table.is_symlink() or table.stat().st_nlink > 1:
        # DVC made it a link to its cache, read-only: the table is there to be edited.
        files.write_bytes(table, table.read_bytes())
    if options.push and not has_remote:
        raise GigaslideError(
            f"the slides are added, but there is no DVC remote to push to: `dvc remote add --default NAME URL`, then "
            f"`dvc push {folder}.dvc`"
        )
    if options.push:
        versioning.push(folder)
        console.print(f"{folder}: uploaded to the DVC remote", markup=False)
    elif has_remote:
        console.print(f"`dvc push {folder}.dvc` uploads them to the DVC remote", markup=False)


def _remove_sources(candidates: Sequence[Candidate], folder: Path) -> None:
    for candidate in candidates:
        is_here = placing.is_below(candidate.files.main, folder)
        if candidate.problem is None and not is_here and candidate.same_as is None:
            placing.remove_moved(candidate.files)
            if candidate.placed_annotation is not None and candidate.annotation != candidate.placed_annotation:
                (candidate.annotation or candidate.placed_annotation).unlink(missing_ok=True)


def _line(candidate: Candidate) -> Line:
    row = candidate.row
    if candidate.problem is not None:
        return Line(candidate.files.name, "not added", problem=candidate.problem)
    annotation = candidate.placed_annotation or (row.annotation if row else None)
    notes = [] if candidate.same_as is None else [f"the same slide is in the cohort as {candidate.same_as}"]
    if candidate.annotation is not None and candidate.annotation.stem.casefold() != candidate.files.name.casefold():
        notes.append(f"annotation from {candidate.annotation.name}")
    return Line(
        candidate.files.name,
        "added" if row is None else "annotated" if candidate.placed_annotation else "already there",
        candidate.split or (row.split if row else ""),
        annotation.suffix if annotation else "none",
        candidate.found,
        notes=tuple(notes),
    )


def _say(candidates: Sequence[Candidate], settings: Settings, folder: Path, options: Options) -> None:
    """Say what came out, and what is left to do."""
    good = [candidate for candidate in candidates if candidate.problem is None]
    added = [candidate for candidate in good if candidate.row is None]
    counts = f"{len(added)} added, {len(good) - len(added)} already there, {len(candidates) - len(good)} not added"
    console.print(counts, markup=False)
    bare = [candidate.files.name for candidate in added if candidate.annotation is None]
    if bare and settings.labels.without_annotation == "error":
        console.print(
            f"without annotation: {', '.join(bare)}; `gigaslide prepare` needs one (add them again with --annotations "
            "DIR), or labels.without_annotation: auto",
            markup=False,
        )
    if added:
        console.print(f"to keep this in git: git add {folder}.dvc && git commit", markup=False)
    if folder != Path(settings.slides.dir) and good:
        if options.use:
            changed = params_file.set_values(PARAMS_FILE, {"slides.dir": folder.as_posix()})
            console.print("\n".join(f"params.yaml: {line}" for line in changed), markup=False)
        else:
            console.print(
                f"params.yaml still has slides.dir: {settings.slides.dir}, the demo; set slides.dir: {folder} to work "
                "on these slides, or type the same command with --use",
                markup=False,
            )
