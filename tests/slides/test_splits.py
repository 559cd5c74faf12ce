from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.errors import UsageError
from gigaslide.slides.splits import (
    DEFAULT_SHARES,
    SPLITS,
    PatientInTwoSplitsError,
    SplitSlide,
    assign,
    parse_shares,
    patient_from_name,
)

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def cohorts(draw, most=60):
    """Slides without a split, of few to many patients and one to four strata."""
    patients = draw(st.integers(1, most))
    count = draw(st.integers(1, most))
    return [
        SplitSlide(f"s{number}", f"p{draw(st.integers(0, patients))}", draw(st.sampled_from("abcd")))
        for number in range(count)
    ]


def with_splits(slides, splits):
    return [replace(slide, split=splits[slide.name]) for slide in slides]


def patients_in_two(slides, splits):
    places = {}
    for slide in slides:
        places.setdefault(slide.patient, set()).add(splits[slide.name])
    return [patient for patient, found in places.items() if len(found) > 1]


@given(cohorts(), SEEDS)
def test_no_patient_is_in_two_splits_and_every_slide_is_in_one(slides, seed):
    splits = assign(slides, seed=seed)
    assert set(splits) == {slide.name for slide in slides}
    assert set(splits.values()) <= set(SPLITS)
    assert patients_in_two(slides, splits) == []


@given(cohorts(), SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_the_slides_plays_no_part(slides, seed, random):
    shuffled = random.sample(slides, len(slides))
    assert assign(shuffled, seed=seed) == assign(slides, seed=seed)


@given(cohorts(), SEEDS, st.lists(st.integers(0, 60), max_size=4))
def test_in_whatever_parts_they_are_added_none_moves(slides, seed, cuts):
    """Also with another seed for every part, as a user may give one."""
    known: dict[str, str] = {}
    for number, stop in enumerate([*sorted(cuts), len(slides)]):
        batch = [replace(slide, split=known.get(slide.name)) for slide in slides[:stop]]
        splits = assign(batch, seed=(seed + number) % 2**32)
        assert known.items() <= splits.items()
        assert patients_in_two(batch, splits) == []
        known = splits
    assert set(known) == {slide.name for slide in slides}


@given(cohorts(), SEEDS, st.sampled_from([(0.6, 0.2, 0.2), (0.8, 0.1, 0.1), (0.5, 0.5, 0.0), (0.0, 0.0, 1.0)]))
def test_shares_are_approached(slides, seed, shares):
    """Off by the slides of the largest patient, and by what four strata of odd sizes pull apart."""
    splits = assign(slides, shares, seed)
    largest = max(Counter(slide.patient for slide in slides).values())
    counts = Counter(splits.values())
    for split, share in zip(SPLITS, shares, strict=True):
        assert abs(counts[split] - share * len(slides)) <= largest + 2
        assert share or not counts[split]


@given(st.integers(1, 40), st.integers(1, 40), SEEDS)
def test_shares_are_approached_within_each_stratum(first, second, seed):
    slides = [SplitSlide(f"{s}{n}", f"{s}{n}", s) for s, count in (("a", first), ("b", second)) for n in range(count)]
    splits = assign(slides, seed=seed)
    for stratum, count in (("a", first), ("b", second)):
        counts = Counter(splits[slide.name] for slide in slides if slide.stratum == stratum)
        for split, share in zip(SPLITS, DEFAULT_SHARES, strict=True):
            assert abs(counts[split] - share * count) <= 2


def test_one_a_week_comes_to_the_same_shares():
    slides = []
    for number in range(50):
        slides.append(SplitSlide(f"s{number}", f"s{number}", "ab"[number % 2]))
        slides = with_splits(slides, assign(slides))
    assert Counter(slide.split for slide in slides) == {"train": 30, "validation": 10, "test": 10}


def test_a_seed_gives_what_it_always_gave():
    """The splits of a cohort are written down: another version may not come to others for the next slides."""
    slides = [SplitSlide(f"s{number}", f"s{number}", "a") for number in range(10)]
    assert "".join(assign(slides, seed=0)[slide.name][:2] for slide in slides) == "trvavatrtetrtrtrtetr"
    assert assign(slides, seed=0) != assign(slides, seed=1)


def test_the_first_slides_are_enough_to_train_with_even_if_no_two_are_alike():
    slides = [SplitSlide(f"s{number}", f"s{number}", str(number)) for number in range(5)]
    assert set(assign(slides[:2]).values()) == {"train", "validation"}
    assert Counter(assign(slides).values()) == {"train": 3, "validation": 1, "test": 1}


def test_two_splits_of_one_patient_are_refused():
    slides = [SplitSlide("a", "P1", "x", "train"), SplitSlide("b", " p1", "x", "test"), SplitSlide("c", "P2", "x")]
    with pytest.raises(PatientInTwoSplitsError) as caught:
        assign(slides)
    assert (caught.value.patient, caught.value.slides) == ("p1", {"train": "a", "test": "b"})


def test_a_new_slide_follows_its_patient():
    slides = [SplitSlide("a", "P1", "x", "test"), SplitSlide("b", "p1", "y")]
    assert assign(slides) == {"a": "test", "b": "test"}


@pytest.mark.parametrize(
    ("name", "patient"),
    [
        ("TCGA-AB-1234-01Z-00-DX1.0F9C", "TCGA-AB-1234"),
        ("tcga-ab-1234", "TCGA-AB-1234"),
        ("TCGA-AB-12345", None),
        ("C3L-00001-21", "C3L-00001"),
        ("GTEX-1117F-0126", "GTEX-1117F"),
        ("patient_004_node_4", "PATIENT_004"),
        ("CMU-1-Small-Region", None),
        ("", None),
    ],
)
def test_patients_from_names(name, patient):
    assert patient_from_name(name) == patient


@pytest.mark.parametrize("text", ["", "0.6,0.4", "0.6,0.2,0.3", "a,b,c", "1.2,-0.1,-0.1", "nan,0.5,0.5", "1,0,0,0"])
def test_wrong_shares(text):
    with pytest.raises(UsageError, match="three numbers from 0 to 1 with the sum 1"):
        parse_shares(text)


def test_shares():
    assert parse_shares("0.5, 0.25,0.25") == (0.5, 0.25, 0.25)
