"""The demo cohort: a real slide that is only ever tested on, and synthetic slides in all splits.

The synthetic slides borrow their texture from that same real slide, turned, rearranged and stained anew. Its score is
therefore not that of a network that never met its tissue; the shapes, the glass, the edges and the debris are new.
"""

import csv
import io
import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gigaslide import files
from gigaslide.console import progress_bar
from gigaslide.demo import tiff
from gigaslide.demo.artefacts import NAMES
from gigaslide.demo.slide import Renderer, SlideRecipe
from gigaslide.demo.texture import load_atlases
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.geometry import Window

COLUMNS = ("slide", "annotation", "split", "mpp", "regions")
_TILES_PER_BLOCK = 4

# Fat is tested on but not trained on: a network of 4492 parameters that learns to fill the vacuoles of fat fills every
# other hole as well, and draws every outline some pixels too far out.
_COHORT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("train", ("plain",)),
    ("train", ("pale",)),
    ("train", ("ihc", "dust")),
    ("train", ("plain", "bubble")),
    ("train", ("fold", "pen_black")),
    ("train", ("blur", "pen_green")),
    ("train", ("pen_blue", "stitching")),
    ("train", ("coverslip", "dust")),
    ("train", ("pale", "pen_black", "bubble")),
    ("train", ("ihc", "pen_blue")),
    ("train", ("fold", "pen_black", "coverslip")),
    ("train", ("pen_black", "pen_blue", "pen_green")),
    ("validation", ("pen_green", "dust")),
    ("validation", ("pale", "bubble", "pen_blue")),
    ("validation", ("ihc", "fold", "coverslip")),
    ("validation", ("plain", "pen_black")),
    ("test", ("plain",)),
    ("test", ("pale", "pen_black")),
    ("test", ("ihc", "bubble")),
    ("test", ("fat", "pen_blue")),
    ("test", ("fold", "blur", "dust")),
    ("test", ("pen_green", "coverslip", "stitching")),
)


@dataclass(frozen=True, slots=True)
class WrittenSlide:
    """The files of one synthetic slide: picture, mask (0 glass, 1 tissue), artefact labels (`artefacts.NAMES`)."""

    recipe: SlideRecipe
    slide: Path
    mask: Path
    artefacts: Path


def default_cohort(
    height_px: int = 2560, width_px: int = 3072, seed: int = 0, mpp_um_per_px: float = 0.5
) -> tuple[SlideRecipe, ...]:
    """Return 12 train, 4 validation and 6 test recipes, no two with one seed.

    Every artefact is in test and, but for fat, in train.
    """
    return tuple(
        SlideRecipe(
            name=f"{split}_{number:02d}_{'_'.join(artefacts)}",
            height_px=height_px,
            width_px=width_px,
            seed=seed * 1000 + number,
            mpp_um_per_px=mpp_um_per_px,
            artefacts=artefacts,
            split=split,
        )
        for number, (split, artefacts) in enumerate(_COHORT)
    )


def _render_tiles(
    renderer: Renderer, shape: tuple[int, int], masks: list[bytes], labels: list[bytes]
) -> Iterator[NDArray[np.uint8]]:
    """Yield the picture's tiles row by row; append the mask's and the labels' tiles, compressed, as they come."""
    size = tiff.TILE_PX
    columns = -(-shape[1] // size)
    for top in range(0, shape[0], size):
        for first in range(0, columns, _TILES_PER_BLOCK):
            count = min(_TILES_PER_BLOCK, columns - first)
            block = renderer.render(Window.of(top, first * size, size, count * size))
            for n in range(count):
                part = (slice(None), slice(n * size, (n + 1) * size))
                masks.append(tiff.encode_labels(block.mask[part]))
                labels.append(tiff.encode_labels(block.labels[part]))
                yield block.image[part]


def write_slide(recipe: SlideRecipe, texture_source: Path, folder: Path) -> WrittenSlide:
    """Write `<name>.tiff`, `<name>_mask.tif` and `<name>_artefacts.tif` into `folder`, each atomically.

    `texture_source` is the real slide (`fetch.fetch_real_slide`). Memory does not grow with the slide but for the next
    pyramid level, a sixteenth of its pixels, and the compressed labels.
    """
    written = WrittenSlide(
        recipe,
        folder / f"{recipe.name}.tiff",
        folder / f"{recipe.name}_mask.tif",
        folder / f"{recipe.name}_artefacts.tif",
    )
    renderer = Renderer(recipe, load_atlases(texture_source, recipe.mpp_um_per_px))
    shape = recipe.height_px, recipe.width_px
    masks: list[bytes] = []
    labels: list[bytes] = []
    tiles = _render_tiles(renderer, shape, masks, labels)
    tiff.write_pyramid(written.slide, shape, recipe.mpp_um_per_px, tiles)
    tiff.write_labels(written.mask, shape, recipe.mpp_um_per_px, masks)
    # The reader of the table's column `regions` finds the names of the values 1, 2, ... here.
    names = json.dumps({"regions": NAMES[1:]})
    tiff.write_labels(written.artefacts, shape, recipe.mpp_um_per_px, labels, names)
    return written


def _table(written: Sequence[WrittenSlide], real_slide: str, annotation: str) -> str:
    """Return cohort.csv. No mpp: every file tells its own."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for slide in written:
        table.writerow((slide.slide.name, slide.mask.name, slide.recipe.split, "", slide.artefacts.name))
    table.writerow((real_slide, annotation, "test", "", ""))
    return text.getvalue()


def _copy(source: Path, folder: Path) -> str:
    target = folder / source.name
    if not (target.exists() and target.samefile(source)):
        with files.atomic_path(target) as temporary:
            shutil.copyfile(source, temporary)
    return target.name


def write_cohort(folder: Path, real_slide: Path, annotation: Path, recipes: Sequence[SlideRecipe], jobs: int) -> Path:
    """Write all slides of `recipes` with `jobs` processes, copy the real slide and its annotation, then `cohort.csv`.

    The table comes last: where it is, everything it names is complete. Returns its path.

    Raises `UsageError` if two recipes share a name or a file is missing, `GigaslideError` if a slide cannot be made.
    """
    names = [recipe.name for recipe in recipes]
    if len(set(names)) < len(names):
        raise UsageError(f"demo slides need different names; received {sorted(names)}")
    for path in (real_slide, annotation):
        if not path.is_file():
            raise UsageError(f"the demo cohort needs {path}, which is not there")
    folder.mkdir(parents=True, exist_ok=True)
    # A fresh interpreter per worker: forking a process that runs TensorFlow's threads can hang.
    context = get_context("spawn")
    with ProcessPoolExecutor(max_workers=max(1, jobs), mp_context=context) as pool, progress_bar() as progress:
        pending = [pool.submit(write_slide, recipe, real_slide, folder) for recipe in recipes]
        written = []
        pairs = zip(recipes, pending, strict=True)
        for recipe, future in progress.track(pairs, total=len(recipes), description="demo slides"):
            try:
                written.append(future.result())
            except Exception as error:
                pool.shutdown(cancel_futures=True)
                raise GigaslideError(f"the demo slide {recipe.name} could not be made: {error}") from error
    table = folder / "cohort.csv"
    files.write_text(table, _table(written, _copy(real_slide, folder), _copy(annotation, folder)))
    return table
