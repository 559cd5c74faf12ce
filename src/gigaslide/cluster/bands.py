"""Which machine computes which tiles of a sweep, and how many a worker gets at a time. Plain integers.

Every machine has a band of neighbouring tile rows, the same part of the area in every sweep: what it reads, it has made
itself, but for the pixels beside a border between two bands.
"""

from typing import Any

from gigaslide.geometry import Interval

# A task costs the driver about a millisecond, and within one the next tile is read while one is computed. As many tasks
# as this for each worker of a sweep, so that all end at about the same time.
MOST_TILES = 8
TASKS_PER_WORKER = 4


def machine_of(row: Any, rows: int, machines: int) -> Any:
    """Return the machine, counted from 0, that computes tile row `row` (or an array of them) of `rows`."""
    return row * machines // rows


def band(machine: int, rows: int, machines: int) -> Interval:
    """Return the tile rows that a machine computes; none where there are fewer rows than machines."""
    return Interval(-(-machine * rows // machines), -(-(machine + 1) * rows // machines))


def tiles_per_task(tiles: int, workers: int) -> int:
    """Return how many of a sweep's `tiles` are handed out together."""
    return max(1, min(MOST_TILES, tiles // (workers * TASKS_PER_WORKER)))


def most_tiles(tiles: int, per_task: int, workers: int) -> int:
    """Return how many of a machine's `tiles` its busiest worker computes, if each takes a task whenever it is free."""
    tasks = -(-tiles // per_task)
    full, more = divmod(tasks, workers)
    last = tiles - (tasks - 1) * per_task  # of the task that is handed out last, which may be smaller
    if tasks == 0:
        return 0
    if more == 0:
        return full * per_task if workers > 1 else tiles
    return full * per_task + (last if more == 1 else per_task)


def share(total: int, parts: int) -> list[int]:
    """Divide `total` into `parts` whole numbers that differ by one at most, the larger ones first."""
    return [total // parts + (part < total % parts) for part in range(parts)]
