"""A slide of the paper's size, made and prepared once: 16000 x 64000 px in data/bench."""

import time
from pathlib import Path

from gigaslide.config import Prepare, Settings
from gigaslide.console import console, progress_bar
from gigaslide.demo.cohort import write_slide
from gigaslide.demo.fetch import fetch_real_slide
from gigaslide.demo.slide import SlideRecipe
from gigaslide.slides.cohort import CohortRow
from gigaslide.slides.preparation import Job, prepare_slide
from gigaslide.stages.demo import REAL_SLIDE

SHAPE = (16000, 64000)
NAME = "large"
FOLDER = Path("data/bench")
STORE = FOLDER / f"{NAME}.zarr"
_WINDOW_PX = 2048
_SEED = 4
_ARTEFACTS = ("fold", "bubble", "pen_blue", "dust")


def make(
    settings: Settings, shape: tuple[int, int] = SHAPE, folder: Path = FOLDER, texture_source: Path = REAL_SLIDE
) -> None:
    """Write the slide if it is not there, and prepare it if that was not done; about five minutes on two cores.

    Args:
        settings: how labels are read.
        shape: of the slide in pixels, (y, x).
        folder: where slide and store go.
        texture_source: the real slide, fetched if it is not there.
    """
    started = time.perf_counter()
    fetch_real_slide(texture_source)
    folder.mkdir(parents=True, exist_ok=True)
    slide, mask = folder / f"{NAME}.tiff", folder / f"{NAME}_mask.tif"
    # Written in this order, each when it is whole.
    if not (slide.exists() and mask.exists()):
        console.print(f"{slide}: drawing {shape[0]} x {shape[1]} px", markup=False)
        write_slide(SlideRecipe(NAME, *shape, _SEED, artefacts=_ARTEFACTS), texture_source, folder)
    row = CohortRow(NAME, slide, mask, "train", None, None)
    whole = Prepare(region_px="whole", window_px=_WINDOW_PX, workers=None)
    with progress_bar() as bar:
        task = bar.add_task(f"{slide.name} into a store", total=1.0)
        job = Job(row, settings.labels, whole, None, folder / f"{NAME}.zarr")
        prepare_slide(job, lambda share: bar.update(task, completed=share))
    console.print(f"{folder / NAME}.zarr: ready after {time.perf_counter() - started:.0f} s", markup=False)
