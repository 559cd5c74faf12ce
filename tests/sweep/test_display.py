import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from gigaslide.sweep import display
from gigaslide.sweep.display import Display, duration
from gigaslide.sweep.results import Result, Trial

DONE = Result("complete", "", 3.0, 20.0, -125, dice=0.95, dice_standard_error=0.01, step_time_s=0.3, peak_memory_gb=1.2)
REFUSED = Result("infeasible", "not run: 300.0 GB predicted", 300.0, 20.0, 172)


def trial(kernel, result=None):
    return Trial(kernel, {"network.kernel_size": kernel, "network.stride": 4}, result is None, False, None, 0, result)


FAILED = Result("failed", "signal 9", 3.0, 20.0, -125)
TRIALS = [trial(3, REFUSED), trial(7, FAILED), trial(7, DONE), trial(11)]


def shown(monkeypatch, is_terminal):
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=110, highlight=False, soft_wrap=True)
    monkeypatch.setattr(display, "console", console)
    with Display() as found:
        assert found.is_due() == is_terminal
        found.say(TRIALS[2], DONE, TRIALS, 2)
        child = SimpleNamespace(curve=[0.1, 0.4], where="", seconds=65)
        one = SimpleNamespace(trial=trial(11), child=child)
        there = SimpleNamespace(trial=trial(11), child=SimpleNamespace(curve=[], where="node7", seconds=3))
        waiting = SimpleNamespace(trial=trial(15), child=SimpleNamespace(curve=[], where=None, seconds=0))
        found.show(TRIALS, 2, [one, there, waiting], 130)
        assert not found.is_due()
    return console.file.getvalue()


def test_a_terminal_shows_counts_the_best_what_runs_and_the_time_left(monkeypatch):
    text = shown(monkeypatch, is_terminal=True)
    assert "2/5" in text
    assert "1 complete, 1 infeasible" in text
    assert "about 2 min left" in text
    assert "best so far: kernel_size 7, stride 4, Dice 0.9500" in text
    assert "running: kernel_size 11, stride 4, epoch 2, Dice 0.4000, 1 min" in text
    assert "running on node7: kernel_size 11, stride 4, epoch 0, 3 s" in text
    assert "waits for room: kernel_size 15, stride 4" in text


def test_anywhere_else_there_is_one_line_per_trial(monkeypatch):
    text = shown(monkeypatch, is_terminal=False)
    assert text.splitlines() == [
        "  2/5  kernel_size 7, stride 4: Dice 0.9500 +- 0.0100, 0.3 s a step, 1.20 GB; 3.0 GB predicted at the sweep's "
        "extent"
    ]
    assert "\x1b" not in text


@pytest.mark.parametrize(("seconds", "text"), [(12, "12 s"), (200, "3 min"), (7800, "2 h 10 min")])
def test_times_are_for_people(seconds, text):
    assert duration(seconds) == text
