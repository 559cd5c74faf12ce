"""The real thing, by hand: 40 slides, 3 of them broken, prepared in one go, and killed half way and resumed.

    python -m tests.stages.forty_slides

Runs `gigaslide prepare` in two folders with the same slides (tiled JPEG, 1500 x 2000 px; of the broken ones two are
cut short and one is a text). In the second all its processes are killed with -9 once 18 stores are there, and the
command is given again. Both have to end with exit code 1, the broken three named with their cause, and the same bytes.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import tifffile
import yaml

from gigaslide import files
from gigaslide.console import console
from tests.slides.files import noise
from tests.stages.project import PARAMS, command

SLIDES, SHAPE, KILL_AT = 40, (1500, 2000), 18
CUT_SHORT, TEXT = (7, 23), 31
STORES = Path("data/stores")


def _write(folder: Path) -> None:
    slides = folder / "slides"
    slides.mkdir(parents=True)
    rows = ["slide,annotation,split,mpp"]
    for number in range(SLIDES):
        path = slides / f"s{number:02d}.tif"
        # Blocks of 20 px: what a JPEG holds is no noise.
        pixels = np.kron(noise((SHAPE[0] // 20, SHAPE[1] // 20), number), np.ones((20, 20, 1), np.uint8))
        tifffile.imwrite(
            path, pixels, tile=(256, 256), compression="jpeg", photometric="rgb", resolution=(20000, 20000)
        )
        if number in CUT_SHORT:
            os.truncate(path, path.stat().st_size // 2)
        if number == TEXT:
            path.write_text("no slide")
        mask = np.zeros(SHAPE, np.uint8)
        mask[200:1200, 100 + number : 1500] = 1
        tifffile.imwrite(slides / f"s{number:02d}-mask.tif", mask, tile=(256, 256), compression="zlib")
        rows.append(f"s{number:02d}.tif,s{number:02d}-mask.tif,{('train', 'validation', 'test')[number % 3]},")
    (slides / "cohort.csv").write_text("\n".join(rows) + "\n")
    values = yaml.safe_load(PARAMS.read_text())
    values["slides"] |= {"dir": "slides", "cohort": "cohort.csv"}
    values["prepare"] |= {"window_px": 512}
    (folder / "params.yaml").write_text(yaml.safe_dump(values))


def _start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command("prepare"), cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL)


def _killed_half_way(folder: Path) -> int:
    """Return how many stores there were when all processes were killed."""
    running = _start(folder)
    while len(list((folder / STORES).glob("s*.zarr"))) < KILL_AT:
        if running.poll() is not None:
            raise SystemExit("it ended before it could be killed")
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    return len(list((folder / STORES).glob("s*.zarr")))


def _failed(folder: Path) -> dict[str, str]:
    rows = json.loads((folder / "results/prepare/summary.json").read_text())["slides"]
    return {row["slide"]: row["reason"] for row in rows if row.get("reason")}


def main() -> None:
    """Run it, and say what came out."""
    with tempfile.TemporaryDirectory() as name:
        one, other = Path(name, "one"), Path(name, "other")
        _write(one)
        shutil.copytree(one, other)
        codes = [_start(one).wait()]
        console.print(f"killed when {_killed_half_way(other)} stores were there")
        codes.append(_start(other).wait())
        for slide, reason in _failed(other).items():
            console.print(f"{slide}: {reason}")
        broken = {f"s{number:02d}" for number in (*CUT_SHORT, TEXT)}
        same = files.sha256(one / STORES) == files.sha256(other / STORES)
        stores = len(list((other / STORES).glob("s*.zarr")))
        console.print(f"exit codes {codes}, {stores} stores, {'the same bytes' if same else 'OTHER BYTES'}")
        if not (codes == [1, 1] and same and stores == SLIDES - len(broken) and set(_failed(other)) == broken):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
