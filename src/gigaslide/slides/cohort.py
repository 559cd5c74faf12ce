"""The cohort table: which slides there are, and which split each belongs to.

A CSV (UTF-8, comma) with the columns slide, annotation, split, mpp and, optional, regions; annotation, mpp
and regions may be empty in a row. Paths are relative to the table's folder. A slide's name is its file name
without the ending.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gigaslide.errors import UsageError
from gigaslide.slides.labels import ANNOTATION_SUFFIXES

SPLITS = ("train", "validation", "test")
_REQUIRED = ("slide", "annotation", "split", "mpp")
_OPTIONAL = ("regions",)
_MPP_UM_PER_PX = (0.01, 100.0)


@dataclass(frozen=True)
class CohortRow:
    """One slide; `regions` is a label TIFF of named regions, which evaluation reports one by one."""

    name: str
    slide: Path
    annotation: Path | None
    split: str
    mpp_um_per_px: float | None
    regions: Path | None


def _header_mistakes(header: list[str]) -> Iterator[str]:
    if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
        yield f"row 1: columns are separated by commas; found {header[0]!r}"
        return
    for column in _REQUIRED:
        if column not in header:
            yield f"row 1: the column {column} is missing; expected {','.join(_REQUIRED)}"
    for column in header:
        if column not in _REQUIRED + _OPTIONAL:
            known = ", ".join(_REQUIRED + _OPTIONAL)
            yield f"row 1, column {column!r}: this column is unknown; known are {known}"
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
        if not path.is_file():
            yield column, f"there is no file {path}"
        elif column in suffixes and path.suffix.lower() not in suffixes[column]:
            yield column, f"{values[column]} should end in one of {', '.join(suffixes[column])}"


def _row_mistakes(folder: Path, values: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield from _file_mistakes(folder, values)
    if values["split"] not in SPLITS:
        yield "split", f"expected one of {', '.join(SPLITS)}; found {values['split']!r}"
    try:
        _mpp(values["mpp"])
    except ValueError:
        low, high = _MPP_UM_PER_PX
        yield "mpp", f"expected um per px, {low} to {high}, or nothing; found {values['mpp']!r}"


def _parse(folder: Path, values: dict[str, str]) -> CohortRow:
    slide = folder / values["slide"]
    annotation, regions = values["annotation"], values.get("regions")
    return CohortRow(
        name=slide.stem,
        slide=slide,
        annotation=folder / annotation if annotation else None,
        split=values["split"],
        mpp_um_per_px=_mpp(values["mpp"]),
        regions=folder / regions if regions else None,
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


def read_cohort(path: Path, required_splits: tuple[str, ...] = ("train", "validation")) -> list[CohortRow]:
    """Read the cohort table; rows in the order of the table.

    Raises:
        UsageError: the table is missing, or has mistakes; all of them are listed with row (line of the
        file) and column.
    """
    lines = _read_lines(path)
    if not lines:
        raise UsageError(f"the cohort table {path} is empty; expected the header {','.join(_REQUIRED)}")
    header = lines[0][1]
    mistakes = list(_header_mistakes(header))
    rows: list[CohortRow] = []
    first_row_of: dict[str, int] = {}
    splits: set[str] = set()
    for number, cells in [] if mistakes else lines[1:]:
        if len(cells) != len(header):
            mistakes.append(f"row {number}: expected {len(header)} cells; found {len(cells)}")
            continue
        values = dict(zip(header, cells, strict=True))
        found = [f"row {number}, column {column}: {text}" for column, text in _row_mistakes(path.parent, values)]
        splits.add(values["split"])
        name = Path(values["slide"]).stem
        # Two names that differ in case only would be one file on many disks.
        first = first_row_of.setdefault(name.casefold(), number)
        if name and first != number:
            found.append(f"row {number}, column slide: the name {name} is that of row {first}; names are unique")
        mistakes += found
        if not found:
            rows.append(_parse(path.parent, values))
    if len(lines) == 1 and not mistakes:
        mistakes.append("there is a header but no slide")
    elif not mistakes:
        mistakes += [f"column split: no row is {split}" for split in required_splits if split not in splits]
    if mistakes:
        raise UsageError("\n  ".join([f"the cohort table {path} has {len(mistakes)} mistake(s):", *mistakes]))
    return rows
