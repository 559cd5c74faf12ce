"""How slides are predicted: what a user may choose."""

from dataclasses import dataclass
from typing import Literal

Origin = Literal["bounds", "full"]


@dataclass(frozen=True)
class Request:
    """How slides are predicted; all of it is in each summary.

    `threshold` None is the network's own. `min_piece_um2` and `min_hole_um2`: smaller pieces of tissue are left out,
    smaller holes filled. `simplify_um`: how far the drawn outline may be from the mask's, 0 for not at all.
    `origin`: what the coordinates of the GeoJSON start from, the area that was scanned ("bounds", as in QuPath) or the
    whole of level 0 ("full").
    """

    mpp_um_per_px: float | None = None
    threshold: float | None = None
    min_piece_um2: float = 0.0
    min_hole_um2: float = 0.0
    simplify_um: float = 1.0
    heatmap: bool = False
    origin: Origin = "bounds"
    max_corrupt_fraction: float = 0.01
