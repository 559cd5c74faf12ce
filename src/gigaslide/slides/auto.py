"""Tissue by the classical method: saturation, blur, Otsu's threshold, clean-up.

Stain is coloured and glass is not, so the saturation of HSV separates them (as in HistoQC and CLAM), with the
threshold of Otsu (IEEE Trans. SMC 9, 1979, 62-66) between the two.

* Below half of full brightness the saturation is taken relative to that half, so that the noise of
  black (pen, slide edge, an unscanned frame) does not count as colour.
* The threshold is never below 0.03: in a picture of nothing but glass Otsu would split the noise.
* Specks below the area of some cells are removed, holes up to that size are filled.

Known shortfalls: coloured pen counts as tissue, fat and very pale tissue as glass; a picture without any
glass is split all the same.
"""

import numpy as np

from gigaslide.slides.arrays import Bytes, Flags, Floats

OVERVIEW_UM_PER_PX = 2.0  # the resolution the method is meant for
OVERVIEW_DOWN_SCALE = 4  # ... and what is taken when the slide does not say how large its pixels are
_BLUR_UM = 6.0
_DARKEST = 128
_LOWEST_THRESHOLD = 0.03
_SMALLEST_UM2 = 5000.0


def saturation(rgb: Bytes) -> Floats:
    """Return the saturation of HSV, 0 to 1, capped for dark pixels: float32 (y, x) of uint8 (y, x, 3)."""
    high, low = rgb.max(axis=-1), rgb.min(axis=-1)
    result: Floats = np.divide(high - low, np.maximum(high, _DARKEST), dtype=np.float32)
    return result


def auto_mask(overview_rgb: Bytes, mpp_um_per_px: float | None) -> Flags:
    """Find the tissue in an overview of a slide.

    Args:
        overview_rgb: uint8 (y, x, 3), at about 2 um per px.
        mpp_um_per_px: its pixel size; None is taken as 2.

    Returns:
        bool (y, x), True for tissue; all False for a picture of one colour or of glass alone.
    """
    # Imported here: every process that reads slides would wait for them, and few need them.
    import scipy.ndimage
    from skimage.filters import threshold_otsu
    from skimage.morphology import remove_small_holes, remove_small_objects

    mpp = mpp_um_per_px or OVERVIEW_UM_PER_PX
    blurred = scipy.ndimage.gaussian_filter(saturation(overview_rgb), _BLUR_UM / mpp, mode="nearest")
    if np.ptp(blurred) == 0:
        return np.zeros(blurred.shape, bool)
    mask = blurred > max(float(threshold_otsu(blurred)), _LOWEST_THRESHOLD)
    smallest_px = max(1, round(_SMALLEST_UM2 / mpp**2))
    mask = remove_small_objects(mask, max_size=smallest_px)
    return np.asarray(remove_small_holes(mask, max_size=smallest_px), bool)
