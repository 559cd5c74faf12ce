"""What is handed on, and to which tools."""

import math
from dataclasses import dataclass

from gigaslide.errors import SlideError
from gigaslide.masks.outlines import Outlines
from gigaslide.slides.levels import LEVEL_TOLERANCE
from gigaslide.slides.reader import SlideReader


@dataclass(frozen=True)
class PatchRequest:
    """Which patches are wanted.

    A patch is `patch_px` pixels high and wide, of `patch_mpp_um_per_px`; None: of the size the mask was predicted at.
    It is taken when tissue covers at least `min_tissue` of it, and some of it.
    """

    patch_px: int = 256
    patch_mpp_um_per_px: float | None = None
    min_tissue: float = 0.25


@dataclass(frozen=True)
class Export:
    """A slide to hand on: its mask's outlines, on the grid of `reader`, and the patches that are wanted.

    `slide_id` is the slide's name in the tools, `mask_mpp_um_per_px` the size the mask was predicted at, None where
    that was the slide's own full resolution.
    """

    reader: SlideReader
    outlines: Outlines
    slide_id: str
    request: PatchRequest
    mask_mpp_um_per_px: float | None = None

    @property
    def patch_mpp_um_per_px(self) -> float | None:
        """Pixel size of the patches, None where it is that of level 0.

        Raises:
            SlideError: that is asked for of a slide that does not say how large its pixels are, or has larger ones.
        """
        level0, path = self.reader.resolution.mpp_um_per_px, self.reader.path
        asked = self.request.patch_mpp_um_per_px
        wanted = self.mask_mpp_um_per_px if asked is None else asked
        if wanted is None:
            return None
        if level0 is None:
            if asked is None:
                return None
            raise SlideError(
                f"{path} does not say how large its pixels are, so there are no patches of {asked:g} um per px; give "
                "its value in the mpp column of a table, or leave --patch-mpp out"
            )
        if wanted < max(level0) * (1 - LEVEL_TOLERANCE):
            if asked is None:
                return None
            raise SlideError(
                f"{path} has {max(level0):.4g} um per px at full resolution, coarser than patches of {asked:g}; give "
                "that or more as --patch-mpp"
            )
        return wanted

    @property
    def level0_px_per_patch_px(self) -> float:
        """Pixels of level 0 to a pixel of a patch, exactly 1 where they are of one size within 1 %."""
        wanted, level0 = self.patch_mpp_um_per_px, self.reader.resolution.mpp_um_per_px
        if wanted is None or level0 is None:
            return 1.0
        scale = wanted / math.sqrt(math.prod(level0))
        return 1.0 if abs(scale - 1) <= LEVEL_TOLERANCE else scale
