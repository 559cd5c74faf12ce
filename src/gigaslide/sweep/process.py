"""The process of a trial, seen from its parent: its folder, its start, how far it is, and what it died of."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from gigaslide.config import PARAMS_FILE, Settings, as_yaml
from gigaslide.files import remove, write_text
from gigaslide.memory.watchdog import BudgetExceeded
from gigaslide.stages.paths import CHECKPOINTS, RUN_FILE, STORES, TRAIN
from gigaslide.sweep.child import ERROR, PROGRESS, REQUEST, is_finished
from gigaslide.tracking import FOLDER as RUNS

COMMAND = (sys.executable, "-m", "gigaslide.sweep.child")
LOG = Path("log.txt")
_LINKS = (STORES, RUNS, Path("dvc.lock"))
_STOP_S = 10.0
_VMSTAT = Path("/proc/vmstat")
_CGROUP = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Ending:
    """How a process ended: well, above its budget, by the OOM killer, by another signal, with an error, or by us."""

    kind: Literal["well", "over budget", "out of memory", "signal", "error", "stopped"]
    message: str


class TrialProcess(Protocol):
    """A trial that runs, here or on another machine."""

    def ended(self) -> Ending | None:
        """Return how it ended; None while it runs."""

    def stop(self) -> None:
        """End it, and wait until it has."""

    @property
    def where(self) -> str | None:
        """The name of its machine; empty if it is this one, None while it waits for one."""

    @property
    def seconds(self) -> float:
        """For how long it has run."""

    @property
    def curve(self) -> list[float]:
        """Validation Dice after each epoch so far."""

    @property
    def step_time_s(self) -> float | None:
        """Median time of a step so far."""

    @property
    def summary(self) -> dict[str, Any]:
        """What a training that ended well says of itself."""

    @property
    def run_id(self) -> str | None:
        """The MLflow run; None if it did not come to open one."""


class Child:
    """A trial that runs as a child of this process."""

    where = ""

    def __init__(
        self, folder: Path, settings: Settings, request: dict[str, Any], command: Sequence[str] = COMMAND
    ) -> None:
        """Prepare the folder, and start.

        Args:
            folder: of the trial; what an earlier process of the same trial left there is gone on from.
            settings: what it trains with.
            request: parent_run_id, run_name, and the cores (numbers, or none) that it may use.
            command: what is started there; replaced in tests.
        """
        self.folder = folder
        self._started = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        for path in _LINKS:
            link = folder / path
            link.parent.mkdir(parents=True, exist_ok=True)
            remove(link)
            link.symlink_to(path.resolve())
        params = as_yaml(settings)
        self._process: subprocess.Popen[bytes] | None = None
        if is_finished(folder, params):
            return
        for path in (ERROR, PROGRESS):
            remove(folder / path)
        write_text(folder / PARAMS_FILE, params)
        write_text(folder / REQUEST, json.dumps(request))
        self._oom_kills = oom_kills()
        with (folder / LOG).open("ab") as log:
            # Of its own session: Ctrl-C is for the parent, which then ends its children.
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def ended(self) -> Ending | None:
        """Return how it ended; None while it runs."""
        if self._process is None:
            return Ending("well", "")
        code = self._process.poll()
        if code is None:
            return None
        if code == 0:
            return Ending("well", "")
        message = _read(self.folder / ERROR).get("message")
        if code == BudgetExceeded.exit_code:
            return Ending("over budget", message or "it passed its memory budget")
        if code == -signal.SIGKILL and oom_kills() > self._oom_kills:
            return Ending("out of memory", "the machine ran out of memory, and the kernel's OOM killer ended it")
        if code < 0:
            return Ending("signal", f"signal {-code} ({signal.Signals(-code).name}) ended it")
        return Ending("error", message or f"exit code {code}: {self._last_words()}")

    def stop(self) -> None:
        """End it, and wait until it has."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def seconds(self) -> float:
        """For how long it has run."""
        return time.monotonic() - self._started

    @property
    def curve(self) -> list[float]:
        """Validation Dice after each epoch so far."""
        return list(_read(self.folder / PROGRESS).get("curve", []))

    @property
    def step_time_s(self) -> float | None:
        """Median time of a step so far."""
        return _read(self.folder / PROGRESS).get("step_time_s")

    @property
    def summary(self) -> dict[str, Any]:
        """What a training that ended well says of itself."""
        return _read(self.folder / TRAIN / "summary.json")

    @property
    def run_id(self) -> str | None:
        """The MLflow run; None if it did not come to open one."""
        return run_id_of(self.folder)

    def _last_words(self) -> str:
        lines = (self.folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def run_id_of(folder: Path) -> str | None:
    """Return the MLflow run of the training in a trial's folder; None if it did not come to open one."""
    # The first one is there while the training is not finished; the second may be an earlier one's.
    for note in (CHECKPOINTS / "run.json", RUN_FILE):
        found = _read(folder / note).get("run_id")
        if found:
            return str(found)
    return None


def oom_kills() -> int:
    """Return how many processes the kernel has ended for want of memory, in this machine and container; 0 elsewhere."""
    found = 0
    for file in (_VMSTAT, _memory_events()):
        if file is None or not file.exists():
            continue
        for line in file.read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                found += int(count)
    return found


def _memory_events() -> Path | None:
    """Return the file that counts in the container (cgroup v2) of this process."""
    if not _CGROUP.exists():
        return None
    for line in _CGROUP.read_text(encoding="ascii").splitlines():
        if line.startswith("0::"):
            return Path("/sys/fs/cgroup") / line[3:].lstrip("/") / "memory.events"
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found
