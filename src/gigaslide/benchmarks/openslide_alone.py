"""What OpenSlide alone needs to decode slides: `python -m gigaslide.benchmarks.openslide_alone TIMES PROCESSES SLIDE`.

All pixels of level 0 are read with `read_region`, in large windows shared out among processes that are started before
the clock is, and thrown away. Prints JSON: for every slide, the seconds of each time. Nothing else of gigaslide is
imported, for its imports would count against OpenSlide.
"""

import json
import multiprocessing
import sys
import time
from multiprocessing.pool import Pool

import openslide

_WINDOW_PX = 2048
_WINDOWS_PER_PROCESS = 4  # at least: a small slide has to be shared out, too


def windows(shape: tuple[int, int], processes: int) -> list[tuple[int, int, int, int]]:
    """Return windows (top, left, height, width) that cover a slide of `shape` (y, x)."""
    side = _WINDOW_PX
    while side > 256 and -(-shape[0] // side) * -(-shape[1] // side) < _WINDOWS_PER_PROCESS * processes:
        side //= 2
    return [
        (top, left, min(side, shape[0] - top), min(side, shape[1] - left))
        for top in range(0, shape[0], side)
        for left in range(0, shape[1], side)
    ]


def _read(task: tuple[str, list[tuple[int, int, int, int]]]) -> int:
    """Read some windows; return their pixels."""
    path, places = task
    read_px = 0
    with openslide.OpenSlide(path) as slide:
        for top, left, height, width in places:
            image = slide.read_region((left, top), 0, (width, height))
            read_px += image.width * image.height
    return read_px


def _timed(pool: Pool, path: str, processes: int) -> float:
    started = time.perf_counter()
    with openslide.OpenSlide(path) as slide:
        width, height = slide.dimensions
    places = windows((height, width), processes)
    read_px = sum(pool.map(_read, [(path, places[number::processes]) for number in range(processes)], chunksize=1))
    if read_px != height * width:
        raise ValueError(f"{path} has {height * width} px; {read_px} were read")
    return time.perf_counter() - started


def main() -> None:
    """Run the command."""
    times, processes, slides = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.map(time.sleep, [0.2] * processes, chunksize=1)  # all have started
        seconds = {path: [_timed(pool, path, processes) for _ in range(times)] for path in slides}
    sys.stdout.write(json.dumps(seconds) + "\n")


if __name__ == "__main__":
    main()
