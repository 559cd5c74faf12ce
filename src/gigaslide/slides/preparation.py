"""One slide into one store: window by window, so that memory does not grow with the slide."""

import hashlib
import json
import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gigaslide
from gigaslide import classes, files, geometry
from gigaslide.classes import GLASS, INVALID, TISSUE
from gigaslide.config import Labels, Prepare
from gigaslide.errors import GigaslideError, GigaslideWarning, SlideError
from gigaslide.geometry import Window
from gigaslide.slides.cohort import CohortRow
from gigaslide.slides.colours import implausible_colours
from gigaslide.slides.copying import Pictures, Progress, Threads, copy_area
from gigaslide.slides.damage import Damage
from gigaslide.slides.labels import LabelSource, open_labels
from gigaslide.slides.mask_image import MaskImage
from gigaslide.slides.partial_store import PartialStore, remove_partial
from gigaslide.slides.placement import place_area
from gigaslide.slides.reader import SlideReader, close_slide, open_slide
from gigaslide.slides.slide_files import slide_sha256
from gigaslide.slides.staging import staged
from gigaslide.slides.store import SCHEMA_VERSION, Store, open_store, stored_files


@dataclass(frozen=True)
class Job:
    """A row of the cohort table, the settings that shape its store, and where that goes.

    Of the store's pixels `max_corrupt_fraction` may be lost to tiles that cannot be decoded; 0: not one tile. The slide
    is read from a copy in the folder `cache`, if there is one. `present` is where the store of an earlier run lies, if
    not where this one goes.
    """

    row: CohortRow
    labels: Labels
    prepare: Prepare
    mpp_um_per_px: float | None
    store: Path
    max_corrupt_fraction: float = 0.01
    cache: Path | None = None
    present: Path | None = None


@dataclass(frozen=True)
class Prepared:
    """A store that is in place; `unchanged` when it already was."""

    store: Store
    unchanged: bool


def _code_sha256() -> str:
    """Hash the code that makes stores: a change of it can change what is in them."""
    digest = hashlib.sha256()
    for file in (*sorted(Path(__file__).parent.glob("*.py")), Path(geometry.__file__), Path(classes.__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _inputs(job: Job, slide: Path) -> dict[str, Any]:
    """Everything that the bytes of a store follow from; equal inputs, equal stores. `slide`: or a copy of it."""
    row = job.row
    return {
        "slide_sha256": slide_sha256(slide),
        "annotation_sha256": files.sha256(row.annotation) if row.annotation else None,
        "regions_sha256": files.sha256(row.regions) if row.regions else None,
        "table_mpp_um_per_px": row.mpp_um_per_px,
        "settings": {
            "slides.mpp_um_per_px": job.mpp_um_per_px,
            "labels": job.labels.model_dump(mode="json"),
            "prepare.region_px": job.prepare.region_px,
            "prepare.window_px": job.prepare.window_px,
        },
        "gigaslide_version": gigaslide.__version__,
        "code_sha256": _code_sha256(),
    }


def _unchanged(job: Job, present: Path, inputs: dict[str, Any]) -> Store | None:
    """Return the store that is there if it is whole, was made from these inputs, and lost no more than it may."""
    try:
        store = open_store(present)
    except GigaslideError:
        return None
    made_from = {key: store.attributes.get(key) for key in inputs}
    whole = stored_files(present) == (store.attributes.get("files"), store.attributes.get("files_bytes"))
    accepted = store.attributes.get("corrupt_px", 0) <= job.max_corrupt_fraction * math.prod(store.shape)
    return store if made_from == inputs and whole and accepted else None


def _region_names(image: MaskImage) -> list[str]:
    try:
        names = json.loads(image.description)["regions"]
    except (ValueError, KeyError, TypeError):
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise SlideError(
            f"the regions {image.path} should name their values in the ImageDescription, as "
            f'{{"regions": ["pen", ...]}}; found {image.description[:80]!r}'
        )
    highest = max(image.values())
    if highest > len(names):
        raise SlideError(f"the regions {image.path} have the value {highest} but only {len(names)} name(s)")
    return names


def _refuse_damage(job: Job, area: Window, damage: Damage) -> None:
    if damage.lost_px > job.max_corrupt_fraction * math.prod(area.shape):
        raise SlideError(
            f"{job.row.slide} has at least {damage.in_words(math.prod(area.shape))}, more than "
            f"slides.max_corrupt_fraction ({job.max_corrupt_fraction:g}): copy the slide again, or allow more"
        )


def _regions_image(job: Job, reader: SlideReader) -> MaskImage | None:
    return None if job.row.regions is None else MaskImage(job.row.regions, reader.level0_shape, reader.shape)


def _open(job: Job, local: Path) -> tuple[SlideReader, LabelSource, list[str]]:
    """Return the slide at the resolution to work at, its labels, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GigaslideWarning)
        copied = local if local != job.row.slide else None
        reader = open_slide(job.row.slide, job.row.mpp_um_per_px, copied)
        if job.mpp_um_per_px is not None:
            reader = reader.at_mpp(job.mpp_um_per_px)
        if job.max_corrupt_fraction > 0:
            reader = reader.counting(Damage())
        doubt = implausible_colours(reader)
        labels = open_labels(reader, job.row.annotation, job.labels)
    said = [*reader.warnings, *([doubt] if doubt else [])]
    said += [str(item.message) for item in caught if issubclass(item.category, GigaslideWarning)]
    # What was lost for an overview is not counted: only what the store lacks is.
    return reader if reader.damage is None else reader.counting(Damage()), labels, said


def _one_thread() -> int:
    return 1


def _make(job: Job, local: Path, known: dict[str, Any] | None, progress: Progress, threads: Threads) -> None:
    row, region_px, window_px = job.row, job.prepare.region_px, job.prepare.window_px
    with ThreadPoolExecutor(1) as pool:  # hashing all of the file takes as long as finding out what is in it
        hashed = pool.submit(lambda: known or _inputs(job, local))
        reader, labels, said = _open(job, local)
        inputs = hashed.result()
    regions = _regions_image(job, reader)
    names = [] if regions is None else _region_names(regions)
    area = Window.of(0, 0, *reader.shape)
    if region_px != "whole":
        area = place_area(labels, reader.shape, (region_px[0], region_px[1]))
    partial = PartialStore(job.store, inputs)
    writer = partial.open(area.shape, window_px, bool(names), keep_damaged=job.max_corrupt_fraction > 0)
    # Other libraries keep a quarter of a gigabyte, or the whole picture, in every thread.
    threads = threads if reader.library.startswith("openslide") else _one_thread
    sums = copy_area(
        Pictures(reader, labels, regions),
        area,
        window_px,
        writer,
        partial,
        lambda damage: _refuse_damage(job, area, damage),
        progress,
        threads,
    )
    damage = sums.damage
    if damage.tiles:
        said.append(f"left out as invalid: {damage.in_words(math.prod(area.shape))}")
    y_scale, x_scale = reader.level0_px_per_px
    writer.finish(
        {
            "schema_version": SCHEMA_VERSION,
            "name": row.name,
            "shape_px": list(area.shape),
            "mpp_um_per_px": None if reader.mpp_um_per_px is None else list(reader.mpp_um_per_px),
            "mpp_source": reader.resolution.source,
            "offset_yx_px": [round(area.y.start * y_scale), round(area.x.start * x_scale)],
            "level0_px_per_px": [y_scale, x_scale],
            "level0_shape_px": list(reader.level0_shape),
            "reader": reader.library,
            "label_source": labels.kind,
            "region_names": names,
            "glass_rgb": list(sums.glass.colour()),
            "tissue_px": sums.labels[TISSUE],
            "glass_px": sums.labels[GLASS],
            "invalid_px": sums.labels[INVALID],
            "corrupt_tiles": len(damage.tiles),
            "corrupt_px": damage.lost_px,
            "warnings": said,
            **inputs,
        }
    )
    partial.put_in_place()


def prepare_slide(job: Job, progress: Progress, threads: Threads = _one_thread) -> Prepared:
    """Bring the store of one slide up to date; `progress` is told the share that is done, 0 to 1.

    A store is in place when it is whole: it is written under a temporary name, then renamed. What was killed goes on
    with the windows that are missing.

    Args:
        job: what to make.
        progress: told the share that is done.
        threads: asked, again and again, how many windows may be copied at once.

    Raises:
        SlideError: the slide or its annotation cannot be used; an older store of it is removed.
    """
    slide, present = job.row.slide, job.present or job.store
    try:
        # A slide whose store is not there is read once from its own, maybe slow, disk: into the cache.
        inputs = _inputs(job, slide) if present.exists() else None
        store = None if inputs is None else _unchanged(job, present, inputs)
        if store is not None:
            remove_partial(job.store)
            return Prepared(store, unchanged=True)
        with staged(slide, job.cache) as local:
            try:
                _make(job, local, inputs, progress, threads)
            finally:
                close_slide(local)
    except Exception:
        files.remove(job.store)
        remove_partial(job.store)
        raise
    return Prepared(open_store(job.store), unchanged=False)
