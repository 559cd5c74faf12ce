"""The real thing, by hand: five steps on 256 megapixels without Ray, with 1 and 2 workers, and a kill in each step.

    python -m tests.cluster.four_trainings [SIDE]

trains four times on the middle of the slide of `gigaslide bench steps --make-slide` (data/bench/large.zarr; without it,
on an area that is made up) and compares the weights, bit for bit. It takes some minutes, and no other cluster may run
on this machine. In the last training one worker's process is killed in each step.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from gigaslide.benchmarks.areas import Middle
from gigaslide.benchmarks.large_slide import STORE
from gigaslide.console import console
from gigaslide.geometry import grid
from gigaslide.slides.store import StoreWriter, open_store
from gigaslide.stages.paths import CHECKPOINTS
from tests.cluster.test_command import weights
from tests.stages.project import PARAMS, command, make_project, write_store
from tests.streaming.areas import easy_area

STEPS = 5
SHARD_PX = 2048
TIMEOUT_S = 1800


def project(folder: Path, side: int) -> Path:
    """One slide to train on, a small one to validate on; the network of params.yaml."""
    folder.mkdir()
    make_project(folder)
    values = yaml.safe_load(PARAMS.read_text())
    # A plan of several tiles at once, so that operations have one thread here, too.
    values["train"].update(epochs=STEPS, patience_epochs=100)
    (folder / "params.yaml").write_text(yaml.safe_dump(values))
    stores = folder / "data/stores"
    if STORE.exists():
        large = Middle(open_store(STORE), (side, side))
        write_large(stores / "large.zarr", large)
    else:
        write_store(stores / "large.zarr", easy_area(1, side, side), "large")
    index = (
        '{"slides": [{"name": "large", "split": "train", "store": "large.zarr"},'
        ' {"name": "validation0", "split": "validation", "store": "validation0.zarr"}]}'
    )
    (stores / "index.json").write_text(index)
    return folder


def write_large(path: Path, area: Middle) -> None:
    writer = StoreWriter(path, area.shape, SHARD_PX, with_regions=False)
    for window in grid(area.shape, (SHARD_PX, SHARD_PX)):
        writer.write(window, image=area.read_image(window), mask=area.read_mask(window))
    writer.finish({**open_store(STORE).attributes, "name": "large", "shape_px": list(area.shape), "region_names": []})


class Killer(threading.Thread):
    """Kills one worker in every step: one second after two are at work in it."""

    def __init__(self, training: "subprocess.Popen[bytes]", folder: Path) -> None:
        super().__init__(daemon=True)
        self._training, self._state = training, folder / CHECKPOINTS / "state.npz"
        self._states: set[int] = set()
        self.killed_in: list[int] = []

    def run(self) -> None:
        while self._training.poll() is None:
            step = self._step()
            busy = [process for process in psutil.process_iter(["name"]) if process.info["name"] == "ray::_compute"]
            if step not in self.killed_in and step < STEPS and len(busy) > 1:
                time.sleep(1.0)
                if self._step() == step:
                    os.kill(busy[0].pid, signal.SIGKILL)
                    self.killed_in.append(step)
            time.sleep(0.1)

    def _step(self) -> int:
        """Return the number of the step that is being computed: an epoch has one, and then there is a checkpoint."""
        with suppress(FileNotFoundError):
            self._states.add(self._state.stat().st_mtime_ns)
        return len(self._states)


def train(folder: Path, workers: int | None, with_kills: bool = False) -> tuple[dict[str, Any], float, list[int]]:
    """Return the weights, the seconds of the training, and the steps in which a worker was killed."""
    arguments = ["train"] if workers is None else ["train", "--cluster", "auto"]
    values = yaml.safe_load((folder / "params.yaml").read_text())
    values["cluster"] = {"workers": workers}
    (folder / "params.yaml").write_text(yaml.safe_dump(values))
    started = time.perf_counter()
    with (folder / "log.txt").open("wb") as log:
        training = subprocess.Popen(command(*arguments), cwd=folder, stdout=log, stderr=log)
        killer = Killer(training, folder)
        if with_kills:
            killer.start()
        code = training.wait(TIMEOUT_S)
    if code:
        raise SystemExit((folder / "log.txt").read_text())
    return weights(folder), time.perf_counter() - started, killer.killed_in


def main() -> None:
    """Train four times, say what came out, and fail if a bit differs."""
    side = int(sys.argv[1]) if len(sys.argv) > 1 else 16000
    expected: dict[str, Any] | None = None
    with tempfile.TemporaryDirectory(prefix="four-") as name:
        cases: list[tuple[str, int | None, bool]] = [
            ("without Ray", None, False),
            ("1 worker", 1, False),
            ("2 workers", 2, False),
            ("2 workers, one killed in every step", 2, True),
        ]
        for number, (words, workers, with_kills) in enumerate(cases):
            found, took_s, killed_in = train(project(Path(name, str(number)), side), workers, with_kills)
            expected = expected or found
            same = found.keys() == expected.keys() and all(np.array_equal(found[k], expected[k]) for k in expected)
            kills = f", killed in steps {killed_in}" if with_kills else ""
            console.print(f"{words}: {took_s:.0f} s, {len(found)} arrays, same bits: {same}{kills}", markup=False)
            if not same or (with_kills and killed_in != list(range(STEPS))):
                raise SystemExit(1)


if __name__ == "__main__":
    main()
