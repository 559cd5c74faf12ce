"""What one process of `gigaslide predict` does: a slide, with the network that it loads once."""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gigaslide import files
from gigaslide.network.model_file import read_about
from gigaslide.slides.reader import close_slide, open_slide

if TYPE_CHECKING:
    from gigaslide.prediction.request import Request
    from gigaslide.prediction.slide import Network, Progress


@dataclass(frozen=True)
class Job:
    """A slide, how it is predicted, and where its outputs go; `made_from` is kept with them."""

    slide: Path
    mpp_um_per_px: float | None
    model: Path
    model_name: str
    request: "Request"
    folder: Path
    threads: int
    budget_bytes: float
    made_from: dict[str, Any]
    attempt: int


@cache
def _network(path: Path, name: str, threads: int) -> "Network":
    from gigaslide import quiet

    quiet.import_tensorflow()
    from gigaslide.network import model_file
    from gigaslide.prediction.slide import Network
    from gigaslide.streaming import devices

    devices.set_threads(threads)
    return Network(model_file.load(path), read_about(path), name, files.sha256(path))


def predict(job: Job, progress: "Progress") -> dict[str, Any]:
    """Predict a slide, in a process of `workers.run_all`; return its summary, which then is in its folder too."""
    started = time.perf_counter()
    try:
        # Before the network: a file that is no slide is said at once.
        reader = open_slide(job.slide, job.mpp_um_per_px)
        network = _network(job.model, job.model_name, job.threads)
        from gigaslide.prediction import outputs, slide

        summary = slide.predict_slide(
            reader,
            network,
            job.request,
            job.folder,
            job.threads,
            job.budget_bytes,
            progress,
        )
    finally:
        close_slide(job.slide)
    sizes = {
        path.name: path.stat().st_size
        for path in sorted(job.folder.iterdir())
        if path.is_file() and path.name != outputs.SUMMARY
    }
    summary |= {
        "attempts": job.attempt,
        "outputs_bytes": sizes,
        "time_all_s": round(time.perf_counter() - started, 2),
        "made_from": job.made_from,
    }
    outputs.write_summary(job.folder, summary)
    return summary
