"""The cohort table, as `gigaslide add` changes it."""

import os
from collections.abc import Sequence
from pathlib import Path

from gigaslide.slides.cohort import REQUIRED_COLUMNS, parse_cohort
from gigaslide.slides.cohort_file import new_table, read_table
from gigaslide.stages.candidates import Candidate, files_of
from gigaslide.stages.placing import place, target_of

PATIENT = "patient"


def repair(table: Path, folder: Path, slides: Sequence[Path]) -> None:
    """Bring back a slide that the table names and that is gone, as when DVC was killed while it linked files."""
    if not table.exists() or not parse_cohort(table, ())[1]:
        return
    named = {row.get("slide") for row in read_table(table).rows()}
    for slide in slides:
        found = files_of(slide)
        target = target_of(found, folder)
        if _cell(target, table) in named and not target.exists():
            place(found, target, copy=False)


def extend(table: Path, candidates: Sequence[Candidate]) -> None:
    """Add a row for every new slide, and the annotation of a row that had none; other rows stay byte for byte."""
    good = [candidate for candidate in candidates if candidate.problem is None]
    new = [candidate for candidate in good if candidate.row is None]
    annotated = [
        candidate for candidate in good if candidate.row is not None and candidate.placed_annotation is not None
    ]
    if not new and not annotated:
        return
    changed = read_table(table) if table.exists() else new_table((*REQUIRED_COLUMNS, PATIENT))
    if new:
        changed = changed.with_column(PATIENT)
    cells = [row.get("slide", "") for row in changed.rows()]
    for candidate in annotated:
        if candidate.row is not None and candidate.placed_annotation is not None:
            cell = next(cell for cell in cells if table.parent / cell == candidate.row.slide)
            changed = changed.with_cell(cell, "annotation", _cell(candidate.placed_annotation, table))
    rows = [
        {
            "slide": _cell(candidate.target, table),
            "annotation": _cell(candidate.placed_annotation, table) if candidate.placed_annotation else "",
            "split": candidate.split or "",
            PATIENT: candidate.patient or "",
        }
        for candidate in new
    ]
    changed.with_rows(rows).write(table)


def _cell(path: Path, table: Path) -> str:
    return Path(os.path.relpath(path, table.parent)).as_posix()
