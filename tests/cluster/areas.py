"""Areas that end who computes them: every job unpickles its area, so a job can be told from a job."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.streaming.areas import ArrayArea


@dataclass(frozen=True)
class Watched(ArrayArea):
    """Notes in `folder` the process of every job, and ends some of them."""

    folder: str = ""
    kill: tuple[int, ...] = ()  # the jobs, counted as they begin, whose process is killed
    kill_machine_from: int = -1  # ... and from which on that on another machine is killed, with all it has, once
    safe_node: str = ""  # this one never

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        number = self._count()
        if number in self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if 0 <= self.kill_machine_from <= number:
            import ray

            if ray.get_runtime_context().get_node_id() != self.safe_node:
                try:
                    (Path(self.folder) / "machine").touch(exist_ok=False)
                except FileExistsError:
                    return
                os.kill(os.getppid(), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)

    def _count(self) -> int:
        number = len(list(Path(self.folder).glob("job*")))
        while True:
            try:
                with (Path(self.folder) / f"job{number}").open("x") as note:
                    note.write(str(os.getpid()))
                return number
            except FileExistsError:
                number += 1

    def processes(self) -> list[str]:
        """Return the process of every job so far."""
        return [path.read_text() for path in Path(self.folder).glob("job*")]


@dataclass(frozen=True)
class Unreadable(ArrayArea):
    """An area of which no label can be read."""

    def read_mask(self, window: Any) -> Any:
        raise OSError(f"cannot read rows {window.y.start} to {window.y.stop}")
