import pytest

from gigaslide.sweep import feasibility, space
from tests.sweep.worker import small_settings

EXTENT = (16000, 64000)


def need(plan="auto", kernel=11, stride=4, budget_gb=128, **changes):
    settings = small_settings(plan=plan).replaced({"network.kernel_size": kernel, "network.stride": stride, **changes})
    return feasibility.at(settings, EXTENT, budget_gb * 1e9, 2)


def test_the_whole_image_is_what_the_paper_needed_and_streaming_is_not():
    # The paper: over 100 GB, on another platform.
    assert 70 < need("whole").peak_gb < 200
    assert need().peak_gb < 4
    # Im2col where oneDNN's fast path ends: the constraint bites.
    assert need("whole", kernel=15, stride=2).peak_gb > 128
    assert need(kernel=15, stride=2).peak_gb < 16


def test_a_small_budget_gives_the_smallest_plan_and_so_by_how_much_it_is_missed():
    smallest = need(budget_gb=0.5)
    assert smallest.peak_gb > 0.5
    assert smallest.peak_gb <= need(budget_gb=2).peak_gb <= 2
    # Slower, for want of memory.
    assert smallest.step_s >= need().step_s


def test_the_map_has_every_cell_under_both_plans():
    settings = small_settings(
        {"network.kernel_size": [5, 15], "network.stride": [2, 8], "train.learning_rate": [1e-3, 1e-2]}
    )
    peaks = feasibility.peaks(settings, space.make(settings))
    assert set(peaks) == {"whole image", "streamed (auto)"}
    assert set(peaks["whole image"]) == set(peaks["streamed (auto)"]) == {(5, 2), (15, 2), (15, 8)}
    assert all(peaks["streamed (auto)"][key] < peaks["whole image"][key] for key in peaks["whole image"])

    def fitting(plan):
        return {budget: sum(peak <= budget for peak in peaks[plan].values()) for budget in feasibility.BUDGETS_GB}

    counts = fitting("whole image")
    assert counts[16.0] <= counts[64.0] <= counts[128.0] < 3
    assert fitting("streamed (auto)")[16.0] == 3


def test_a_sampled_space_has_no_map():
    settings = small_settings({"train.learning_rate": {"low": 0.001, "high": 0.1}})
    assert not any(feasibility.peaks(settings, space.make(settings)).values())


@pytest.mark.parametrize("value", ["none.json"])
def test_a_plan_that_is_no_file_is_named(value):
    from gigaslide.errors import GigaslideError

    with pytest.raises(GigaslideError, match=r"none\.json"):
        need(value)
