import numpy as np
import pytest

from gigaslide.evaluation import slide as module
from gigaslide.evaluation.counts import Counts, compare
from gigaslide.evaluation.slide import ELSEWHERE, Outcome, measure
from tests.evaluation.slides import blobs


def shifted(slide, by):
    tissue = np.roll(slide.mask == 1, by, axis=0)
    return lambda window: tissue[window.slices]


def test_a_perfect_prediction():
    slide = blobs()
    outcome = measure(slide, {"network": shifted(slide, 0)}, 4)["network"]
    assert (outcome.counts.dice, outcome.boundary.f_score) == (1, 1)
    assert outcome.counts.pixels == np.count_nonzero(slide.mask != 255)


def test_boundary_tolerance_decides():
    slide = blobs()
    strict = measure(slide, {"network": shifted(slide, 5)}, 2)["network"]
    lenient = measure(slide, {"network": shifted(slide, 5)}, 8)["network"]
    assert strict.counts == lenient.counts
    assert strict.boundary.f_score < lenient.boundary.f_score


def test_windows_do_not_change_the_numbers(monkeypatch):
    slide = blobs()
    predictions = {"network": shifted(slide, 3), "auto": shifted(slide, -9)}
    whole = measure(slide, predictions, 4.5)
    monkeypatch.setattr(module, "_WINDOW_PX", 173)
    assert measure(slide, predictions, 4.5) == whole


def test_artefacts_are_named_and_add_up():
    slide = blobs()
    outcome = measure(slide, {"network": shifted(slide, 7)}, 4)["network"]
    assert set(outcome.artefacts) == {"fold", "pen_black", ELSEWHERE}
    assert sum(outcome.artefacts.values(), Counts()) == outcome.counts
    pen = slide.regions == 2
    predicted = np.roll(slide.mask == 1, 7, axis=0)
    assert outcome.artefacts["pen_black"] == compare(predicted[pen], slide.mask[pen])


def test_a_slide_without_artefact_labels_has_no_artefacts():
    slide = blobs(regions=False)
    assert measure(slide, {"network": shifted(slide, 0)}, 4)["network"].artefacts == {}


def test_outcomes_add_up():
    slide = blobs()
    outcome = measure(slide, {"network": shifted(slide, 7)}, 4)["network"]
    double = outcome + outcome
    assert double.counts.pixels == 2 * outcome.counts.pixels
    assert double.artefacts["fold"].pixels == 2 * outcome.artefacts["fold"].pixels
    assert double.counts.dice == pytest.approx(outcome.counts.dice, rel=1e-15)
    assert Outcome() + outcome == outcome
