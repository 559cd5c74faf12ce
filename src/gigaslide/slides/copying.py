"""The pixels and labels of an area of a slide into its store, windows side by side: `copy_area`."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gigaslide.classes import INVALID
from gigaslide.geometry import Window, grid
from gigaslide.slides.damage import Damage
from gigaslide.slides.labels import LabelSource
from gigaslide.slides.mask_image import MaskImage
from gigaslide.slides.partial_store import PartialStore
from gigaslide.slides.reader import SlideReader
from gigaslide.slides.side_by_side import in_order
from gigaslide.slides.store import StoreWriter
from gigaslide.slides.window_sums import WindowSums

Progress = Callable[[float], None]
Threads = Callable[[], int]


@dataclass(frozen=True)
class Pictures:
    """What is copied: the slide, its labels, and its regions if it has any, all on one grid."""

    slide: SlideReader
    labels: LabelSource
    regions: MaskImage | None


def _copy_window(pictures: Pictures, there: Window, here: Window, writer: StoreWriter) -> WindowSums:
    """Copy the window `there` of the slide to the window `here` of the store."""
    damage = Damage()
    slide = pictures.slide if pictures.slide.damage is None else pictures.slide.counting(damage)
    rgb, valid = slide.read(there)
    mask = pictures.labels.read(there)
    if not valid.all():
        mask[~valid] = INVALID
    more = {} if pictures.regions is None else {"regions": pictures.regions.read(there).astype(np.uint8)}
    writer.write(here, image=rgb, mask=mask, **more)
    return WindowSums.of(rgb, valid, mask, damage)


def copy_area(
    pictures: Pictures,
    area: Window,
    window_px: int,
    writer: StoreWriter,
    partial: PartialStore,
    check: Callable[[Damage], None],
    progress: Progress,
    threads: Threads,
) -> WindowSums:
    """Copy what is not copied yet; return what was counted in all of the area.

    Args:
        pictures: what is copied.
        area: of the slide.
        window_px: side of the windows.
        writer: of the store, `partial`.
        partial: knows which windows an earlier run has copied.
        check: told, after each window, what is lost up to it; it may raise. In the order of the windows, so that what
            it says does not depend on the number of threads.
        progress: told the share that is done, 0 to 1.
        threads: asked how many windows may be copied at once.
    """
    windows = list(grid(area.shape, (window_px, window_px)))

    def sums_of(number: int) -> WindowSums:
        sums = partial.done(number)
        if sums is None:
            here = windows[number]
            sums = _copy_window(pictures, here.shift(area.y.start, area.x.start), here, writer)
            partial.record(number, here, writer, sums)
        return sums

    total = WindowSums()
    for number, sums in enumerate(in_order(sums_of, range(len(windows)), threads), start=1):
        total.add(sums)
        check(total.damage)
        progress(number / len(windows))
    return total
