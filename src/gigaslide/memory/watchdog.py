"""Ends a step that takes more memory than its budget, in words, before the kernel ends the process without any.

A thread looks at the process every few milliseconds. Above the budget it raises `BudgetExceeded` in the main thread, by
a signal; if that cannot react in time, because it is inside one long TensorFlow call, the process ends itself.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from gigaslide.errors import GigaslideError

_PERIOD_S = 0.01
# How long the main thread may take to notice, and how far above the budget the process may get meanwhile.
_GRACE_S = 5.0
_GRACE_SHARE = 1.1


class BudgetExceeded(GigaslideError):  # noqa: N818  (it says what it says)
    """The process took more memory than its budget; exit code 3."""

    exit_code = 3


class Watchdog:
    """Watches from `with` to its end; to be entered in the main thread."""

    def __init__(
        self,
        budget_bytes: float,
        plan: str,
        predicted_bytes: int,
        current_bytes: Callable[[], int],
        end: Callable[[str], None] | None = None,
    ) -> None:
        """Set the budget.

        Args:
            budget_bytes: what the process may take.
            plan: the plan's name, for the message.
            predicted_bytes: what the plan was expected to take, for the message.
            current_bytes: what the process takes now.
            end: how the process ends with a message if the main thread does not react; replaced in tests.
        """
        self._budget_bytes, self._plan, self._predicted_bytes = budget_bytes, plan, predicted_bytes
        self._current_bytes = current_bytes
        self._end = end or _end
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-watchdog", daemon=True)
        self._found_bytes = 0

    def __enter__(self) -> "Watchdog":
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("a watchdog is entered in the main thread: only that one gets signals")
        self._previous = signal.signal(signal.SIGUSR2, self._raise)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        signal.signal(signal.SIGUSR2, self._previous)

    def _watch(self) -> None:
        while not self._done.wait(_PERIOD_S):
            self._found_bytes = self._current_bytes()
            if self._found_bytes > self._budget_bytes:
                self._stop_main()
                return

    def _stop_main(self) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
        started = time.monotonic()
        while not self._done.wait(_PERIOD_S):
            now = self._current_bytes()
            if now > self._budget_bytes * _GRACE_SHARE or time.monotonic() - started > _GRACE_S:
                self._found_bytes = max(self._found_bytes, now)
                self._end(self._message())
                return

    def _raise(self, number: int, frame: FrameType | None) -> None:
        # From here on the step is being taken down: that takes as long as the tiles in flight.
        self._done.set()
        raise BudgetExceeded(self._message())

    def _message(self) -> str:
        return (
            f"the training step takes {self._found_bytes / 1e9:.2f} GB and the budget is "
            f"{self._budget_bytes / 1e9:.2f} GB (plan {self._plan}, predicted {self._predicted_bytes / 1e9:.2f} GB): "
            "raise memory.budget_gb, or set prepare.region_px to a smaller area"
        )


def _end(message: str) -> None:
    sys.stderr.write(f"gigaslide: {message}\n")
    sys.stderr.flush()
    os._exit(BudgetExceeded.exit_code)
