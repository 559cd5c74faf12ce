"""A patch on one level of the slide's pyramid, for the tools that read a level as it is and scale afterwards."""

import math
from dataclasses import dataclass

from gigaslide.errors import SlideError
from gigaslide.exports.patches import Patches, find_patches
from gigaslide.exports.request import Export
from gigaslide.slides.levels import LEVEL_TOLERANCE


@dataclass(frozen=True)
class LevelPatch:
    """A square of `size_px` pixels of level number `level`, that is of `level0_px` pixels of level 0."""

    level: int
    size_px: int
    level0_px: int


def level_patch(export: Export) -> LevelPatch:
    """Return the patch on the coarsest level that is not coarser than what is asked for, 1 % apart at most."""
    scale, patch_px = export.level0_px_per_patch_px, export.request.patch_px
    full = math.prod(export.reader.level0_shape)
    downs = [math.sqrt(full / math.prod(level.shape)) for level in export.reader.levels]
    level = max((n for n, down in enumerate(downs) if down <= scale * (1 + LEVEL_TOLERANCE)), key=lambda n: downs[n])
    ratio = scale / downs[level]
    size_px = patch_px if abs(ratio - 1) <= LEVEL_TOLERANCE else round(patch_px * ratio)
    return LevelPatch(level, size_px, round(size_px * downs[level]))


def level_patches(export: Export, tool: str) -> tuple[LevelPatch, Patches]:
    """Return the patch, and which of the slide have enough tissue.

    Raises:
        SlideError: OpenSlide does not read the slide, whose levels these are; `tool` has no other way.
    """
    if not export.reader.vendor:
        raise SlideError(
            f"{export.reader.path} is read by {export.reader.library}, and {tool} opens slides with OpenSlide only; "
            "convert it to a tiled pyramidal TIFF"
        )
    patch = level_patch(export)
    size = patch.level0_px, patch.level0_px
    return patch, find_patches(export.outlines, export.reader.level0_shape, size, export.request.min_tissue)
