import mmap
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from gigaslide.memory.counters import Sampled, device_counter
from gigaslide.memory.meter import MemoryMeter

MIB = 1 << 20
# What else the process may take or give back within a test: pytest, the interpreter's arenas.
SLACK_BYTES = 16 * MIB


def spike(size_bytes):
    """Hold `size_bytes` of resident memory only while its pages are touched."""
    with mmap.mmap(-1, size_bytes) as block:
        for start in range(0, size_bytes, mmap.PAGESIZE):
            block[start] = 1


@pytest.fixture
def meter():
    return MemoryMeter()


def kernel_counts(meter):
    return "sampled" not in meter.describe()


def test_a_spike_between_two_looks_is_seen(meter):
    if not kernel_counts(meter):
        pytest.skip("no kernel peak on this machine; the sampling fallback has its own test")
    with meter.interval() as interval:
        spike(300 * MIB)
    assert interval.peak_bytes - interval.start_bytes >= 300 * MIB - SLACK_BYTES
    assert interval.peak_bytes - interval.start_bytes <= 300 * MIB + SLACK_BYTES
    assert meter.current_bytes() <= interval.start_bytes + SLACK_BYTES


def test_an_interval_does_not_see_what_came_before_it(meter):
    with meter.interval():
        spike(200 * MIB)
    with meter.interval() as second:
        pass
    assert second.peak_bytes - second.start_bytes <= SLACK_BYTES


def test_the_outer_interval_keeps_a_peak_from_before_the_inner_one(meter):
    if not kernel_counts(meter):
        pytest.skip("no kernel peak on this machine")
    with meter.interval() as outer:
        spike(200 * MIB)
        with meter.interval() as inner:
            spike(64 * MIB)
        after_inner = outer.peak_bytes
    assert inner.peak_bytes - inner.start_bytes <= 64 * MIB + SLACK_BYTES
    assert inner.peak_bytes - inner.start_bytes >= 64 * MIB - SLACK_BYTES
    assert after_inner == outer.peak_bytes
    assert outer.peak_bytes - outer.start_bytes >= 200 * MIB - SLACK_BYTES


def test_two_meters_share_the_process_peak():
    first, second = MemoryMeter(), MemoryMeter()
    if not kernel_counts(first):
        pytest.skip("no kernel peak on this machine")
    with first.interval() as early:
        spike(128 * MIB)
        with second.interval() as late:
            pass
    assert early.peak_bytes - early.start_bytes >= 128 * MIB - SLACK_BYTES
    assert late.peak_bytes - late.start_bytes <= SLACK_BYTES


def test_intervals_may_overlap_without_nesting(meter):
    if not kernel_counts(meter):
        pytest.skip("no kernel peak on this machine")
    first, second = ExitStack(), ExitStack()
    one = first.enter_context(meter.interval())
    two = second.enter_context(meter.interval())
    first.close()
    closed_at = one.peak_bytes
    spike(128 * MIB)
    second.close()
    assert one.peak_bytes == closed_at
    assert two.peak_bytes - two.start_bytes >= 128 * MIB - SLACK_BYTES


def test_the_numbers_stay_after_an_error_in_the_block(meter):
    with pytest.raises(KeyError), meter.interval() as interval:
        raise KeyError
    peak_bytes = interval.peak_bytes
    with meter.interval():
        spike(64 * MIB)
    assert interval.peak_bytes == peak_bytes >= interval.start_bytes > 0


def test_sampling_sees_what_lasts_longer_than_its_period_and_leaves_no_thread():
    now = SimpleNamespace(bytes=100)
    looks = threading.Semaphore(0)

    def read():
        looks.release()
        return now.bytes

    meter = MemoryMeter(process=Sampled(read, "a number", period_s=0.001))
    before = set(threading.enumerate())
    with meter.interval() as outer:
        now.bytes = 900
        # The main thread reads at `open`; two more looks after the change mean that the thread saw it.
        while looks.acquire(blocking=False):
            pass
        assert looks.acquire(timeout=30)
        assert looks.acquire(timeout=30)
        now.bytes = 200
        with meter.interval() as inner:
            now.bytes = 300
        assert {thread.name for thread in set(threading.enumerate()) - before} == {"memory-meter"}
    assert (outer.start_bytes, outer.peak_bytes) == (100, 900)
    assert (inner.start_bytes, inner.peak_bytes) == (200, 300)
    assert set(threading.enumerate()) == before
    assert meter.describe() == "a number, sampled every 1 ms"


def test_an_interval_costs_little_beside_a_step(meter):
    if not kernel_counts(meter):
        pytest.skip("the sampling fallback starts a thread per outermost interval")
    # Against something of the same kind on the same machine, not against a number of microseconds: an
    # interval reads /proc/self/status three times and resets once. Ten such reads leave a factor for a loaded
    # machine.
    reads, intervals = [], []
    for _ in range(50):
        start = time.perf_counter()
        meter.current_bytes()
        middle = time.perf_counter()
        with meter.interval():
            pass
        reads.append(middle - start)
        intervals.append(time.perf_counter() - middle)
    assert statistics.median(intervals) < 10 * statistics.median(reads)


class Allocator:
    """A double of `tf.config.experimental` on a device that reports."""

    def __init__(self):
        self.current = self.peak = 1000

    def use(self, size_bytes):
        self.current = size_bytes
        self.peak = max(self.peak, size_bytes)

    def get_memory_info(self, device):
        if device != "GPU:0":
            raise ValueError(device)
        return {"current": self.current, "peak": self.peak}

    def reset_memory_stats(self, device):
        self.peak = self.current


def test_the_device_has_its_own_peak(monkeypatch, meter):
    allocator = Allocator()
    tensorflow = SimpleNamespace(
        config=SimpleNamespace(experimental=allocator), errors=SimpleNamespace(OpError=RuntimeError)
    )
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    meter = MemoryMeter(device=device_counter())
    with meter.interval() as outer:
        allocator.use(5000)
        allocator.use(2000)
        with meter.interval() as inner:
            allocator.use(3000)
            allocator.use(100)
    assert (outer.device_peak_bytes, inner.device_peak_bytes) == (5000, 3000)
    assert "GPU:0" in meter.describe()
    assert device_counter("GPU:7") is None


def test_no_device_no_number(monkeypatch, meter):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    assert device_counter() is None
    with meter.interval() as interval:
        pass
    assert interval.device_peak_bytes is None
