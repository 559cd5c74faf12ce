"""How large a pixel is (mpp, um per px), and where that is known from.

Order: the cohort table, OpenSlide's own value, the resolution tags of a TIFF, a guess from the power of the
objective (with a warning). For a file that another library reads: the table, OME's PhysicalSize, the tags. A value
that no microscope gives is passed over: many writers leave 72 or 96 dpi in the tags, which would be 353 and 265 um
per px.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tifffile

from gigaslide.errors import GigaslideWarning

# 100x oil immersion gives about 0.05; 20 lies above every slide scanner's level 0 and below 1200 dpi (21.2).
PLAUSIBLE_UM_PER_PX = (0.02, 20.0)
_UM_PER_UNIT = {2: 25400.0, 3: 10000.0}  # TIFF ResolutionUnit: 2 inch, 3 centimetre
_UM_PER_PX_TIMES_POWER = 10.0  # 20x: 0.5 um per px, 40x: 0.25


@dataclass(frozen=True)
class Resolution:
    """Pixel size of level 0, (y, x) in um per px, or None; `source` says where it comes from."""

    mpp_um_per_px: tuple[float, float] | None
    source: str


def _plausible(mpp_y: float, mpp_x: float) -> bool:
    low, high = PLAUSIBLE_UM_PER_PX
    return all(math.isfinite(mpp) and low <= mpp <= high for mpp in (mpp_y, mpp_x))


def _number(text: str | None) -> float:
    try:
        return float((text or "").replace(",", "."))
    except ValueError:
        return math.nan


def stated_resolution(mpp_y: float, mpp_x: float, source: str) -> tuple[Resolution, ...]:
    """Return what a file says, unless no microscope gives that."""
    return (Resolution((mpp_y, mpp_x), source),) if _plausible(mpp_y, mpp_x) else ()


def page_resolution(page: Any) -> tuple[Resolution, ...]:
    """Return the pixel size in the resolution tags of a tifffile page; nothing when there is no usable one."""
    try:
        tags = page.tags
        unit = _UM_PER_UNIT[int(tags["ResolutionUnit"].value)]
        (y, y_divisor), (x, x_divisor) = tags["YResolution"].value, tags["XResolution"].value
        return stated_resolution(unit * y_divisor / y, unit * x_divisor / x, "tiff tags")
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        return ()


def _from_tiff_tags(path: Path) -> tuple[Resolution, ...]:
    try:
        with tifffile.TiffFile(path) as tiff:
            return page_resolution(tiff.pages.first)
    except (tifffile.TiffFileError, KeyError, ValueError, TypeError, OSError):
        return ()  # no TIFF: the next source is asked


def find_resolution(
    path: Path,
    properties: Mapping[str, str],
    table_mpp_um_per_px: float | None,
    stated: Sequence[Resolution] | None = None,
) -> Resolution:
    """Return the pixel size of level 0 from the first source that has a plausible one.

    Args:
        path: the slide.
        properties: OpenSlide's properties of it.
        table_mpp_um_per_px: the value in the cohort table, if there is one; it is believed.
        stated: what the file says, most trusted first, where another library than OpenSlide reads it.

    Warns:
        GigaslideWarning: the value was guessed from the power of the objective.
    """
    if table_mpp_um_per_px is not None:
        return Resolution((table_mpp_um_per_px, table_mpp_um_per_px), "cohort table")
    if stated is not None:
        return next(iter(stated), Resolution(None, "unknown"))
    mpp = _number(properties.get("openslide.mpp-y")), _number(properties.get("openslide.mpp-x"))
    if _plausible(*mpp):
        return Resolution(mpp, "openslide")
    for found in _from_tiff_tags(path):
        return found
    power = _number(properties.get("openslide.objective-power"))
    guess = _UM_PER_PX_TIMES_POWER / power if power > 0 else math.nan
    if _plausible(guess, guess):
        warnings.warn(
            f"{path.name} does not say how large its pixels are; {guess:g} um per px is a guess from its "
            f"{power:g}x objective: give the value in the mpp column of the cohort table",
            GigaslideWarning,
            stacklevel=2,
        )
        return Resolution((guess, guess), "objective power")
    return Resolution(None, "unknown")
