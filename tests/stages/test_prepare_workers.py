import pytest

from gigaslide import config
from gigaslide.stages.prepare_workers import choose_workers, worker_bytes
from tests.stages.test_prepare import ROOT


@pytest.fixture
def settings():
    return config.load(ROOT / "params.yaml")


def test_one_worker_per_core_as_far_as_memory_holds_them(settings):
    one = worker_bytes(settings, [])
    assert choose_workers(settings, [], 8, 100 * one) == 8
    assert choose_workers(settings, [], 8, 3.5 * one) == 3
    assert choose_workers(settings, [], 8, 0.5 * one) == 1
    small = settings.replaced({"memory.budget_gb": 2.5 * one / 1e9})
    assert choose_workers(small, [], 8, 100 * one) == 2
    assert choose_workers(settings.replaced({"prepare.workers": 5}), [], 8, 100 * one) == 5


def test_larger_windows_and_coarser_grids_need_more(settings):
    one = worker_bytes(settings, [])
    assert worker_bytes(settings.replaced({"prepare.window_px": 4096}), []) > one
    assert worker_bytes(settings.replaced({"slides.mpp_um_per_px": 2.0}), []) > one
