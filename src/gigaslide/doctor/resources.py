"""Memory, disk and open files: what there is, against what is asked for."""

import resource
import shutil
import tempfile
from pathlib import Path

import psutil

from gigaslide.config import Settings
from gigaslide.doctor.finding import Check, Found
from gigaslide.memory.meter import MemoryMeter

_GB = 1e9
# A store takes about 2 GB per gigapixel, the maps that a plan keeps on disk as much again.
_LITTLE_DISK_BYTES = 10e9
# A model, its checkpoint and their copies in MLflow.
_NO_DISK_BYTES = 0.2e9
_FEW_FILES = 1024


def checks(settings: Settings | None) -> list[Check]:
    """Return the checks; with settings, their memory budget is compared with the machine."""
    return [
        Check("memory", lambda: memory(None if settings is None else settings.memory.budget_gb)),
        Check("memory is measured", measuring),
        Check("disk", lambda: disk(_folders())),
        Check("open files", lambda: open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])),
    ]


def _folders() -> dict[str, Path]:
    folders = {"this folder": Path(), "data": Path("data"), "temporary files": Path(tempfile.gettempdir())}
    return {name: folder for name, folder in folders.items() if folder.is_dir()}


def memory(budget_gb: float | None) -> Found:
    """Compare the budget with the memory of the machine, or of the container or job that this process runs in."""
    machine = psutil.virtual_memory()
    total_bytes = min(machine.total, cgroup_limit_bytes() or machine.total)
    limited = " (limit of this container or job)" if total_bytes < machine.total else ""
    free_bytes = min(machine.available, total_bytes)
    text = f"{total_bytes / _GB:.1f} GB{limited}, {free_bytes / _GB:.1f} GB free"
    if budget_gb is None:
        return Found("ok", text)
    text += f"; memory.budget_gb is {budget_gb:g}"
    if budget_gb * _GB > total_bytes:
        return Found(
            "warning",
            f"{text}, more than there is: what fits the budget need not fit this machine",
            f"to train large slides here, set memory.budget_gb in params.yaml to {total_bytes * 0.9 / _GB:.0f} or less",
        )
    if budget_gb * _GB > free_bytes:
        return Found("warning", f"{text}, more than is free", "close other programs, or lower memory.budget_gb")
    return Found("ok", text)


def cgroup_limit_bytes(membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the least limit on this process' control group and those above it (cgroups(7)); None without one."""
    if not membership.exists():
        return None
    limits = []
    for line in membership.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            # "max" is no limit.
            if (folder / name).exists() and (text := (folder / name).read_text().strip()).isdigit():
                limits.append(int(text))
            if folder == top:
                break
    return min(limits, default=None)


def measuring() -> Found:
    """Say how a run's memory is measured."""
    how = MemoryMeter().describe()
    if "sampled" in how:
        return Found("warning", f"{how}: a peak shorter than that can be missed", "take peak memory as a lower bound")
    return Found("ok", how)


def disk(folders: dict[str, Path]) -> Found:
    """Tell the free space of each file system that the folders are on."""
    names: dict[int, list[str]] = {}
    free_bytes: dict[int, int] = {}
    for name, folder in folders.items():
        device = folder.stat().st_dev
        names.setdefault(device, []).append(name)
        free_bytes[device] = shutil.disk_usage(folder).free
    text = "; ".join(f"{free / _GB:.1f} GB free for {', '.join(names[device])}" for device, free in free_bytes.items())
    least = min(free_bytes.values())
    if least < _NO_DISK_BYTES:
        return Found("fails", text, "free some space: models, results and stores cannot be written")
    if least < _LITTLE_DISK_BYTES:
        return Found(
            "warning", text, "a gigapixel takes about 2 GB as a store, and as much while it is trained from disk"
        )
    return Found("ok", text)


def open_files(limit: int) -> Found:
    """Judge how many files this process may have open."""
    if limit == resource.RLIM_INFINITY:
        return Found("ok", "no limit")
    if limit < _FEW_FILES:
        return Found(
            "warning",
            f"at most {limit}: stores are many files, read by many threads at once",
            "type `ulimit -n 4096` in the shell first",
        )
    return Found("ok", f"at most {limit}")
