"""A slide to hand on, without a prediction: a small file, and a mask of it that is made up."""

from pathlib import Path

import numpy as np

from gigaslide.exports.request import Export, PatchRequest
from gigaslide.masks.outlines import trace
from gigaslide.slides.reader import open_slide
from tests.slides.files import write_slide

QUARTER_UM = {"resolution": (40000, 40000), "resolutionunit": "CENTIMETER"}


def blobs(shape, seed=3):
    """Tissue in pieces of many sizes, with holes; bool (y, x)."""
    random = np.random.default_rng(seed)
    mask = np.zeros(shape, bool)
    for tissue in [True] * 12 + [False] * 8:
        y, x = random.integers(0, shape[0]), random.integers(0, shape[1])
        mask[y : y + random.integers(5, 90), x : x + random.integers(5, 90)] = tissue
    return mask


def slide(path: Path, levels, **tags) -> Path:
    """A pyramid of noise with these shapes."""
    random = np.random.default_rng(0)
    return write_slide(path, *(random.integers(0, 256, (*shape, 3), np.uint8) for shape in levels), **tags)


def export(path: Path, mask, request=None, mpp=0.5, slide_id="one") -> Export:
    """What there is to hand on of a slide file whose mask is `mask`."""
    reader = open_slide(path).at_shape(mask.shape)
    return Export(reader, trace(mask), slide_id, request or PatchRequest(), mpp)


def share(mask, level0_shape, top, left, size):
    """The share of a square of level 0 that is tissue; the mask is a whole number of times smaller."""
    k = level0_shape[0] // mask.shape[0]
    assert top % k == left % k == size % k == 0
    return mask[top // k : (top + size) // k, left // k : (left + size) // k].mean()
