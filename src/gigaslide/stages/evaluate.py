"""Stage `evaluate`: the network and the classical method on the test split, pixel for pixel.

A prediction is kept as uint8 labels in a scratch file while its slide is measured, so memory holds a few
windows and not a slide.
"""

import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gigaslide.classes import INVALID, TISSUE
from gigaslide.config import Evaluate, Settings
from gigaslide.console import progress_bar
from gigaslide.errors import GigaslideError, GigaslideWarning
from gigaslide.evaluation.overview import area_average
from gigaslide.evaluation.slide import LabelledSlide, measure
from gigaslide.evaluation.summary import (
    ARTEFACT_COLUMNS,
    CLASSICAL,
    NETWORK,
    SLIDE_COLUMNS,
    SlideResult,
    artefact_rows,
    csv_text,
    metrics_of,
    slide_rows,
)
from gigaslide.files import remove, write_text
from gigaslide.geometry import Window, split
from gigaslide.masks.mask_tiff import write_mask
from gigaslide.slides.auto import OVERVIEW_DOWN_SCALE, OVERVIEW_UM_PER_PX, auto_mask
from gigaslide.slides.store import open_split
from gigaslide.stages.paths import EVALUATE as FOLDER
from gigaslide.stages.stored import place
from gigaslide.streaming.engine import Engine

_MOST_AUTO_PX = 1 << 26  # of the classical method's overview, which it holds a few times over as float32
_BAND_ROWS = 512
_TOLERANCE_PX_PER_UM_WITHOUT_MPP = 2.0  # 0.5 um per px, the usual level 0


class MetricLog(Protocol):
    """What of a tracked run this stage needs."""

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Log numbers."""


@contextmanager
def _scratch(path: Path, shape: tuple[int, int]) -> Iterator[NDArray[np.uint8]]:
    """Yield an array (y, x) that lies in a file, which is gone afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield np.memmap(path, np.uint8, "w+", shape=shape)
    finally:
        remove(path)


def _predict(engine: Engine, slide: LabelledSlide, threshold: float, labels: NDArray[np.uint8]) -> None:
    pixels = 0
    for window, probability in engine.predict(slide):
        if not np.isfinite(probability).all():
            raise GigaslideError(
                f"the network should predict probabilities; on {slide.name}, rows {window.y.start} to "
                f"{window.y.stop}, some are not numbers: train again with a lower train.learning_rate"
            )
        valid = slide.read_mask(window) <= TISSUE
        labels[window.slices] = np.where(valid, probability >= threshold, INVALID)
        pixels += probability.size
    if pixels != labels.size:
        raise GigaslideError(f"the engine predicted {pixels} of the {labels.size} pixels of {slide.name}")


class _Classical:
    """The classical method's mask of a slide, made at low resolution, read at full resolution."""

    def __init__(self, slide: LabelledSlide) -> None:
        mpp = slide.mpp_um_per_px
        down_scale = round(OVERVIEW_UM_PER_PX / mpp) if mpp else OVERVIEW_DOWN_SCALE
        smallest = math.ceil(math.sqrt(math.prod(slide.shape) / _MOST_AUTO_PX))
        self._factor = max(1, down_scale, smallest)
        overview = area_average(slide.read_image, slide.shape, self._factor, np.uint8)
        self._mask = auto_mask(overview, mpp * self._factor if mpp else None)

    def read(self, window: Window) -> NDArray[np.bool_]:
        rows = np.arange(window.y.start, window.y.stop) // self._factor
        columns = np.arange(window.x.start, window.x.stop) // self._factor
        mask: NDArray[np.bool_] = self._mask[np.ix_(rows, columns)]
        return mask


def _tolerance_px(slide: LabelledSlide, tolerance_um: float) -> float:
    if slide.mpp_um_per_px:
        return tolerance_um / slide.mpp_um_per_px
    tolerance_px = tolerance_um * _TOLERANCE_PX_PER_UM_WITHOUT_MPP
    warnings.warn(
        f"{slide.name} has no mpp: its boundary tolerance is {tolerance_px:g} px, {tolerance_um:g} um "
        "at 0.5 um per px; give its mpp in the cohort table",
        GigaslideWarning,
        stacklevel=2,
    )
    return tolerance_px


def _evaluate(slide: LabelledSlide, engine: Engine, settings: Evaluate) -> SlideResult:
    tolerance_px = _tolerance_px(slide, settings.boundary_tolerance_um)
    with _scratch(FOLDER / f".{slide.name}.labels", slide.shape) as labels:
        _predict(engine, slide, settings.threshold, labels)
        outcomes = measure(
            slide,
            {NETWORK: lambda window: labels[window.slices] == TISSUE, CLASSICAL: _Classical(slide).read},
            tolerance_px,
        )
        path = FOLDER / "masks" / f"{slide.name}.tif"
        mpp = None if slide.mpp_um_per_px is None else (slide.mpp_um_per_px, slide.mpp_um_per_px)
        write_mask(path, (labels[rows.slice] for rows in split(len(labels), _BAND_ROWS)), slide.shape, mpp)
    return SlideResult(slide.name, slide.shape, slide.mpp_um_per_px, tolerance_px, outcomes)


def _logged(metrics: dict[str, object]) -> dict[str, float]:
    """Return the metrics under the names they have in MLflow, `test_dice_mean` or `test_dice/slide`."""
    logged: dict[str, float] = {}
    for key, value in metrics.items():
        if isinstance(value, dict):
            name = "test_" + key.replace("slides", "dice")
            for slide, dice in value.items():
                # MLflow takes letters, digits and _ - . space : / in a name.
                logged[f"{name}/{re.sub('[^a-zA-Z0-9_. :-]', '_', slide)}"] = dice
        elif isinstance(value, int | float):
            logged[f"test_{key}"] = float(value)
    return logged


def run(settings: Settings, engine: Engine, run: MetricLog) -> dict[str, Any]:
    """Evaluate the network of `engine` on every slide of the test split; write `results/evaluate`.

    `metrics.json`, `slides.csv`, `artefacts.csv` and `masks/<slide>.tif`; no times and no paths are in them.
    Without a test slide they hold no numbers, and a warning says so.

    Raises:
        GigaslideError: the network predicts what is no number.
    """
    slides = open_split(place(settings), "test")
    if not slides:
        warnings.warn(
            "no slide is in the test split of the cohort table: nothing is evaluated, metrics stay empty",
            GigaslideWarning,
            stacklevel=2,
        )
    remove(FOLDER / "masks")
    with progress_bar() as progress:
        results = [
            _evaluate(slide, engine, settings.evaluate) for slide in progress.track(slides, description="evaluate")
        ]
    metrics = metrics_of(results, settings.evaluate)
    write_text(FOLDER / "slides.csv", csv_text(SLIDE_COLUMNS, slide_rows(results)))
    write_text(FOLDER / "artefacts.csv", csv_text(ARTEFACT_COLUMNS, artefact_rows(results)))
    write_text(FOLDER / "metrics.json", json.dumps(metrics, indent=2, allow_nan=False) + "\n")
    run.log_metrics(_logged(metrics))
    return metrics
