from types import SimpleNamespace

import pytest

from gigaslide.sweep import space
from gigaslide.sweep.schedule import Schedule
from gigaslide.sweep.verdict import Here
from tests.sweep.worker import small_settings

HERE = Here((1792, 2304), 12, 24e9)


def cell(kernel, stride):
    return {"network.kernel_size": kernel, "network.stride": stride}


def running(cell, epochs):
    child = SimpleNamespace(curve=[0.5] * epochs)
    return SimpleNamespace(trial=SimpleNamespace(cell=cell), child=child)


def test_the_longest_is_first_and_what_is_not_run_last():
    settings = small_settings({"network.kernel_size": [3, 21], "network.stride": [2, 8]}, plan="whole")
    cells = space.make(settings).cells
    schedule = Schedule(settings, HERE)
    # At 16000 x 64000 px, whole, kernel 21 does not fit 128 GB.
    assert schedule.order(cells)[0] == cell(3, 2)
    assert schedule.expected_s(cell(21, 2)) == 0.0
    streamed = Schedule(small_settings(), HERE)
    assert streamed.order(cells) == [cell(21, 2), cell(21, 8), cell(3, 2)]


def test_the_time_left_follows_what_was_measured():
    schedule = Schedule(small_settings(jobs=2), HERE)
    first, second = cell(7, 2), cell(5, 4)
    expected = [schedule.expected_s(cell) for cell in (first, second)]
    assert schedule.left_s([first, second], []) == pytest.approx(sum(expected) / 2)
    assert schedule.left_s([], [running(first, 1)]) == pytest.approx(expected[0] * 3 / 4 / 2)
    schedule.ended(first, 3 * expected[0])
    assert schedule.left_s([second], []) == pytest.approx(3 * expected[1] / 2)
    assert schedule.left_s([], []) == 0.0
