"""Peak memory of this process over an interval.

    meter = MemoryMeter()
    with meter.interval() as interval:
        step()
    interval.peak_bytes

The operating system keeps one peak per process; here any number of intervals share it, one inside the other
or overlapping. Before an interval resets the peak, the peak so far is given to every interval that is open.
Between that reading and the reset lie some 20 us: memory that another thread takes *and* gives back in just
that time is not seen.

Child processes are not included.
"""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gigaslide.memory.counters import Counter, process_counter


class _Peak:
    """The peak of one interval, on one counter."""

    def __init__(self) -> None:
        self.start_bytes = 0
        self.peak_bytes = 0


class _Ledger:
    """Turns the one peak of a counter into the peaks of all open intervals."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        # Reentrant: a signal handler or a finaliser may ask for a peak in the middle of one.
        self._lock = threading.RLock()
        self._open: list[_Peak] = []

    def open(self) -> _Peak:
        with self._lock:
            peak = _Peak()
            if not self._open:
                self.counter.start()
            self.settle()
            self.counter.reset()
            peak.start_bytes = peak.peak_bytes = self.counter.current_bytes()
            self._open.append(peak)
            return peak

    def close(self, peak: _Peak) -> None:
        with self._lock:
            self.settle()
            self._open.remove(peak)
            if not self._open:
                self.counter.stop()

    def settle(self) -> None:
        """Give the counter's peak to every open interval."""
        with self._lock:
            if self._open:
                reached_bytes = self.counter.peak_bytes()
                for peak in self._open:
                    peak.peak_bytes = max(peak.peak_bytes, reached_bytes)


@functools.cache
def _process_ledger() -> _Ledger:
    # One for all meters: they share the process' one peak, and a reset by one must be known to the others.
    return _Ledger(process_counter())


class Interval:
    """Memory from the beginning of a `with` block to its end, or to now while the block runs."""

    def __init__(self, process: _Ledger, device: _Ledger | None) -> None:
        self._process = process
        self._device = device
        self._process_peak = process.open()
        self._device_peak = None if device is None else device.open()

    @property
    def start_bytes(self) -> int:
        """Bytes of the process when the interval began."""
        return self._process_peak.start_bytes

    @property
    def peak_bytes(self) -> int:
        """Most bytes of the process at once; at least `start_bytes`."""
        self._process.settle()
        return self._process_peak.peak_bytes

    @property
    def device_peak_bytes(self) -> int | None:
        """Most bytes at once on the device; None where no device reports them."""
        if self._device is None or self._device_peak is None:
            return None
        self._device.settle()
        return self._device_peak.peak_bytes

    def close(self) -> None:
        """End the interval; its numbers stay."""
        self._process.close(self._process_peak)
        if self._device is not None and self._device_peak is not None:
            self._device.close(self._device_peak)


class MemoryMeter:
    """Measures this process, and one device if its counter is given (see `counters.device_counter`).

    `process` replaces the counter of the process; the default is the best one that works on this machine.
    """

    def __init__(self, device: Counter | None = None, process: Counter | None = None) -> None:
        self._process = _process_ledger() if process is None else _Ledger(process)
        self._device = None if device is None else _Ledger(device)

    @contextmanager
    def interval(self) -> Iterator[Interval]:
        """Measure while the block runs; intervals may lie inside one another and in different threads."""
        interval = Interval(self._process, self._device)
        try:
            yield interval
        finally:
            interval.close()

    def current_bytes(self) -> int:
        """Return the bytes of the process now."""
        return self._process.counter.current_bytes()

    def describe(self) -> str:
        """Name what is counted and how, for the run's record."""
        names = [ledger.counter.name for ledger in (self._process, self._device) if ledger is not None]
        return "; ".join(names)
