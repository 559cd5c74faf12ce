"""The resolution that a set of prepared slides has in common, and where their pixel sizes are known from.

A kernel of so many pixels covers so many um of tissue only at one pixel size: slides of several scanners train one
network when `slides.mpp_um_per_px` brings them to one size.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gigaslide.errors import GigaslideWarning
from gigaslide.slides.store import Store

# Sizes whose ratio is below this are one size: a level within 1 % of what was asked for is taken as it is
# (slides/levels.py), which is 1.01 / 0.99 between two slides; sides rounded to whole pixels are the rest.
_SAME_SIZE_RATIO = 1.025


@dataclass(frozen=True)
class WorkingResolution:
    """What pixels mean in some stores.

    `mpp_um_per_px`: the size that all have, None if they differ or one does not say. `range_um_per_px`: smallest and
    largest of those that say. `sources`: how many stores have their size from where, as "openslide".
    """

    mpp_um_per_px: float | None
    range_um_per_px: tuple[float, float] | None
    sources: tuple[tuple[str, int], ...]

    @property
    def differs(self) -> bool:
        """Whether a pixel is known to be larger in one store than in another."""
        low, high = self.range_um_per_px or (1.0, 1.0)
        return high > low * _SAME_SIZE_RATIO

    def warn_if_it_differs(self, kernel_px: int) -> None:
        """Warn that a kernel of so many pixels covers more tissue on one slide than on another.

        Warns:
            GigaslideWarning: the sizes differ.
        """
        if not self.differs or self.range_um_per_px is None:
            return
        low, high = self.range_um_per_px
        warnings.warn(
            f"the slides have pixels of {low:.4g} to {high:.4g} um, so that a kernel of {kernel_px} px covers "
            f"{kernel_px * low:.3g} um on one and {kernel_px * high:.3g} um on another: set slides.mpp_um_per_px to "
            f"{high:.4g} or above, and prepare again",
            GigaslideWarning,
            stacklevel=2,
        )

    def as_json(self) -> dict[str, Any]:
        """Return what a trained model keeps of it; `predict` brings slides to `mpp_um_per_px`."""
        return {
            "mpp_um_per_px": self.mpp_um_per_px,
            "mpp_range_um_per_px": None if self.range_um_per_px is None else list(self.range_um_per_px),
            "mpp_sources": dict(self.sources),
        }


def working_resolution(stores: Iterable[Store], asked_um_per_px: float | None) -> WorkingResolution:
    """Return what pixels mean in the stores; `asked_um_per_px` is the size they were prepared at, if one was asked."""
    sizes, sources = [], Counter[str]()
    for store in stores:
        sizes.append(store.mpp_um_per_px)
        sources[str(store.attributes.get("mpp_source", "unknown"))] += 1
    known = [size for size in sizes if size is not None]
    bounds = (min(known), max(known)) if known else None
    found = WorkingResolution(None, bounds, tuple(sorted(sources.items())))
    if not known or len(known) < len(sizes) or found.differs:
        return found
    mean = math.exp(math.fsum(map(math.log, known)) / len(known))
    return WorkingResolution(asked_um_per_px or mean, bounds, found.sources)


def table(by_split: Mapping[str, Sequence[Store]]) -> list[dict[str, Any]]:
    """Return a row per store: slide, split, the size of its pixels, and where that is known from."""
    return [
        {
            "slide": store.name,
            "split": split,
            "mpp_um_per_px": store.mpp_um_per_px,
            "mpp_source": store.attributes.get("mpp_source", "unknown"),
        }
        for split, stores in by_split.items()
        for store in stores
    ]
