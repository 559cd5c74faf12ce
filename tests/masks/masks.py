"""Masks to try things on."""

import numpy as np
from hypothesis import strategies as st
from scipy import ndimage


@st.composite
def noise_masks(draw, longest_px=60):
    """Noise at every scale from single pixels to blobs, bool (y, x): pieces in holes of pieces, touching at corners."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(st.integers(3, longest_px)), draw(st.integers(3, longest_px))
    noise = ndimage.gaussian_filter(random.standard_normal(shape), draw(st.sampled_from([0, 0.5, 0.8, 1.5, 3])))
    return noise > np.quantile(noise, draw(st.floats(0.2, 0.8)))


def ring(radius, inner):
    """A ring in a square of 41 px, bool (y, x)."""
    y, x = np.mgrid[-20:21, -20:21]
    return (np.hypot(y, x) < radius) & (np.hypot(y, x) >= inner)
