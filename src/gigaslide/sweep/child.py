"""One trial, in a process of its own: `python -m gigaslide.sweep.child` in the trial's folder.

The folder is a small project (params.yaml, links to the prepared stores and to the runs), so that a trial that was
killed goes on from its last epoch when it is started again. The process ends when its parent does, however that ends;
one that is started meanwhile, here or on another machine, waits until it has ended.
"""

import json
import os
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from gigaslide.config import PARAMS_FILE
from gigaslide.errors import GigaslideError
from gigaslide.files import write_text
from gigaslide.stages.paths import CHECKPOINTS, RUN_FILE, TRAIN

if TYPE_CHECKING:
    from gigaslide.training.checkpoint import TrainingState

REQUEST, PROGRESS, ERROR = Path("trial.json"), Path("progress.json"), Path("error.json")
# If the machine runs out of memory, Linux should end the trial and not the sweep.
_OOM_SCORE = Path("/proc/self/oom_score_adj")
_LOCK = Path(".lock")
# A machine that is cut off from its cluster ends what it runs within a minute. After this time the lock is taken for
# that of a machine without power, which its file server forgot to free.
_LOCK_S = 120.0


def main() -> int:
    """Train as `trial.json` says; return the exit code, and write the error, if there is one, to `error.json`."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if _OOM_SCORE.exists():
        _OOM_SCORE.write_text("800", encoding="utf-8")
    request = json.loads(REQUEST.read_text(encoding="utf-8"))
    if hasattr(os, "sched_setaffinity") and request["cores"]:
        os.sched_setaffinity(0, request["cores"])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    lock = FileLock(_LOCK)
    with suppress(Timeout):
        lock.acquire(_LOCK_S)
    if is_finished(Path(), PARAMS_FILE.read_text(encoding="utf-8")):
        return 0  # by the process that had the lock
    try:
        from gigaslide import config, quiet

        settings = config.load()
        quiet.import_tensorflow()
        from gigaslide.stages import train

        train.run(settings, train.Trial(request["parent_run_id"], request["run_name"], _report))
    except GigaslideError as error:
        _write_error(str(error))
        return error.exit_code
    except Exception as error:
        traceback.print_exc()
        _write_error(f"{type(error).__name__}: {error}")
        return 1
    return 0


def is_finished(folder: Path, params: str) -> bool:
    """Whether a training with these settings ended well here, and its parent died before it could say so."""
    file, summary = folder / PARAMS_FILE, folder / TRAIN / "summary.json"
    has_ended = (folder / RUN_FILE).exists() and summary.exists() and not (folder / CHECKPOINTS).exists()
    return has_ended and file.exists() and file.read_text(encoding="utf-8") == params


def _report(state: "TrainingState") -> None:
    from gigaslide.stages.train_results import median_step_s

    curve = [row["validation_dice"] for row in state.epoch_rows]
    write_text(PROGRESS, json.dumps({"curve": curve, "step_time_s": median_step_s(state)}))


def _write_error(message: str) -> None:
    write_text(ERROR, json.dumps({"message": message}))


def _end_with_parent() -> None:
    # Its end of the pipe is closed when the parent ends. Not sys.stdin: Python could not close that when it exits.
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
