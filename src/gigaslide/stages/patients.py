"""Which patient each slide is of, as `gigaslide add --patients FILE` is told."""

import csv
from collections.abc import Mapping
from pathlib import Path

from gigaslide.errors import UsageError

_COLUMNS = ("slide", "patient")


def read_patients(path: Path) -> dict[str, str]:
    """Read a CSV with the columns slide (a slide's name, or its file's) and patient; others are passed over.

    Returns:
        The patient by slide: what stands in the column, its file name, and that without its ending.

    Raises:
        UsageError: the table is missing or has mistakes; all of them are listed, with row.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
            rows = [] if missing else [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"the table of patients {path} cannot be read as CSV in UTF-8: {error}") from None
    if missing:
        raise UsageError(
            f"the table of patients {path} should have the columns slide,patient; {' and '.join(missing)} is missing"
        )
    found: dict[str, str] = {}
    mistakes = []
    for number, row in rows:
        slide, patient = (row["slide"] or "").strip(), (row["patient"] or "").strip()
        if not slide or not patient:
            mistakes.append(f"row {number}: expected a slide and a patient; found {slide!r} and {patient!r}")
            continue
        for name in {slide, Path(slide).name, Path(slide).stem}:
            known = found.setdefault(name.casefold(), patient)
            if known != patient and name == slide:
                mistakes.append(f"row {number}: {slide} is of {patient} here and of {known} above")
    if mistakes:
        raise UsageError("\n  ".join([f"the table of patients {path} has {len(mistakes)} mistake(s):", *mistakes]))
    return found


def patient_in(patients: Mapping[str, str], main: Path, name: str) -> str | None:
    """Return the patient of the slide, by its name or its file's."""
    return patients.get(name.casefold()) or patients.get(main.name.casefold())
