"""Which of the slides that were named are new, which are in the cohort already, and which cannot be added."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gigaslide.errors import SlideError
from gigaslide.slides.cohort import CohortRow
from gigaslide.slides.slide_files import SlideFiles, slide_files, slide_name
from gigaslide.stages.check import Found
from gigaslide.stages.matching import Match, match
from gigaslide.stages.placing import is_below, is_same, target_of


@dataclass
class Candidate:
    """A slide that was named, and what becomes of it, filled in on the way.

    `row` is its row of the cohort table, if it has one; `same_as` the name it has there, if it is another one.
    """

    files: SlideFiles
    target: Path
    annotation: Path | None = None
    row: CohortRow | None = None
    same_as: str | None = None
    problem: str | None = None
    found: Found | None = None
    placed_annotation: Path | None = None
    patient: str | None = None
    split: str | None = None

    @property
    def needs_check(self) -> bool:
        """Whether something of it is new."""
        return self.row is None or self.annotation is not None


def choose(
    slides: Sequence[Path], annotations: Sequence[Path], rows: Sequence[CohortRow], folder: Path
) -> list[Candidate]:
    """Compare the slides with the cohort, and give them their annotations; in the order given."""
    names = [*(slide_name(slide) for slide in slides), *(row.name for row in rows)]
    matches = match(list(dict.fromkeys(names)), annotations)
    cohort = _Cohort(rows)
    seen: dict[str, Path] = {}
    new: dict[int, list[SlideFiles]] = {}
    candidates = []
    for slide in slides:
        first = seen.setdefault(slide_name(slide).casefold(), slide)
        candidate = _compare(slide, cohort, folder)
        if candidate.problem is None and candidate.row is None and first != slide:
            candidate.problem = f"{slide} has the name of {first}; names are unique: rename one of them"
        if candidate.problem is None and candidate.row is None:
            alike = new.setdefault(candidate.files.size_bytes, [])
            twin = next((other for other in alike if is_same(candidate.files, other)), None)
            if twin is not None:
                candidate.problem = f"{slide} has the same bytes as {twin.main}; add one of them"
            alike.append(candidate.files)
        if candidate.problem is None and candidate.same_as is None:
            _annotate(candidate, matches[candidate.files.name])
        candidates.append(candidate)
    return candidates


class _Cohort:
    """The slides of the table, by name and by size."""

    def __init__(self, rows: Sequence[CohortRow]) -> None:
        self.by_name = {row.name.casefold(): (row, files_of(row.slide)) for row in rows}
        self.by_size: dict[int, list[tuple[CohortRow, SlideFiles]]] = {}
        for row, found in self.by_name.values():
            self.by_size.setdefault(found.size_bytes, []).append((row, found))


def files_of(slide: Path) -> SlideFiles:
    """Return the files of a slide, the one alone where it cannot be told which are."""
    try:
        return slide_files(slide)
    except SlideError:
        return SlideFiles(slide, (slide,), slide.parent)


def _compare(slide: Path, cohort: _Cohort, folder: Path) -> Candidate:
    found = files_of(slide)
    candidate = Candidate(found, target_of(found, folder))
    try:
        slide_files(slide)
    except SlideError as error:
        candidate.problem = str(error)
        return candidate
    cell = candidate.target.name
    if cell != cell.strip() or "\n" in cell or "\r" in cell:
        candidate.problem = f"{slide} has a name that begins or ends with a space, or has a line break in it; rename it"
        return candidate
    named = cohort.by_name.get(found.name.casefold())
    if named is not None:
        if is_same(found, named[1]):
            candidate.row = named[0]
        else:
            candidate.problem = (
                f"another slide has the name {found.name}, with other bytes: {named[0].slide} of the cohort table; "
                f"rename {slide}"
            )
        return candidate
    for row, other in cohort.by_size.get(found.size_bytes, ()):
        if is_same(found, other):
            candidate.row, candidate.same_as = row, row.name
            return candidate
    if _is_taken(candidate, folder):
        candidate.problem = (
            f"{candidate.target} is there already, with other bytes and in no row of the cohort table; remove it, or "
            f"rename {slide}"
        )
    return candidate


def _is_taken(candidate: Candidate, folder: Path) -> bool:
    """Whether something else is where the slide is to go; what a killed run of the same brought there is not."""
    if is_below(candidate.files.main, folder) or not candidate.target.exists():
        return False
    return not is_same(candidate.files, files_of(candidate.target))


def _annotate(candidate: Candidate, found: Match) -> None:
    row = candidate.row
    if row is not None and row.annotation is not None:
        return  # it keeps the one it has
    candidate.annotation = found.annotation
    if found.why is not None:
        candidate.problem = found.why
