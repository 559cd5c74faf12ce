"""One slide, from its file to its outputs: `predict_slide`.

    slide --survey--> glass colour, validity --engine--> bands of rows --> outlines (--> heat map)
    outlines, validity --> mask.tif, mask.geojson, overlay.png, summary.json

Nothing but a band of rows, the outlines' corners and the tiles in flight is in memory. summary.json is written last: a
folder that has it is whole.
"""

import math
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gigaslide import __version__
from gigaslide.errors import GigaslideWarning
from gigaslide.masks.heatmap import HEATMAP as HEATMAP_KIND
from gigaslide.masks.outlines import Outlines, OutlineTracer
from gigaslide.masks.pyramid import PyramidWriter
from gigaslide.memory import inference
from gigaslide.memory.meter import MemoryMeter
from gigaslide.network.keras_graph import from_model
from gigaslide.network.model_file import About
from gigaslide.prediction.area import SlideArea
from gigaslide.prediction.bands import bands
from gigaslide.prediction.grid import at_working_mpp
from gigaslide.prediction.outputs import DONE, HEATMAP, NO_TISSUE, write_outputs
from gigaslide.prediction.request import Request
from gigaslide.prediction.survey import Survey, survey
from gigaslide.slides.colours import implausible_colours
from gigaslide.slides.damage import Damage
from gigaslide.slides.reader import SlideReader
from gigaslide.streaming.plan import Plan
from gigaslide.streaming.streamed import Streamed

if TYPE_CHECKING:
    import keras

Progress = Callable[[float], None]

_SURVEY_SHARE, _TRACE_SHARE = 0.35, 0.85  # of the time, for the progress bar
_UM2_PER_MM2 = 1e6


@dataclass(frozen=True)
class Network:
    """A loaded network: the model, what is known of it, its file's name and SHA-256."""

    model: "keras.Model"
    about: About
    name: str
    sha256: str

    def threshold(self, request: Request) -> float:
        """Return the probability from which on a pixel is tissue."""
        return self.about.threshold if request.threshold is None else request.threshold


@dataclass(frozen=True)
class Traced:
    """Where the tissue of a slide is: its outlines on the grid of `reader`, and what was found on the way."""

    reader: SlideReader
    survey: Survey
    outlines: Outlines
    plan: str
    predicted_peak_bytes: int
    warnings: tuple[str, ...]
    survey_s: float
    predict_s: float


def trace_slide(
    slide: SlideReader,
    network: Network,
    request: Request,
    threads: int,
    budget_bytes: float,
    progress: Progress,
    heatmap: Path | None = None,
) -> Traced:
    """Find the tissue of a slide.

    Args:
        slide: opened, at level 0.
        network: what predicts.
        request: how.
        threads: cores to use.
        budget_bytes: of the process.
        progress: told the share that is done, 0 to 1.
        heatmap: where the probabilities go, if they are wanted.

    Raises:
        SlideError: the slide cannot be read.
        DoesNotFit: the budget is too small.
        GigaslideError: the network gives what is no number.
    """
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GigaslideWarning)
        reader = at_working_mpp(slide, request.mpp_um_per_px, network.about)
        doubt = implausible_colours(reader)
        if request.max_corrupt_fraction > 0:
            reader = reader.counting(Damage())
        found = survey(reader, request.max_corrupt_fraction, threads, lambda done: progress(_SURVEY_SHARE * done))
        surveyed = time.perf_counter()
        graph, _ = from_model(network.model)
        chosen = inference.choose(graph, reader.shape, threads, budget_bytes)

        def show(done: float) -> None:
            progress(_SURVEY_SHARE + (1 - _SURVEY_SHARE) * done)

        outlines = _trace(reader, found, network.model, chosen.plan, network.threshold(request), show, heatmap)
        outlines = _cleaned(outlines, reader, request)
    said = [*reader.warnings, *([doubt] if doubt else [])]
    said += [str(item.message) for item in caught if issubclass(item.category, GigaslideWarning)]
    if found.damage.tiles:
        said.append(f"left out as invalid: {found.damage.in_words(math.prod(reader.shape))}")
    return Traced(
        reader,
        found,
        outlines,
        chosen.plan.name,
        chosen.peak_bytes,
        tuple(said),
        surveyed - started,
        time.perf_counter() - surveyed,
    )


def predict_slide(
    slide: SlideReader,
    network: Network,
    request: Request,
    folder: Path,
    threads: int,
    budget_bytes: float,
    progress: Progress,
) -> dict[str, Any]:
    """Find the tissue of a slide and write its outputs into `folder`, each when it is whole; return the summary.

    Arguments and errors are those of `trace_slide`.
    """
    with MemoryMeter().interval() as memory:
        heatmap = folder / HEATMAP if request.heatmap else None
        traced = trace_slide(
            slide, network, request, threads, budget_bytes, lambda done: progress(_TRACE_SHARE * done), heatmap
        )
        started = time.perf_counter()
        write_outputs(traced.reader, traced.survey.validity, traced.outlines, request, folder)
        write_s = time.perf_counter() - started
        peak_bytes = memory.peak_bytes
    progress(1.0)
    return {
        **_describe(traced),
        "model": {"name": network.name, "sha256": network.sha256, **vars(network.about)},
        "settings": {**vars(request), "threshold": network.threshold(request)},
        "plan": traced.plan,
        "warnings": list(traced.warnings),
        "predicted_peak_gb": round(traced.predicted_peak_bytes / 1e9, 3),
        "peak_memory_gb": round(peak_bytes / 1e9, 3),
        "time_s": {
            "survey": round(traced.survey_s, 2),
            "predict": round(traced.predict_s, 2),
            "write": round(write_s, 2),
        },
        "gigaslide_version": __version__,
    }


def _trace(
    reader: SlideReader,
    found: Survey,
    model: "keras.Model",
    plan: Plan,
    threshold: float,
    progress: Progress,
    heatmap: Path | None,
) -> Outlines:
    """Predict band by band, and return the outlines of the tissue."""
    # The weights of the loss play no part.
    engine = Streamed(model, plan, 1.0, 1.0)
    tracer = OutlineTracer(reader.shape[1])
    with ExitStack() as closing:
        heat = None
        if heatmap is not None:
            heat = closing.enter_context(PyramidWriter(heatmap, reader.shape, reader.mpp_um_per_px, HEATMAP_KIND))
        area = SlideArea(reader, found.glass_rgb)
        for band in bands(engine, area, threshold, heatmap is not None, found.validity.any_in):
            valid = found.validity.rows(band.rows)
            if valid is not None:
                np.logical_and(band.tissue, valid, out=band.tissue)
            tracer.add_rows(band.tissue)
            if heat is not None and band.probability is not None:
                if valid is not None:
                    np.multiply(band.probability, valid, out=band.probability)
                heat.write_rows(band.probability)
            progress(band.rows.stop / reader.shape[0])
    return tracer.finish()


def _um2_per_px(reader: SlideReader) -> float | None:
    return None if reader.mpp_um_per_px is None else math.prod(reader.mpp_um_per_px)


def _cleaned(outlines: Outlines, reader: SlideReader, request: Request) -> Outlines:
    if not (request.min_piece_um2 or request.min_hole_um2):
        return outlines
    area = _um2_per_px(reader)
    if area is None:
        warnings.warn(
            f"{reader.path} does not say how large its pixels are: --min-piece-um2 and --min-hole-um2 are not applied",
            GigaslideWarning,
            stacklevel=2,
        )
        return outlines
    return outlines.without_small(math.ceil(request.min_piece_um2 / area), math.ceil(request.min_hole_um2 / area))


def _describe(traced: Traced) -> dict[str, Any]:
    """Return what there is to say of the slide and its tissue."""
    reader, found, outlines = traced.reader, traced.survey, traced.outlines
    tissue_px = outlines.tissue_px
    all_px, invalid_px = math.prod(reader.shape), found.validity.invalid_px
    area = _um2_per_px(reader)
    pieces = outlines.piece_areas_px
    hole_px = outlines.hole_px

    def mm2(pixels: int) -> float | None:
        return None if area is None else pixels * area / _UM2_PER_MM2

    return {
        "status": DONE if tissue_px else NO_TISSUE,
        "slide": str(reader.path),
        "shape_px": list(reader.shape),
        "level0_shape_px": list(reader.level0_shape),
        "level0_px_per_px": list(reader.level0_px_per_px),
        "bounds_offset_yx_px": list(reader.bounds_origin_yx_px),
        "mpp_um_per_px": None if reader.mpp_um_per_px is None else list(reader.mpp_um_per_px),
        "mpp_source": reader.resolution.source,
        "reader": reader.library,
        "tissue_mm2": mm2(tissue_px),
        "tissue_px": tissue_px,
        "tissue_share": tissue_px / (all_px - invalid_px) if all_px > invalid_px else 0.0,
        "pieces": len(pieces),
        "largest_piece_mm2": mm2(int(pieces.max(initial=0))),
        "holes": len(outlines.parents) - len(pieces),
        "hole_share": hole_px / (hole_px + tissue_px) if tissue_px else 0.0,
        "invalid_share": invalid_px / all_px,
        "corrupt_share": found.damage.lost_px / all_px,
        "corrupt_tiles": len(found.damage.tiles),
        "glass_rgb": list(found.glass_rgb),
    }
