"""Which split a new slide goes to: by patient, stratified, the same for the same seed, and never again changed.

The unit is the patient: all slides of one are in one split, or the network is tested on tissue it was trained on. A
slide that has a split keeps it, and so does its patient, whose new slides follow. Other patients come one by one, those
with most slides first, then in an order drawn from the seed and their name; each goes to the split that then lacks
most slides of its share: among all, counted three times, and among those of the patient's stratum, counted once. So the
order in which slides are named plays no part, and the shares are approached over all and within every stratum, as near
as patients of many slides and strata of few allow.

The stratum of a patient is that of its first slide by name: with or without annotation, and the scanner's vendor.
"""

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gigaslide.errors import UsageError

SPLITS = ("train", "validation", "test")
DEFAULT_SHARES = (0.6, 0.2, 0.2)
_SUM_TOLERANCE = 1e-6
# With less, two slides of two scanners would both be for training.
_WEIGHT_OF_ALL = 3

# Names of public collections that begin with the patient.
_BARCODES = (
    re.compile(r"^(TCGA-[A-Z0-9]{2}-[A-Z0-9]{4})(?![A-Z0-9])", re.IGNORECASE),
    re.compile(r"^(C3[LN]-[0-9]{5})(?![0-9])", re.IGNORECASE),  # CPTAC
    re.compile(r"^(GTEX-[A-Z0-9]{4,5})(?![A-Z0-9])", re.IGNORECASE),
    re.compile(r"^(patient_[0-9]+)(?![0-9])", re.IGNORECASE),  # CAMELYON17
)


@dataclass(frozen=True)
class SplitSlide:
    """What of a slide decides its split; `split` is the one it already has, or is to have."""

    name: str
    patient: str
    stratum: str
    split: str | None = None


class PatientInTwoSplitsError(Exception):
    """A patient would be, or is, in two splits; `slides` names a slide of each."""

    def __init__(self, patient: str, slides: Mapping[str, str]) -> None:
        """`slides`: a slide's name by split."""
        super().__init__(patient)
        self.patient = patient
        self.slides = dict(slides)


def patient_from_name(name: str) -> str | None:
    """Return the patient that the slide's name begins with (TCGA, CPTAC, GTEX, CAMELYON17), None for other names."""
    for barcode in _BARCODES:
        found = barcode.match(name)
        if found:
            return found[1].upper()
    return None


def patient_key(patient: str) -> str:
    """Return what two spellings of one patient have in common."""
    return patient.strip().casefold()


def parse_shares(text: str) -> tuple[float, float, float]:
    """Return the shares of train, validation and test from `0.6,0.2,0.2`.

    Raises:
        UsageError: they are not three numbers from 0 to 1 with the sum 1.
    """
    try:
        train, validation, test = (float(part) for part in text.split(","))
    except ValueError:
        shares = None
    else:
        shares = train, validation, test
    if shares is None or not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > _SUM_TOLERANCE:
        raise UsageError(
            "--shares should be those of train, validation and test, three numbers from 0 to 1 with the sum 1 "
            f"such as 0.6,0.2,0.2; received {text!r}"
        ) from None
    return shares


def splits_of_patients(slides: Iterable[SplitSlide]) -> dict[str, dict[str, str]]:
    """Return, by patient (see `patient_key`), the splits it is in, each with one of its slides' names."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for slide in slides:
        if slide.split is not None:
            found[patient_key(slide.patient)].setdefault(slide.split, slide.name)
    return dict(found)


def _order(patient: str, slides: Sequence[SplitSlide], seed: int) -> tuple[int, str]:
    return -len(slides), hashlib.sha256(f"{seed}/{patient}".encode()).hexdigest()


def assign(slides: Sequence[SplitSlide], shares: Sequence[float] = DEFAULT_SHARES, seed: int = 0) -> dict[str, str]:
    """Return the split of every slide, by name.

    Args:
        slides: all slides, those that have a split and those that need one; names are unique.
        shares: of train, validation and test; the sum is 1.
        seed: another one is another order of the new patients.

    Raises:
        PatientInTwoSplitsError: slides of one patient have two splits.
    """
    splits = {slide.name: slide.split for slide in slides if slide.split is not None}
    taken: dict[str, str] = {}
    for patient, places in splits_of_patients(slides).items():
        if len(places) > 1:
            raise PatientInTwoSplitsError(patient, places)
        taken[patient] = next(iter(places))
    patients: dict[str, list[SplitSlide]] = defaultdict(list)
    for slide in sorted(slides, key=lambda slide: slide.name):
        patients[patient_key(slide.patient)].append(slide)

    everywhere: Counter[str] = Counter()
    by_stratum: dict[str, Counter[str]] = defaultdict(Counter)

    def place(members: Sequence[SplitSlide], split: str) -> None:
        for slide in members:
            splits[slide.name] = split
            everywhere[split] += 1
            by_stratum[members[0].stratum][split] += 1

    for patient, split in taken.items():
        place(patients[patient], split)
    new = [patient for patient in patients if patient not in taken]
    for patient in sorted(new, key=lambda patient: _order(patient, patients[patient], seed)):
        members = patients[patient]
        place(members, _neediest(everywhere, by_stratum[members[0].stratum], len(members), shares))
    return {slide.name: splits[slide.name] for slide in slides}


def _neediest(all_counts: Counter[str], stratum_counts: Counter[str], more: int, shares: Sequence[float]) -> str:
    """Return the split that lacks most once there are `more` slides."""
    weighted = ((_WEIGHT_OF_ALL, all_counts), (1, stratum_counts))

    def lack(number: int) -> float:
        if shares[number] == 0:
            return -math.inf
        split = SPLITS[number]
        # Rounded, so that two that are equal are so on every machine; the first then.
        return round(sum(w * (shares[number] * (c.total() + more) - c[split]) for w, c in weighted), 9)

    return SPLITS[max(range(len(SPLITS)), key=lambda number: (lack(number), -number))]
