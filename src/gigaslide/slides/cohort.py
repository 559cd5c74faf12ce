"""The cohort table: which slides there are, and which split each belongs to.

A CSV (UTF-8, comma) with the columns slide, annotation, split, mpp and, optional, regions and patient; annotation,
mpp, regions and patient may be empty in a row. Paths are relative to the table's folder. A slide's name is its file
name without the ending; that of a DICOM slide, which is a folder of files, is the folder's.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gigaslide.errors import UsageError
from gigaslide.slides.drawing import shown
from gigaslide.slides.labels import ANNOTATION_SUFFIXES
from gigaslide.slides.slide_files import slide_name
from gigaslide.slides.splits import SPLITS, SplitSlide, patient_key, splits_of_patients

REQUIRED_COLUMNS = ("slide", "annotation", "split", "mpp")
_OPTIONAL = ("regions", "patient")
_MPP_UM_PER_PX = (0.01, 100.0)


@dataclass(frozen=True)
class CohortRow:
    """One slide; `regions` is a label TIFF of named regions, which evaluation reports one by one.

    All slides of a `patient` are in one split.
    """

    name: str
    slide: Path
    annotation: Path | None
    split: str
    mpp_um_per_px: float | None
    regions: Path | None
    patient: str | None = None


def _header_mistakes(header: list[str]) -> Iterator[str]:
    if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
        yield f"row 1: columns are separated by commas; found {shown(header[0])!r}"
        return
    for column in REQUIRED_COLUMNS:
        if column not in header:
            yield f"row 1: the column {column} is missing; expected {','.join(REQUIRED_COLUMNS)}"
    for column in header:
        if column not in REQUIRED_COLUMNS + _OPTIONAL:
            known = ", ".join(REQUIRED_COLUMNS + _OPTIONAL)
            yield f"row 1, column {shown(column)!r}: this column is unknown; known are {known}"
        elif header.count(column) > 1:
            yield f"row 1, column {column}: this column occurs {header.count(column)} times"


def _mpp(text: str) -> float | None:
    if not text:
        return None
    value = float(text)
    low, high = _MPP_UM_PER_PX
    if not low <= value <= high:
        raise ValueError(f"between {low} and {high}")
    return value


def _file_mistakes(folder: Path, values: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield column and mistake for each file that is not there, or of a kind that cannot be used."""
    suffixes = {"annotation": ANNOTATION_SUFFIXES, "regions": (".tif", ".tiff")}
    if not values["slide"]:
        yield "slide", "this is empty; name a slide file"
    for column in ("slide", "annotation", "regions"):
        path = folder / values.get(column, "")
        if not values.get(column):
            continue
        name = folder / shown(values[column])
        try:
            if not path.is_file():
                yield column, f"there is no file {name}"
            elif column in suffixes and path.suffix.lower() not in suffixes[column]:
                yield column, f"{shown(values[column])} should end in one of {', '.join(suffixes[column])}"
        except OSError as error:  # a name that is too long, a folder that may not be read
            yield column, f"there is no file that could be read at {name}: {error.strerror}"


def _row_mistakes(folder: Path, values: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield from _file_mistakes(folder, values)
    if values["split"] not in SPLITS:
        yield "split", f"expected one of {', '.join(SPLITS)}; found {shown(values['split'])!r}"
    try:
        _mpp(values["mpp"])
    except ValueError:
        low, high = _MPP_UM_PER_PX
        yield "mpp", f"expected um per px, {low} to {high}, or nothing; found {shown(values['mpp'])!r}"


def _parse(folder: Path, values: dict[str, str]) -> CohortRow:
    slide = folder / values["slide"]
    annotation, regions = values["annotation"], values.get("regions")
    return CohortRow(
        name=slide_name(Path(values["slide"])),
        slide=slide,
        annotation=folder / annotation if annotation else None,
        split=values["split"],
        mpp_um_per_px=_mpp(values["mpp"]),
        regions=folder / regions if regions else None,
        patient=values.get("patient") or None,
    )


def _read_lines(path: Path) -> list[tuple[int, list[str]]]:
    """Return line number and stripped cells of every line that is not blank."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except FileNotFoundError:
        raise UsageError(f"there is no cohort table {path}; set slides.dir and slides.cohort") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"the cohort table {path} cannot be read as CSV in UTF-8: {error}") from None
    return [(number, cells) for number, cells in lines if any(cells)]


def _patient_mistakes(rows: Sequence[tuple[int, dict[str, str]]]) -> Iterator[str]:
    """Yield a mistake for each row whose patient is in another split as well."""
    number_of = {str(number): number for number, _ in rows}
    slides = [
        SplitSlide(str(number), values["patient"], "", values["split"])
        for number, values in rows
        if values.get("patient") and values["split"] in SPLITS
    ]
    places = splits_of_patients(slides)
    for slide in slides:
        first_split, first = next(iter(places[patient_key(slide.patient)].items()))
        if slide.split != first_split:
            yield (
                f"row {slide.name}, column patient: {shown(slide.patient)} is in {slide.split} here and in "
                f"{first_split} in row {number_of[first]}; a patient is in one split"
            )


def parse_cohort(
    path: Path, required_splits: tuple[str, ...] = ("train", "validation")
) -> tuple[list[CohortRow], list[str]]:
    """Read the cohort table; return the rows without mistakes, in its order, and the mistakes.

    Raises:
        UsageError: the table is missing or empty, or no CSV.
    """
    lines = _read_lines(path)
    if not lines:
        raise UsageError(f"the cohort table {path} is empty; expected the header {','.join(REQUIRED_COLUMNS)}")
    header = lines[0][1]
    mistakes = list(_header_mistakes(header))
    rows: list[CohortRow] = []
    first_row_of: dict[str, int] = {}
    splits: set[str] = set()
    read: list[tuple[int, dict[str, str]]] = []
    for number, cells in [] if mistakes else lines[1:]:
        if len(cells) != len(header):
            mistakes.append(f"row {number}: expected {len(header)} cells; found {len(cells)}")
            continue
        values = dict(zip(header, cells, strict=True))
        read.append((number, values))
        found = [f"row {number}, column {column}: {text}" for column, text in _row_mistakes(path.parent, values)]
        splits.add(values["split"])
        name = slide_name(Path(values["slide"]))
        # Two names that differ in case only would be one file on many disks.
        first = first_row_of.setdefault(name.casefold(), number)
        if name and first != number:
            found.append(f"row {number}, column slide: the name {shown(name)} is that of row {first}; names are unique")
        mistakes += found
        if not found:
            rows.append(_parse(path.parent, values))
    mistakes += _patient_mistakes(read)
    if len(lines) == 1 and not mistakes and required_splits:
        mistakes.append("there is a header but no slide")
    elif not mistakes:
        mistakes += [f"column split: no row is {split}" for split in required_splits if split not in splits]
    return rows, mistakes


def mistakes_in_words(path: Path, mistakes: Sequence[str]) -> str:
    """Return the mistakes of the table at `path`, one a line."""
    return "\n  ".join([f"the cohort table {path} has {len(mistakes)} mistake(s):", *mistakes])


def read_cohort(path: Path, required_splits: tuple[str, ...] = ("train", "validation")) -> list[CohortRow]:
    """Read the cohort table; rows in the order of the table. Without `required_splits` it may have none.

    Raises:
        UsageError: the table is missing, or has mistakes; all of them are listed with row (line of the
        file) and column.
    """
    rows, mistakes = parse_cohort(path, required_splits)
    if mistakes:
        raise UsageError(mistakes_in_words(path, mistakes))
    return rows
