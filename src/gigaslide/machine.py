"""What a run ran on, as plain values for its record: no host name, no user, nothing that names a person."""

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import psutil

_CPU_INFO = Path("/proc/cpuinfo")
# The best first. The default network's step took 2.4 times as long with AVX2 as with the first; virtual machines call
# both kinds of processor by one name.
_VECTORS = {"avx512_vnni": "AVX-512 VNNI", "avx512f": "AVX-512", "avx_vnni": "AVX-VNNI", "avx2": "AVX2", "avx": "AVX"}


def _linux_cpu(cpu_info: str) -> str | None:
    """Return model and vectors of the first CPU in the text of /proc/cpuinfo; arm64 kernels give no model."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpu_info, re.MULTILINE)
    if found is None:
        return None
    flags = re.search(r"^flags\s*:\s*(.+)$", cpu_info, re.MULTILINE)
    known = flags[1].split() if flags else []
    vectors = next((f" ({name})" for flag, name in _VECTORS.items() if flag in known), "")
    return found[1].strip() + vectors


def _mac_cpu() -> str | None:
    try:
        done = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _cpu() -> str:
    model = _mac_cpu() if sys.platform == "darwin" else None
    if _CPU_INFO.exists():
        model = _linux_cpu(_CPU_INFO.read_text(encoding="utf-8", errors="replace"))
    return model or platform.processor() or platform.machine()


def usable_threads() -> int:
    """Return how many hardware threads this process may use: a job scheduler may have given fewer."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _system() -> str:
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]} {platform.machine()}"
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _device_names() -> str | None:
    """Return the accelerators' names, or "CPU" if there are none; None while TensorFlow is not imported."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return None
    devices = [device for device in tensorflow.config.list_physical_devices() if device.device_type != "CPU"]
    names = [
        tensorflow.config.experimental.get_device_details(device).get("device_name", device.device_type)
        for device in devices
    ]
    return ", ".join(names) or "CPU"


def describe_machine() -> dict[str, str | int | float]:
    """Return the machine and the software that decide how fast a run is and whether its numbers repeat.

    Keys: `cpu` (model, vector instructions), `cores` (physical), `threads` (that this process may use), `memory_gb`
    (of 10^9 bytes), `system`, `python`, `tensorflow` (version), and `devices` (accelerators, or "CPU"), which is there
    only when TensorFlow is already imported: asking must not cost its import.
    """
    threads = usable_threads()
    machine: dict[str, str | int | float] = {
        "cpu": _cpu(),
        "cores": psutil.cpu_count(logical=False) or threads,
        "threads": threads,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": _system(),
        "python": platform.python_version(),
        "tensorflow": _version("tensorflow"),
    }
    devices = _device_names()
    if devices is not None:
        machine["devices"] = devices
    return machine
