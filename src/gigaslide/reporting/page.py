"""The page: numbers, tables, and every picture inside the one file, which opens from a disk without a network."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gigaslide.config import Settings
from gigaslide.evaluation.summary import CLASSICAL, NETWORK
from gigaslide.reporting.templates import environment

_DEMO_FOLDER = "data/demo"
_TEMPLATE = "template.html.jinja"
_NOTHING = "-"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Results:
    """What the stages before wrote, numbers as numbers."""

    run_name: str
    summary: Mapping[str, Any]  # results/train/summary.json
    steps: Sequence[Row]  # results/train/steps.csv
    epochs: Sequence[Row]  # results/train/epochs.csv
    metrics: Mapping[str, Any]  # results/evaluate/metrics.json
    slides: Sequence[Row]  # results/evaluate/slides.csv
    artefacts: Sequence[Row]  # results/evaluate/artefacts.csv


@dataclass(frozen=True)
class Picture:
    """A PNG, the name of its file beside the page, and what it shows."""

    file: str
    png: bytes
    alt: str

    @property
    def source(self) -> str:
        """The PNG as a data address."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")


@dataclass(frozen=True)
class SlidePictures:
    """The pictures of one slide; `at_px` is the first row and column of the detail."""

    slide: str
    outlines: Picture
    disagreement: Picture
    detail: Picture
    at_px: tuple[int, int]


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with so many digits after the point, or a dash for None."""
    return _NOTHING if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def duration(seconds: float | None) -> str:
    """Return a time as a person says it: 0.42 s, 81 s, 12 min 5 s, 111 h 24 min."""
    if seconds is None or not math.isfinite(seconds):
        return _NOTHING
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def _mean_and_sd(metrics: Mapping[str, Any], prefix: str = "") -> str:
    mean, sd = metrics[f"{prefix}dice_mean"], metrics[f"{prefix}dice_sd"]
    return number(mean) if sd is None else f"{number(mean)} ± {number(sd)}"


def _beside_paper(results: Results, settings: Settings) -> list[tuple[str, str, str]]:
    """Return (what, this run, the paper): arXiv 2304.12149; what it does not say itself is marked as derived."""
    summary, metrics = results.summary, results.metrics
    network = settings.network
    megapixels, step_s = summary["megapixels_per_step"], summary["step_time_s"]
    machine = summary["machine"]
    slides = len({row["slide"] for row in results.steps})
    return [
        (
            "Task",
            f"tissue against glass; {slides} training slides, {metrics['slide_count']} test slides",
            "tissue against background on areas of H&E slides",
        ),
        (
            "Network",
            f"U-Net, kernel {network.kernel_size}, stride {network.stride}, depth {network.depth}",
            "modified U-Net, large kernels, high stride",
        ),
        ("Parameters", f"{summary['parameters']:,}", "4,492"),
        ("Image per step", f"{number(megapixels, 2)} megapixels", "1,024 megapixels (16,000 x 64,000 px)"),
        (
            "Machine",
            f"{machine.get('cpu', _NOTHING)}, {machine.get('memory_gb', _NOTHING)} GB",
            "Mac Studio, M1 Ultra, 128 GB",
        ),
        ("Peak memory", f"{number(summary['peak_memory_gb'], 2)} GB", "over 100 GB"),
        ("Step time", f"{duration(step_s)} (median)", "81 s (mean)"),
        (
            "Step time per megapixel",
            f"{number(1000 * step_s / megapixels, 1)} ms",
            "79 ms (derived: 81 s / 1,024 megapixels)",
        ),
        (
            "Training",
            f"{summary['steps']:,} steps, {duration(summary['train_time_s'])}",
            "4,940 steps, 111 h 24 min",
        ),
        ("Dice", f"{_mean_and_sd(metrics)} (test, hard, mean ± sd over slides)", "0.989 ± 0.005"),
    ]


def _slide_table(rows: Sequence[Row]) -> list[dict[str, Row]]:
    by_slide: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_slide.setdefault(row["slide"], {})[row["method"]] = row
    return sorted(by_slide.values(), key=lambda pair: pair[NETWORK]["dice"])


def _artefact_table(rows: Sequence[Row]) -> list[dict[str, Row]]:
    by_artefact: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_artefact.setdefault(row["artefact"], {})[row["method"]] = row
    return sorted(by_artefact.values(), key=lambda pair: -pair[NETWORK]["error_share"])


def slide_order(rows: Sequence[Row]) -> list[str]:
    """Return the slides' names, lowest Dice of the network first."""
    return [pair[NETWORK]["slide"] for pair in _slide_table(rows)]


def artefact_order(rows: Sequence[Row]) -> list[str]:
    """Return the artefacts' names, most wrong pixels of the network first."""
    return [pair[NETWORK]["artefact"] for pair in _artefact_table(rows)]


def render(
    settings: Settings,
    results: Results,
    training: Picture,
    slides_chart: Picture | None,
    artefacts_chart: Picture | None,
    slide_pictures: Sequence[SlidePictures],
) -> str:
    """Return the page as HTML; a chart that has nothing to show is None."""
    templates = environment()
    templates.filters |= {"number": number, "duration": duration}
    slides = _slide_table(results.slides)
    return templates.get_template(_TEMPLATE).render(
        run_name=results.run_name,
        summary=results.summary,
        metrics=results.metrics,
        mean_and_sd=_mean_and_sd(results.metrics),
        auto_mean_and_sd=_mean_and_sd(results.metrics, f"{CLASSICAL}_"),
        comparison=_beside_paper(results, settings),
        network=NETWORK,
        classical=CLASSICAL,
        slides=slides,
        rows_by_slide={pair[NETWORK]["slide"]: pair for pair in slides},
        artefacts=_artefact_table(results.artefacts),
        training=training,
        slides_chart=slides_chart,
        artefacts_chart=artefacts_chart,
        slide_pictures=slide_pictures,
        demo=settings.slides.dir == _DEMO_FOLDER,
        train_slides=len({row["slide"] for row in results.steps}),
        settings=settings.flat(),
        evaluate=settings.evaluate,
        without_mpp=[pair[NETWORK]["slide"] for pair in slides if pair[NETWORK]["mpp_um_per_px"] is None],
    )
