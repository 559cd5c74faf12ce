"""gigaslide from Python, in five functions; `import gigaslide` gives them, and loads nothing until one is used.

import gigaslide

mask = gigaslide.predict_mask("slide.svs")
mask.tissue_mm2, mask.labels, list(mask.polygons())
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from gigaslide import config, files, quiet
from gigaslide.geometry import Interval, Window
from gigaslide.machine import usable_threads
from gigaslide.network import model_file
from gigaslide.slides import reader
from gigaslide.slides.arrays import Bytes
from gigaslide.stages.workers import run_all

if TYPE_CHECKING:
    import shapely

    from gigaslide.memory.planner import Candidate
    from gigaslide.prediction.slide import Network, Traced
    from gigaslide.slides.reader import SlideReader

# That of params.yaml as it comes: exactly 4492 parameters.
DEFAULT_NETWORK = config.Network(
    kernel_size=11, stride=4, depth=2, filters=[3, 2], head_filters=2, activation="leaky_relu", negative_slope=0.1
)
_BYTES_PER_GB = 1e9
_UM2_PER_MM2 = 1e6


def open_slide(path: str | Path, mpp_um_per_px: float | None = None) -> "SlideReader":
    """Open a slide of any format that OpenSlide, tifffile or Pillow reads, at full resolution.

    Positions are (y, x) in pixels, windows half-open (`gigaslide.geometry.Window`). `at_mpp` and `at_shape` of the
    reader lead to coarser grids.

    Args:
        path: the slide; of DICOM any of its files, of MRXS the .mrxs file.
        mpp_um_per_px: size of a pixel of level 0 in um, where the file does not say, or says it wrong.

    Raises:
        SlideError: the file is missing, empty, cut short or no slide; the message says which.

    >>> slide = gigaslide.open_slide(slide_path)
    >>> slide.shape
    (2967, 2220)
    >>> rgb, valid = slide.at_mpp(2.0).read(Window.of(100, 100, 64, 96))
    >>> rgb.shape, rgb.dtype, valid.all()
    ((64, 96, 3), dtype('uint8'), np.True_)
    """
    return reader.open_slide(Path(path), mpp_um_per_px)


def load_model(source: str | Path | None = None) -> "Network":
    """Load a trained network.

    Args:
        source: a .keras file; None: the network that comes with the package.

    Raises:
        UsageError: there is no such file, or it is no network in Keras' format.

    >>> network = gigaslide.load_model()
    >>> network.model.count_params()
    4492
    >>> network.about.mpp_um_per_px
    0.5
    """
    return _default_model() if source is None else _load_file(Path(source), Path(source).name)


@cache
def _default_model() -> "Network":
    return _load_file(model_file.DEFAULT, "gigaslide default")


def _load_file(path: Path, name: str) -> "Network":
    about = model_file.read_about(path)  # before TensorFlow: a wrong file is said at once
    quiet.import_tensorflow()
    from gigaslide.prediction.slide import Network

    return Network(model_file.load(path), about, name, files.sha256(path))


@dataclass(frozen=True)
class Mask:
    """The tissue of a slide, held as outlines: small, whatever the slide's size."""

    traced: "Traced"

    @property
    def shape(self) -> tuple[int, int]:
        """Size (y, x) of the mask in px."""
        return self.traced.reader.shape

    @property
    def mpp_um_per_px(self) -> tuple[float, float] | None:
        """Size (y, x) of a pixel of the mask in um, None when the slide does not say."""
        return self.traced.reader.mpp_um_per_px

    @property
    def level0_px_per_px(self) -> tuple[float, float]:
        """Pixels of the slide's level 0 per pixel of the mask, (y, x)."""
        return self.traced.reader.level0_px_per_px

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know of how the slide was read."""
        return self.traced.warnings

    @property
    def tissue_mm2(self) -> float | None:
        """Area of the tissue in mm2, None when the slide does not say how large its pixels are."""
        mpp = self.mpp_um_per_px
        return None if mpp is None else self.traced.outlines.tissue_px * mpp[0] * mpp[1] / _UM2_PER_MM2

    def read(self, window: Window) -> Bytes:
        """Return the labels of a window inside the mask: uint8 (y, x), 0 glass, 1 tissue, 255 invalid."""
        from gigaslide.prediction.outputs import labels

        rows = Interval(window.y.start, window.y.stop)
        return labels(self.traced.outlines, self.traced.survey.validity, rows)[:, window.x.slice]

    @property
    def labels(self) -> Bytes:
        """The whole mask in memory, a byte for each pixel: uint8 (y, x), 0 glass, 1 tissue, 255 invalid."""
        return self.read(Window.of(0, 0, *self.shape))

    def polygons(self) -> "Iterator[shapely.Polygon]":
        """Yield the pieces of tissue as polygons with holes, (x, y) in pixels of the mask."""
        return self.traced.outlines.polygons()


def predict_mask(
    slide: "str | Path | SlideReader",
    model: "str | Path | Network | None" = None,
    *,
    mpp_um_per_px: float | None = None,
    threshold: float | None = None,
    min_piece_um2: float = 0.0,
    min_hole_um2: float = 0.0,
    threads: int | None = None,
    budget_gb: float | None = None,
) -> Mask:
    """Find the tissue of a slide: the same mask as `gigaslide predict`, in memory that does not grow with the slide.

    Args:
        slide: a file, or what `open_slide` returns.
        model: a .keras file, or what `load_model` returns; None: the network that comes with the package.
        mpp_um_per_px: size of the pixels to predict at; None: those the network was trained at.
        threshold: a pixel of at least this probability is tissue; None: the network's own.
        min_piece_um2: smaller pieces of tissue are left out.
        min_hole_um2: smaller holes are filled.
        threads: cores to use; None: all that this process may use.
        budget_gb: of memory for the process, in 10^9 bytes; None: what is free.

    Raises:
        SlideError: the slide cannot be read.
        UsageError: the network cannot be loaded.
        DoesNotFit: the budget is too small.

    >>> mask = gigaslide.predict_mask(slide_path)
    >>> mask.labels.shape, mask.labels.dtype
    ((2967, 2220), dtype('uint8'))
    >>> 0.55 < mask.tissue_mm2 < 0.65
    True
    >>> largest = max(mask.polygons(), key=lambda polygon: polygon.area)
    >>> largest.is_valid, len(largest.interiors) > 0
    (True, True)
    """
    network = load_model(model) if model is None or isinstance(model, str | Path) else model
    from gigaslide.prediction.request import Request
    from gigaslide.prediction.slide import trace_slide

    opened = open_slide(slide) if isinstance(slide, str | Path) else slide
    request = Request(mpp_um_per_px, threshold, min_piece_um2, min_hole_um2)
    free = float(psutil.virtual_memory().available)
    budget_bytes = free if budget_gb is None else budget_gb * _BYTES_PER_GB
    return Mask(trace_slide(opened, network, request, threads or usable_threads(), budget_bytes, lambda done: None))


def train(project: str | Path = ".", settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Train the network of a project on its prepared slides, as `gigaslide train`; return results/train/summary.json.

    Args:
        project: the folder with params.yaml, after `gigaslide prepare`.
        settings: instead of those of params.yaml, by dotted key.

    Raises:
        UsageError: a setting is wrong, or a split has no slide.
        DoesNotFit: no plan keeps to the memory budget.

    >>> summary = gigaslide.train(project, {"train.epochs": 2})
    >>> summary["epochs"], summary["parameters"]
    (2, 4492)
    """
    with chdir(project):
        job = _Training(Path.cwd(), config.load().replaced(settings or {}))
    # In a process of its own: what TensorFlow has begun with in this one may not be what the plan needs, and the
    # memory of a training is given back when its process ends.
    (outcome,) = run_all(_train, [job], 1)
    if outcome.error is not None:
        raise outcome.error
    summary: dict[str, Any] = outcome.value
    return summary


@dataclass(frozen=True)
class _Training:
    project: Path
    settings: config.Settings


def _train(job: _Training, progress: object) -> dict[str, Any]:
    with chdir(job.project):
        quiet.import_tensorflow()
        from gigaslide.stages import train as stage
        from gigaslide.stages.paths import TRAIN

        stage.run(job.settings)
        summary: dict[str, Any] = json.loads((TRAIN / "summary.json").read_text(encoding="utf-8"))
    return summary


def plan(
    height: int,
    width: int,
    *,
    budget_gb: float,
    cores: int | None = None,
    settings: "config.Network | None" = None,
) -> "Candidate":
    """Return the fastest plan for a training step on an area that keeps to a memory budget. Needs no TensorFlow.

    Args:
        height: of the area in pixels.
        width: of the area in pixels.
        budget_gb: of the process, in 10^9 bytes.
        cores: of the machine; None: those of this process.
        settings: of the network, as `config.load().network`; None: the default network of 4492 parameters.

    Raises:
        DoesNotFit: no plan does; the message says how much is missing.

    >>> chosen = gigaslide.plan(16000, 64000, budget_gb=4, cores=2)
    >>> chosen.peak_bytes < 4e9
    True
    >>> gigaslide.plan(16000, 64000, budget_gb=0.5)
    Traceback (most recent call last):
    gigaslide.memory.planner.DoesNotFit: a training step on 16000 x 64000 px does not fit 0.50 GB: ...
    """
    from gigaslide.memory import planner
    from gigaslide.network.describe import describe

    graph = describe(settings or DEFAULT_NETWORK)
    found = planner.candidates(graph, (height, width), cores or usable_threads())
    return planner.choose(found, (height, width), budget_gb * _BYTES_PER_GB)
