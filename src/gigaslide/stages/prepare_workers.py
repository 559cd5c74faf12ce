"""How many windows `prepare` copies at once: one per core, or fewer where the memory budget holds fewer."""

from collections.abc import Sequence

from gigaslide.config import Settings
from gigaslide.slides.cohort import CohortRow

# Of a worker process, measured: the libraries, OpenSlide's and our own cache of tiles, a cached mask.
_PROCESS_BYTES = 700e6
# Of a window: RGB (3), valid, mask, regions, OpenSlide's RGBA (4) and its copy, TensorStore's copy and encoded shards.
_WINDOW_BYTES_PER_PX = 24
# Of a window on a coarser grid than a level: a piece of 16 megapixels as RGBA, RGB and float32 (slides/reader.py).
_PIECE_BYTES = 500e6
_AUTO_BYTES = 1.5e9  # of the overview that the classical method works on (slides/labels.py)


def worker_bytes(settings: Settings, rows: Sequence[CohortRow]) -> float:
    """Return the most memory that one worker needs."""
    needed = _PROCESS_BYTES + _WINDOW_BYTES_PER_PX * settings.prepare.window_px**2
    if settings.slides.mpp_um_per_px is not None:
        needed += _PIECE_BYTES
    if settings.labels.without_annotation == "auto" and any(row.annotation is None for row in rows):
        needed += _AUTO_BYTES
    return needed


def choose_workers(settings: Settings, rows: Sequence[CohortRow], cores: int, free_bytes: float) -> int:
    """Return the number of workers: prepare.workers or one per core, as far as memory holds them; at least one."""
    budget_bytes = min(free_bytes, settings.memory.budget_gb * 1e9)
    return max(1, min(settings.prepare.workers or cores, int(budget_bytes // worker_bytes(settings, rows))))
