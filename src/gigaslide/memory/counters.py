"""Where the operating system, or TensorFlow, counts bytes: the present number and the highest since a reset.

Linux keeps the highest resident set of a process in `VmHWM` of `/proc/self/status`; writing 5 to
`/proc/self/clear_refs` sets it back to the present one (proc(5)). The kernel raises it before it gives pages
back, so no peak is too short to be seen. Pages of mapped files count as resident.

macOS keeps the physical footprint: what the process is charged for, compressed pages and the unified memory
held by the GPU included, which the resident set is not. `proc_pid_rusage` tells it, and its highest value
since `proc_reset_footprint_interval` (xnu, bsd/sys/resource.h and libsyscall/wrappers/libproc).

Where neither works (a kernel without `clear_refs`, say in a sandbox), a thread looks every 5 ms, and can miss
what is shorter than that. Whether a counter works is tried, not assumed: see `works`.
"""

import ctypes
import mmap
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import psutil

SAMPLING_PERIOD_S = 0.005
_TRIAL_BYTES = 16 << 20
_RUSAGE_INFO_V4 = 4
# The order of bsd/sys/resource.h.
_RUSAGE_NAMES = """
    user_time system_time pkg_idle_wkups interrupt_wkups pageins wired_size resident_size
    phys_footprint proc_start_abstime proc_exit_abstime child_user_time child_system_time
    child_pkg_idle_wkups child_interrupt_wkups child_pageins child_elapsed_abstime diskio_bytesread
    diskio_byteswritten cpu_time_qos_default cpu_time_qos_maintenance cpu_time_qos_background
    cpu_time_qos_utility cpu_time_qos_legacy cpu_time_qos_user_initiated
    cpu_time_qos_user_interactive billed_system_time serviced_system_time logical_writes
    lifetime_max_phys_footprint instructions cycles billed_energy serviced_energy
    interval_max_phys_footprint runnable_time
""".split()  # noqa: SIM905  (35 lines of one word each would hide the order)


class Counter(Protocol):
    """Bytes in use now, and the highest number since the last reset."""

    name: str

    def current_bytes(self) -> int:
        """Return the bytes in use now."""

    def peak_bytes(self) -> int:
        """Return the most bytes in use at once since the last reset."""

    def reset(self) -> None:
        """Forget the peak: from here on it is the present number, or a higher one to come."""

    def start(self) -> None:
        """Begin to count; called before the first of any overlapping intervals."""

    def stop(self) -> None:
        """End counting; called after the last of them."""


class LinuxResidentSet:
    """Resident set of this process, from `/proc/self`."""

    name = "resident set (VmHWM of /proc/self/status, reset through /proc/self/clear_refs)"

    def __init__(self, folder: Path = Path("/proc/self")) -> None:
        self._status = folder / "status"
        self._clear_refs = folder / "clear_refs"

    def current_bytes(self) -> int:
        """Return VmRSS."""
        return self._read(b"VmRSS")

    def peak_bytes(self) -> int:
        """Return VmHWM."""
        return self._read(b"VmHWM")

    def reset(self) -> None:
        """Set VmHWM back to VmRSS."""
        self._clear_refs.write_text("5")

    def start(self) -> None:
        """Nothing to do: the kernel counts all the time."""

    def stop(self) -> None:
        """Nothing to do."""

    def _read(self, key: bytes) -> int:
        found = re.search(rb"^%s:\s+(\d+) kB" % key, self._status.read_bytes(), re.MULTILINE)
        if found is None:
            raise OSError(f"{self._status} has no {key.decode()}")
        return int(found[1]) * 1024


class RusageInfoV4(ctypes.Structure):
    """`struct rusage_info_v4` of macOS: a UUID of 16 bytes, then 35 unsigned 64-bit numbers."""

    _fields_ = [
        ("ri_uuid", ctypes.c_uint8 * 16),
        *((f"ri_{name}", ctypes.c_uint64) for name in _RUSAGE_NAMES),
    ]


class MacFootprint:
    """Physical footprint of this process, from macOS' libproc (in libSystem: every process has it)."""

    name = "physical footprint (proc_pid_rusage, reset by proc_reset_footprint_interval)"

    def __init__(self, library: Any = None) -> None:
        self._library = ctypes.CDLL(None, use_errno=True) if library is None else library

    def current_bytes(self) -> int:
        """Return ri_phys_footprint."""
        return int(self._read().ri_phys_footprint)

    def peak_bytes(self) -> int:
        """Return ri_interval_max_phys_footprint."""
        return int(self._read().ri_interval_max_phys_footprint)

    def reset(self) -> None:
        """Begin a new footprint interval."""
        if self._library.proc_reset_footprint_interval(ctypes.c_int(os.getpid())) != 0:
            raise OSError(ctypes.get_errno(), "proc_reset_footprint_interval failed")

    def start(self) -> None:
        """Nothing to do: the kernel counts all the time."""

    def stop(self) -> None:
        """Nothing to do."""

    def _read(self) -> RusageInfoV4:
        info = RusageInfoV4()
        result = self._library.proc_pid_rusage(
            ctypes.c_int(os.getpid()), ctypes.c_int(_RUSAGE_INFO_V4), ctypes.byref(info)
        )
        if result != 0:
            raise OSError(ctypes.get_errno(), "proc_pid_rusage failed")
        return info


class Sampled:
    """Any number of bytes, read every `period_s` seconds by a thread that lives from `start` to `stop`."""

    def __init__(self, read: Callable[[], int], what: str, period_s: float = SAMPLING_PERIOD_S) -> None:
        self.name = f"{what}, sampled every {period_s * 1000:g} ms"
        self._read = read
        self._period_s = period_s
        self._lock = threading.Lock()
        self._peak_bytes = 0
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def current_bytes(self) -> int:
        """Read the number now."""
        return self._read()

    def peak_bytes(self) -> int:
        """Return the highest number read since the last reset, this moment included."""
        with self._lock:
            self._peak_bytes = max(self._peak_bytes, self._read())
            return self._peak_bytes

    def reset(self) -> None:
        """Forget the numbers read so far."""
        with self._lock:
            self._peak_bytes = 0

    def start(self) -> None:
        """Start the thread."""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, args=(self._done,), name="memory-meter", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _sample(self, done: threading.Event) -> None:
        while not done.wait(self._period_s):
            self.peak_bytes()


class TensorFlowDevice:
    """What TensorFlow's allocator has handed out on one device; `tensorflow` is the imported module."""

    def __init__(self, tensorflow: Any, device: str) -> None:
        self.name = f"TensorFlow's allocator on {device}"
        self._experimental = tensorflow.config.experimental
        self._device = device

    def current_bytes(self) -> int:
        """Return the bytes in use on the device."""
        return int(self._experimental.get_memory_info(self._device)["current"])

    def peak_bytes(self) -> int:
        """Return the most bytes in use on the device since the last reset."""
        return int(self._experimental.get_memory_info(self._device)["peak"])

    def reset(self) -> None:
        """Set the peak back to the present number."""
        self._experimental.reset_memory_stats(self._device)

    def start(self) -> None:
        """Nothing to do: the allocator counts all the time."""

    def stop(self) -> None:
        """Nothing to do."""


def works(counter: Counter) -> bool:
    """Tell whether `counter` sees memory that came and went, and forgets it when it is reset.

    Takes 16 MiB and gives them back, then resets. Other threads may take or give memory meanwhile, so half of
    it decides and there are three tries.
    """
    try:
        for _ in range(3):
            counter.reset()
            before = counter.peak_bytes()
            with mmap.mmap(-1, _TRIAL_BYTES) as block:
                block.write(b"\1" * _TRIAL_BYTES)
            seen = counter.peak_bytes()
            counter.reset()
            after = counter.peak_bytes()
            if seen - before > _TRIAL_BYTES // 2 and seen - after > _TRIAL_BYTES // 2:
                return True
    except (OSError, AttributeError):  # no such file, or no such function in the library
        pass
    return False


def process_counter() -> Counter:
    """Return the best counter of this process' memory that works on this machine."""
    if sys.platform == "linux":
        resident = LinuxResidentSet()
        if works(resident):
            return resident
    if sys.platform == "darwin":
        footprint = MacFootprint()
        if works(footprint):
            return footprint
        try:
            footprint.current_bytes()
        except (OSError, AttributeError):
            pass
        else:
            return Sampled(footprint.current_bytes, "physical footprint")
    process = psutil.Process()
    return Sampled(lambda: int(process.memory_info().rss), "resident set")


def device_counter(device: str = "GPU:0") -> Counter | None:
    """Return the counter of TensorFlow's allocator on `device`, or None where there is none to read.

    None when TensorFlow is not imported (this function never imports it), when there is no such device, and
    when the device does not report: the CPU does not, and plugins such as Metal need not.
    """
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return None
    counter = TensorFlowDevice(tensorflow, device)
    try:
        counter.reset()
        counter.peak_bytes()
    except (ValueError, KeyError, RuntimeError, tensorflow.errors.OpError):
        return None
    return counter
