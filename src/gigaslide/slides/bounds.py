"""Where on a slide the scanned part begins: MRXS, SCN and others have wide borders that were never scanned.

OpenSlide gives the slide with its borders, and the rectangle of the scanned part as `openslide.bounds-*`. QuPath shows
that rectangle only (`OpenslideImageServer`), so the coordinates of what is drawn there start at its corner: read on the
whole slide they would lie too far up and left (qupath#820, #1278). ASAP and ImageScope show, and count from, the whole.
"""

from collections.abc import Mapping


def bounds_origin(properties: Mapping[str, str], level0_shape: tuple[int, int]) -> tuple[int, int]:
    """Return row and column of level 0 at which the scanned part begins.

    (0, 0) where the slide does not say, or what it says reaches beyond it: QuPath takes the whole slide then as well.
    """
    try:
        y, x, height, width = (int(properties[f"openslide.bounds-{name}"]) for name in ("y", "x", "height", "width"))
    except (KeyError, ValueError):
        return 0, 0
    on_slide = min(y, x) >= 0 and y + height <= level0_shape[0] and x + width <= level0_shape[1]
    return (y, x) if on_slide and min(height, width) > 0 else (0, 0)
