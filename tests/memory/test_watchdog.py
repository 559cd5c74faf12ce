import signal
import subprocess
import sys
import threading
import time

import pytest

from gigaslide.memory.watchdog import BudgetExceeded, Watchdog


def _watch(readings: list[float], ends: list[str] | None = None) -> Watchdog:
    """A watchdog for 10 GB; the process takes `readings`, the last one for ever."""
    left = iter(readings)

    def current_bytes() -> int:
        return int(next(left, readings[-1]))

    return Watchdog(10e9, "cut:a tile:512", 9_000_000_000, current_bytes, (ends if ends is not None else []).append)


def _busy(seconds: float) -> None:
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        time.sleep(0.001)


def test_above_the_budget_the_step_ends_with_plan_prediction_and_measurement() -> None:
    with (
        pytest.raises(BudgetExceeded, match=r"takes 10\.40 GB.* budget is 10\.00 GB \(plan cut:a.* predicted 9\.00 GB"),
        _watch([1e9, 5e9, 10.4e9]),
    ):
        _busy(10)


def test_it_interrupts_a_wait_for_another_thread() -> None:
    forever = threading.Event()
    with pytest.raises(BudgetExceeded), _watch([11e9]):
        forever.wait(10)


def test_below_the_budget_nothing_happens_and_the_handler_is_put_back() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    with _watch([1e9, 10e9]):
        _busy(0.1)
    assert signal.getsignal(signal.SIGUSR2) is before


def test_a_main_thread_that_cannot_react_is_ended_with_the_same_words() -> None:
    # A process whose main thread is inside one long call of compiled code, as in the whole-image step.
    code = """
import hashlib
from gigaslide.memory.watchdog import Watchdog
readings = iter([1e9, 11e9])
with Watchdog(10e9, "whole", 9_000_000_000, lambda: int(next(readings, 12e9))):
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 60_000_000)  # half a minute in compiled code
print("still here")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == BudgetExceeded.exit_code
    assert "takes 12.00 GB and the budget is 10.00 GB (plan whole" in done.stderr
    assert "still here" not in done.stdout


def test_it_is_entered_in_the_main_thread_only() -> None:
    found: list[BaseException] = []

    def enter() -> None:
        try:
            with _watch([1e9]):
                pass
        except RuntimeError as error:
            found.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert len(found) == 1
