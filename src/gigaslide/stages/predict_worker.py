"""What one process of `gigaslide predict` does: a slide, with the network that it loads once."""

import time
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gigaslide import files
from gigaslide.classes import TISSUE
from gigaslide.network.model_file import read_about
from gigaslide.slides.reader import SlideReader, close_slide, open_slide

if TYPE_CHECKING:
    from gigaslide.exports.request import PatchRequest
    from gigaslide.prediction.request import Request
    from gigaslide.prediction.slide import Network, Progress


@dataclass(frozen=True)
class Handing:
    """The tools that masks are handed on to, and with which patches; None: nothing is asked for."""

    tools: tuple[str, ...] = ()
    patches: "PatchRequest | None" = None


@dataclass(frozen=True)
class Job:
    """A slide, how it is predicted, and where its outputs go; `made_from` is kept with them.

    `done` is the summary of a slide that is predicted already, and only to be handed on.
    """

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
    handing: Handing = field(default_factory=Handing)
    done: dict[str, Any] | None = None


@cache
def _network(path: Path, name: str, threads: int) -> "Network":
    from gigaslide import quiet

    quiet.import_tensorflow()
    from gigaslide.network import model_file
    from gigaslide.prediction.slide import Network
    from gigaslide.streaming import devices

    # One thread has operations of one thread: how many cores the machine has must not decide the order of sums.
    devices.set_threads(threads, 1 if threads == 1 else None)
    return Network(model_file.load(path), read_about(path), name, files.sha256(path))


def predict(job: Job, progress: "Progress") -> dict[str, Any]:
    """Predict a slide and hand it on, in a process of `workers.run_all`; return its summary, as it is in its folder."""
    try:
        # Before the network: a file that is no slide is said at once.
        reader = open_slide(job.slide, job.mpp_um_per_px)
        summary = _predict(job, reader, progress) if job.done is None else dict(job.done)
        if job.handing.tools:
            _hand_on(job, reader, summary)
    finally:
        close_slide(job.slide)
    return summary


def _predict(job: Job, reader: SlideReader, progress: "Progress") -> dict[str, Any]:
    started = time.perf_counter()
    network = _network(job.model, job.model_name, job.threads)
    from gigaslide.exports import tools
    from gigaslide.prediction import outputs, slide

    # Before there is another mask, the old one goes, and what was handed on of it.
    tools.remove(tools.TOOLS, job.slide, job.folder.parent)
    outputs.clear(job.folder)
    summary = slide.predict_slide(
        reader,
        network,
        job.request,
        job.folder,
        job.threads,
        job.budget_bytes,
        progress,
    )
    summary |= {
        "attempts": job.attempt,
        "outputs_bytes": outputs.sizes_bytes(job.folder),
        "time_all_s": round(time.perf_counter() - started, 2),
        "made_from": job.made_from,
    }
    outputs.write_summary(job.folder, summary)
    return summary


def _hand_on(job: Job, slide: SlideReader, summary: dict[str, Any]) -> None:
    """Hand the mask of a predicted slide on to the tools that do not have it yet, and add that to its summary."""
    from gigaslide.exports import tools
    from gigaslide.exports.request import Export, PatchRequest
    from gigaslide.masks.outlines import OutlineTracer
    from gigaslide.prediction import outputs
    from gigaslide.slides.mask_image import MaskImage

    out, request = job.folder.parent, job.handing.patches or PatchRequest()
    states: dict[str, Any] = summary.setdefault("exports", {})
    missing = [tool for tool in job.handing.tools if not tools.is_current(states.get(tool), request, out)]
    if not missing:
        return
    height, width = summary["shape_px"]
    reader = slide.at_shape((height, width))
    tracer = OutlineTracer(width)
    for rows in MaskImage(job.folder / outputs.MASK, reader.shape, reader.shape).rows():
        tracer.add_rows(rows == TISSUE)
    mpp = job.request.mpp_um_per_px or read_about(job.model).mpp_um_per_px
    export = Export(reader, tracer.finish(), "", request, mpp)
    for tool in missing:
        named = replace(export, slide_id=tools.slide_id(tool, job.slide))
        states[tool] = tools.write(tool, named, job.folder / outputs.THUMBNAIL, out)
    outputs.write_summary(job.folder, summary)
