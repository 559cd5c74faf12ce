"""Stage `report`: one page and its PNGs from what the stages before wrote."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gigaslide.config import Settings
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.evaluation.slide import LabelledSlide
from gigaslide.evaluation.summary import CLASSICAL, NETWORK
from gigaslide.files import atomic_path, write_text
from gigaslide.geometry import Window
from gigaslide.reporting import charts, pictures
from gigaslide.reporting.charts import Bar
from gigaslide.reporting.page import Picture, Results, Row, SlidePictures, artefact_order, render, slide_order
from gigaslide.slides.mask_image import MaskImage
from gigaslide.slides.store import open_split
from gigaslide.stages.paths import EVALUATE, RUN_FILE, TRAIN
from gigaslide.stages.paths import REPORT as FOLDER
from gigaslide.stages.stored import place

_MOST_SLIDES = 12  # in pictures: each takes some megabytes of the page
_TEXT_COLUMNS = ("slide", "method", "artefact", "is_best")


class ArtifactLog(Protocol):
    """What of a tracked run this stage needs."""

    def log_artifact(self, path: Path, folder: str = "") -> None:
        """Copy a file, or a folder, into the run."""


def _text(path: Path, stage: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"the report needs {path}, which is not there: run the stage {stage} first") from None


def _value(key: str, text: str) -> Any:
    if key == "is_best":
        return text == "True"
    if key in _TEXT_COLUMNS:
        return text
    if not text:
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _rows(path: Path, stage: str) -> list[dict[str, Any]]:
    reader = csv.DictReader(_text(path, stage).splitlines())
    return [{key: _value(key, text) for key, text in row.items()} for row in reader]


def _results() -> Results:
    return Results(
        run_name=json.loads(_text(RUN_FILE, "train"))["run_name"],
        summary=json.loads(_text(TRAIN / "summary.json", "train")),
        steps=_rows(TRAIN / "steps.csv", "train"),
        epochs=_rows(TRAIN / "epochs.csv", "train"),
        metrics=json.loads(_text(EVALUATE / "metrics.json", "evaluate")),
        slides=_rows(EVALUATE / "slides.csv", "evaluate"),
        artefacts=_rows(EVALUATE / "artefacts.csv", "evaluate"),
    )


def _bars(rows: Sequence[Row], column: str, order: Sequence[str]) -> list[Bar]:
    """Return a bar per slide or artefact of `order`; an artefact without tissue has no Dice."""
    values = {
        (row.get("slide", row.get("artefact")), row["method"]): row[column]
        for row in rows
        if column != "dice" or row["tissue_px"] or "slide" in row
    }
    return [Bar(name, values.get((name, NETWORK)), values.get((name, CLASSICAL))) for name in order]


def _slides_chart(rows: Sequence[Row]) -> Picture | None:
    if not rows:
        return None
    png = charts.slides(_bars(rows, "dice", slide_order(rows)))
    return Picture("slides.png", png, "Dice of each test slide, network and classical method")


def _artefacts_chart(rows: Sequence[Row]) -> Picture | None:
    if not rows:
        return None
    order = artefact_order(rows)
    png = charts.artefacts(_bars(rows, "error_share", order), _bars(rows, "dice", order))
    return Picture("artefacts.png", png, "Wrong pixels and Dice per artefact, both methods")


def _slide_pictures(slide: LabelledSlide, overlay_px: int) -> SlidePictures:
    name, mpp = slide.name, slide.mpp_um_per_px
    mask = MaskImage(EVALUATE / "masks" / f"{name}.tif", slide.shape, slide.shape)
    if mask.down_scale != 1:
        raise GigaslideError(
            f"the mask of {name} should have the size of its store {slide.shape} (y, x), but is {mask.down_scale} "
            "times smaller: run the stage evaluate again"
        )

    def read(window: Window) -> NDArray[np.uint8]:
        return mask.read(window).astype(np.uint8)

    view = pictures.overview(slide, read, overlay_px)
    place = pictures.worst_place(view, slide.shape, overlay_px // 2)
    detail = pictures.detail_png(slide, read, place)
    return SlidePictures(
        name,
        Picture(f"{name}_outlines.png", pictures.outlines_png(view, mpp), f"{name}: outlines of truth and prediction"),
        Picture(
            f"{name}_disagreement.png", pictures.disagreement_png(view, mpp), f"{name}: false positives and negatives"
        ),
        Picture(f"{name}_detail.png", detail, f"{name}: largest disagreement at full resolution"),
        (place.y.start, place.x.start),
    )


def run(settings: Settings, run: ArtifactLog) -> None:
    """Write `results/report/index.html` and its PNGs, and log the folder.

    The page holds pictures of the slides with the lowest Dice, at most twelve.

    Raises:
        UsageError: a stage before has not run.
        GigaslideError: a mask does not belong to its store.
    """
    results = _results()
    stores = {store.name: store for store in open_split(place(settings), "test")}
    shown = [name for name in slide_order(results.slides) if name in stores][:_MOST_SLIDES]
    slide_pictures = [_slide_pictures(stores[name], settings.report.overlay_px) for name in shown]
    training = Picture(
        "training.png", charts.training(results.steps, results.epochs), "Loss, Dice, time and memory of the training"
    )
    slides_chart, artefacts_chart = _slides_chart(results.slides), _artefacts_chart(results.artefacts)
    page = render(settings, results, training, slides_chart, artefacts_chart, slide_pictures)
    files = [training, slides_chart, artefacts_chart]
    files += [picture for item in slide_pictures for picture in (item.outlines, item.disagreement, item.detail)]
    with atomic_path(FOLDER) as folder:
        folder.mkdir()
        for picture in files:
            if picture is not None:
                (folder / picture.file).write_bytes(picture.png)
        write_text(folder / "index.html", page)
    run.log_artifact(FOLDER, "report")
