"""What `gigaslide predict` was given: slides, folders of slides and tables, as a list of slides with names."""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gigaslide.errors import UsageError
from gigaslide.slides.slide_files import find_slides, slide_name
from gigaslide.stages.matching import masks_among

_TABLE_SUFFIXES = (".csv",)


@dataclass(frozen=True)
class Input:
    """A slide to predict; `name` is that of its folder of outputs, `mpp_um_per_px` what a table says of its pixels."""

    path: Path
    name: str
    mpp_um_per_px: float | None = None


def read_inputs(paths: Sequence[Path], out: Path) -> list[Input]:
    """Return the slides that `paths` name, once each, in the order given.

    Raises:
        UsageError: there is no such path, a folder holds no slide, or a table has mistakes (all of them are listed).
    """
    found: dict[Path, float | None] = {}
    for path in paths:
        if path.suffix.lower() in _TABLE_SUFFIXES and path.is_file():
            slides: Iterable[tuple[Path, float | None]] = _read_table(path)
        else:
            here = find_slides([path], [out])
            masks = masks_among(here)
            slides = [(slide, None) for slide in here if slide not in masks]
        for slide, mpp in slides:
            key = slide.absolute()
            found[key] = found.get(key) or mpp
    names = _names(list(found))
    return [Input(path, names[path], mpp) for path, mpp in found.items()]


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Name each slide as its file; where several files have one name, with as many folders before it as it takes."""
    names = {path: slide_name(path) for path in paths}
    depth = 0
    while len(set(map(str.casefold, names.values()))) < len(names) and depth < max(len(p.parts) for p in paths):
        depth += 1
        counts = Counter(name.casefold() for name in names.values())
        for path in paths:
            if counts[names[path].casefold()] > 1:
                names[path] = "-".join([*path.parts[-1 - depth : -1], slide_name(path)]).replace("/", "")
    counts = Counter(name.casefold() for name in names.values())
    for path in paths:  # files that differ by their ending only
        if counts[names[path].casefold()] > 1:
            names[path] = path.name
    return names


def _read_table(table: Path) -> list[tuple[Path, float | None]]:
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            rows, header = list(reader), [name or "" for name in reader.fieldnames or ()]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{table} should be a table of slides in CSV, and cannot be read: {error}") from None
    if "slide" not in header:
        raise UsageError(
            f"{table} should have a column named slide, and may have one named mpp; found {', '.join(header) or 'none'}"
        )
    found, mistakes = [], []
    for number, row in enumerate(rows, start=2):
        text = (row["slide"] or "").strip()
        slide = table.parent / text
        if not text or not slide.is_file():
            mistakes.append(f"  row {number}, column slide: there is no file {slide if text else '(empty)'}")
        mpp = _mpp((row.get("mpp") or "").strip())
        if mpp is not None and not (math.isfinite(mpp) and mpp > 0):
            mistakes.append(f"  row {number}, column mpp: expected um per px, as 0.25; found {row['mpp']!r}")
        found.append((slide, mpp))
    if mistakes:
        raise UsageError("\n".join([f"{table} has {len(mistakes)} mistake(s):", *mistakes]))
    if not found:
        raise UsageError(f"{table} names no slide")
    return found


def _mpp(text: str) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return math.nan
