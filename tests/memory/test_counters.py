import ctypes
import sys

import pytest

from gigaslide.memory import counters
from gigaslide.memory.counters import (
    LinuxResidentSet,
    MacFootprint,
    RusageInfoV4,
    Sampled,
    process_counter,
    works,
)


def test_layout_of_the_macos_structure():
    # 16 bytes of UUID and 35 numbers of 8 bytes, none padded; the offsets follow from the order in
    # bsd/sys/resource.h.
    assert ctypes.sizeof(RusageInfoV4) == 16 + 35 * 8
    assert RusageInfoV4.ri_uuid.offset == 0
    assert RusageInfoV4.ri_resident_size.offset == 64
    assert RusageInfoV4.ri_phys_footprint.offset == 72
    assert RusageInfoV4.ri_lifetime_max_phys_footprint.offset == 240
    assert RusageInfoV4.ri_instructions.offset == 248
    assert RusageInfoV4.ri_interval_max_phys_footprint.offset == 280
    assert RusageInfoV4.ri_runnable_time.offset == 288


class LibProc:
    """A double of libproc: fills the bytes where the C structure has them, not through our own structure."""

    def __init__(self, result=0):
        self.result = result
        self.footprint, self.highest = 1000, 7000

    def proc_pid_rusage(self, pid, flavor, buffer):
        assert flavor.value == 4
        raw = (ctypes.c_uint64 * 37).from_address(ctypes.addressof(buffer._obj))
        raw[72 // 8], raw[280 // 8] = self.footprint, self.highest
        return self.result

    def proc_reset_footprint_interval(self, pid):
        self.highest = self.footprint
        return self.result


def test_footprint_and_its_reset():
    counter = MacFootprint(LibProc())
    assert (counter.current_bytes(), counter.peak_bytes()) == (1000, 7000)
    counter.reset()
    assert counter.peak_bytes() == 1000


def test_a_refusal_of_macos_is_an_error():
    counter = MacFootprint(LibProc(result=-1))
    with pytest.raises(OSError, match="proc_pid_rusage"):
        counter.current_bytes()
    with pytest.raises(OSError, match="proc_reset_footprint_interval"):
        counter.reset()


def test_a_counter_that_sees_nothing_does_not_work():
    assert not works(MacFootprint(LibProc()))  # its numbers do not move with this process
    assert not works(MacFootprint(object()))  # a library without the functions
    assert not works(Sampled(lambda: 1, "a constant"))


def test_a_kernel_without_reset_does_not_work(tmp_path):
    (tmp_path / "status").write_text("VmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n")
    counter = LinuxResidentSet(tmp_path)
    assert (counter.current_bytes(), counter.peak_bytes()) == (1 << 20, 2 << 20)
    assert not works(counter)
    (tmp_path / "status").write_text("Name:\tpython\n")
    with pytest.raises(OSError, match="VmRSS"):
        counter.current_bytes()


def test_sampling_takes_over_where_the_kernel_has_no_peak(monkeypatch):
    monkeypatch.setattr(counters, "works", lambda counter: False)
    counter = process_counter()
    assert "sampled every 5 ms" in counter.name
    assert counter.current_bytes() > 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="the resident set of Linux")
def test_linux_counts_like_psutil():
    import psutil

    ours, theirs = LinuxResidentSet().current_bytes(), psutil.Process().memory_info().rss
    assert abs(ours - theirs) < 16 << 20  # read one after the other, while other threads may live
