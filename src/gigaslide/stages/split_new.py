"""The splits of new slides, from the patients and the strata of these and of the cohort."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gigaslide.errors import GigaslideError
from gigaslide.slides.cohort import CohortRow
from gigaslide.slides.reader import open_slide
from gigaslide.slides.splits import SplitSlide, assign, patient_from_name, patient_key, splits_of_patients
from gigaslide.stages.candidates import Candidate
from gigaslide.stages.patients import patient_in
from gigaslide.stages.workers import run_all


def set_splits(
    candidates: Sequence[Candidate],
    rows: Sequence[CohortRow],
    split: str,
    shares: Sequence[float],
    seed: int,
    patients: Mapping[str, str],
) -> None:
    """Give every new candidate its patient and its split, or a problem where its patient does not allow it.

    Args:
        candidates: those that have a problem, or a row, are passed over.
        rows: the cohort table.
        split: auto, or what all new slides get.
        shares: of train, validation and test, for auto.
        seed: for auto.
        patients: see `read_patients`; a slide that is not among them has the patient its name tells.
    """
    new = [candidate for candidate in candidates if candidate.problem is None and candidate.row is None]
    if not new:
        return
    known = _known(rows, patients, with_vendors=split == "auto")
    places = splits_of_patients(known)
    wanted = []
    for candidate in new:
        name = candidate.files.name
        candidate.patient = patient_in(patients, candidate.files.main, name) or patient_from_name(name)
        patient = candidate.patient or name
        taken = places.get(patient_key(patient), {})
        if len(taken) > 1:
            where = ", ".join(f"{slide}: {place}" for place, slide in sorted(taken.items()))
            candidate.problem = (
                f"its patient {patient} is in two splits ({where}); correct these in the cohort table first"
            )
        elif split != "auto" and taken and split not in taken:
            place, slide = next(iter(taken.items()))
            candidate.problem = (
                f"its patient {patient} is in {place} with {slide}, so it cannot go to {split}; add it with --split "
                f"auto or --split {place}"
            )
        else:
            vendor = candidate.found.vendor if candidate.found else ""
            stratum = _stratum(candidate.annotation is not None, vendor)
            wanted.append(SplitSlide(name, patient, stratum, None if split == "auto" else split))
    # What is wrong in the table already does not keep others from being added.
    sound = [
        replace(slide, patient=f"\0{slide.name}") if len(places[patient_key(slide.patient)]) > 1 else slide
        for slide in known
    ]
    splits = assign([*sound, *wanted], shares, seed)
    for candidate in new:
        if candidate.problem is None:
            candidate.split = splits[candidate.files.name]


def _known(rows: Sequence[CohortRow], patients: Mapping[str, str], with_vendors: bool) -> list[SplitSlide]:
    vendors = _vendors([row.slide for row in rows]) if with_vendors else [""] * len(rows)
    return [
        SplitSlide(
            row.name,
            row.patient or patient_in(patients, row.slide, row.name) or patient_from_name(row.name) or row.name,
            _stratum(row.annotation is not None, vendor),
            row.split,
        )
        for row, vendor in zip(rows, vendors, strict=True)
    ]


def _stratum(has_annotation: bool, vendor: str) -> str:
    return f"{'annotated' if has_annotation else 'bare'} {vendor}"


def _vendors(slides: Sequence[Path]) -> list[str]:
    """Return the scanner's vendor of every slide, nothing where it is unknown or the slide does not open."""
    found = {outcome.number: outcome.value for outcome in run_all(read_vendor, slides, 1)}
    return [found[number] or "" for number in range(len(slides))]


def read_vendor(slide: Path, progress: Callable[[float], None]) -> str:
    """Open the slide for its vendor's sake."""
    try:
        reader = open_slide(slide)
    except GigaslideError:
        return ""
    reader.close()
    progress(1.0)
    return reader.vendor
