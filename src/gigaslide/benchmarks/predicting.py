"""Predicting slides straight from their files, as a user does it: the whole command, its outputs checked.

Timed: `gigaslide predict SLIDE --out FOLDER` from the start of its process to its end, libraries and network included,
turn by turn with what OpenSlide alone needs to decode the same pixels on the same cores (openslide_alone.py). Memory is
that of the process that predicts, as its summary has it.

Checked, on outputs made with `--simplify-um 0`: every feature of the GeoJSON is valid, and read back it gives mask.tif,
pixel for pixel; on those made with the default, how far the area of the polygons is from that of the pixels.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import shapely

from gigaslide import config, files, machine, provenance
from gigaslide.benchmarks import large_slide
from gigaslide.benchmarks.preparing import openslide_alone
from gigaslide.classes import INVALID, TISSUE
from gigaslide.console import console
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.geometry import grid
from gigaslide.prediction import outputs
from gigaslide.slides.labels import open_labels
from gigaslide.slides.mask_image import MaskImage
from gigaslide.slides.reader import open_slide
from gigaslide.stages.demo import REAL_SLIDE

ROUNDS = 3
_BUDGET_GB = 2 * 2**30 / 1e9  # two gibibytes
_WINDOW_PX = 4096
_LABELS = config.Labels(tissue_classes=["Tissue"], ignore_classes=[], without_annotation="error")


def _predict(slide: Path, out: Path, *options: str) -> float:
    """Run the command; return its seconds."""
    command = [sys.executable, "-m", "gigaslide", "predict", str(slide), "--out", str(out)]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--budget-gb", f"{_BUDGET_GB}", *options], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise GigaslideError(f"gigaslide predict failed: {(done.stdout + done.stderr).strip()[-500:]}")
    return time.perf_counter() - started


def _polygons(folder: Path) -> Any:
    features = json.loads((folder / outputs.GEOJSON).read_text(encoding="utf-8"))["features"]
    return shapely.from_geojson([json.dumps(feature["geometry"]) for feature in features])


def _different_px(slide: Path, folder: Path) -> int:
    """Return how many valid pixels of mask.tif are another label in the GeoJSON; both on the grid of the mask."""
    reader = open_slide(slide).at_shape(tuple(outputs.read_summary(folder)["shape_px"]))  # type: ignore[index]
    drawn = open_labels(reader, folder / outputs.GEOJSON, _LABELS)
    mask = MaskImage(folder / outputs.MASK, reader.level0_shape, reader.shape)
    different = 0
    for window in grid(reader.shape, (_WINDOW_PX, _WINDOW_PX)):
        labels = mask.read(window)
        different += int(np.count_nonzero((labels != INVALID) & ((labels == TISSUE) != (drawn.read(window) == TISSUE))))
    return different


def _checked(slide: Path, scratch: Path) -> dict[str, Any]:
    """Predict twice more, and look whether the outputs tell of the same tissue."""
    simplified, exact = scratch / "simplified", scratch / "exact"
    _predict(slide, simplified)
    _predict(slide, exact, "--simplify-um", "0")
    summary = outputs.read_summary(simplified / slide.stem) or {}
    level0_px = summary["tissue_px"] * np.prod(summary["level0_px_per_px"])
    polygons = _polygons(simplified / slide.stem)
    mask = simplified / slide.stem / outputs.MASK
    return {
        "mask_openslide_s": openslide_alone([mask], 1, 1)[str(mask)][0],  # OpenSlide opens it, and reads all of it
        "features": len(polygons),
        "invalid_features": int(np.count_nonzero(~shapely.is_valid(polygons))),
        "area_difference": float(shapely.area(polygons).sum() / level0_px - 1),
        "exact_different_px": _different_px(slide, exact / slide.stem),
        "outputs_bytes": summary["outputs_bytes"],
    }


def _one_slide(slide: Path, scratch: Path, cores: int, rounds: int) -> dict[str, Any]:
    openslide_s, predict_s, peaks_gb, parts = [], [], [], []
    for number in range(rounds):
        openslide_s += openslide_alone([slide], 1, cores)[str(slide)]
        out = scratch / f"timed{number}"
        predict_s.append(_predict(slide, out))
        summary = outputs.read_summary(out / slide.stem) or {}
        peaks_gb.append(summary["peak_memory_gb"])
        parts.append(summary["time_s"])
        files.remove(out)
    reader = open_slide(slide)
    return {
        "slide": slide.name,
        "shape_px": list(reader.shape),
        "reader": reader.library,
        "openslide_s": statistics.median(openslide_s),
        "predict_s": statistics.median(predict_s),
        "parts_s": {key: statistics.median(part[key] for part in parts) for key in parts[0]},
        "peak_memory_gb": max(peaks_gb),
        "openslide_s_all": openslide_s,
        "predict_s_all": predict_s,
        **_checked(slide, scratch),
    }


def run(json_file: Path, rounds: int = ROUNDS) -> None:
    """Measure, check, print and write the figures.

    Raises:
        UsageError: a slide is not there.
        GigaslideError: the outputs contradict each other; the figures are written all the same.
    """
    slides = [REAL_SLIDE, large_slide.FOLDER / f"{large_slide.NAME}.tiff"]
    for slide, how in zip(slides, ("gigaslide demo", "gigaslide bench steps --make-slide"), strict=True):
        if not slide.exists():
            raise UsageError(f"there is no {slide}: `{how}` makes it")
    cores = machine.usable_threads()
    with tempfile.TemporaryDirectory(prefix=".predicting-", dir=large_slide.FOLDER) as name:
        found = [_one_slide(slide, Path(name) / slide.stem, cores, rounds) for slide in slides]
    figures = {
        "cores": cores,
        "budget_gb": _BUDGET_GB,
        "slides": found,
        "machine": machine.describe_machine(),
        "git_commit": provenance.git_commit(),
    }
    files.write_text(json_file, json.dumps(figures, indent=2) + "\n")
    for line in found:
        text = (
            "{slide}: predicted in {predict_s:.1f} s, peak {peak_memory_gb:.2f} GB (OpenSlide alone decodes it in "
            "{openslide_s:.1f} s); {features} features, {invalid_features} invalid, area off by {area_difference:.4%}; "
            "exact outlines differ from the mask in {exact_different_px} px"
        )
        console.print(text.format(**line), markup=False)
    if any(line["invalid_features"] or line["exact_different_px"] for line in found):
        raise GigaslideError("the GeoJSON should be valid and, when exact, give the mask back")
