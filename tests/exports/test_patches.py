"""The grid of patches against the same mask blown up until every edge falls between whole pixels."""

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.exports import patches
from gigaslide.exports.patches import Cells, find_patches, tissue_shares
from gigaslide.masks.outlines import trace


def brute_force(mask, level0_shape, patch, min_tissue):
    """Yield (row, column, share) of each patch, in exact fractions.

    Pixels of the mask and patches both are whole numbers of sub-pixels once each axis is cut finely enough.
    """
    fine = []
    for size, full, px in zip(mask.shape, level0_shape, patch, strict=True):
        step = Fraction(size, full) * px  # px of the mask
        fine.append((step.denominator, step.numerator, int(full // px)))
    (fine_y, high, rows), (fine_x, wide, columns) = fine
    large = mask.repeat(fine_y, axis=0).repeat(fine_x, axis=1)
    for row in range(rows):
        for column in range(columns):
            part = large[row * high : (row + 1) * high, column * wide : (column + 1) * wide]
            assert part.shape == (high, wide)  # within the slide
            share = Fraction(int(part.sum()), high * wide)
            if share > 0 and share >= min_tissue:
                yield row, column, share


@st.composite
def cases(draw):
    shape = draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    seed, density = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([0.05, 0.5, 0.95]))
    mask = np.random.default_rng(seed).random(shape) < density
    level0 = tuple(size * draw(st.integers(1, 3)) + draw(st.integers(0, 2)) for size in shape)
    patch = tuple(Fraction(draw(st.integers(1, 20)), draw(st.sampled_from([1, 1, 2, 3]))) for _ in shape)
    return mask, level0, patch, draw(st.sampled_from([0, Fraction(1, 4), Fraction(1, 2), 1]))


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(1, 9))
def test_patches_are_those_of_brute_force(case, band_rows):
    mask, level0, patch, min_tissue = case
    old, patches._BAND_ROWS = patches._BAND_ROWS, band_rows
    try:
        found = find_patches(trace(mask), level0, patch, float(min_tissue))
    finally:
        patches._BAND_ROWS = old
    expected = list(brute_force(mask, level0, patch, min_tissue))
    assert found.cells.tolist() == [[row, column] for row, column, _ in expected]
    assert found.tissue.tolist() == [float(share) for _, _, share in expected]  # to the last bit


def test_a_patch_with_just_the_share_is_in():
    mask = np.zeros((10, 10), bool)
    mask[0, :1] = True
    for share, count in ((0.01, 1), (math.nextafter(0.01, 1), 0), (0.0, 1)):
        assert len(find_patches(trace(mask), (30, 30), (30, 30), share)) == count


def test_without_room_or_tissue_there_is_no_patch():
    full = trace(np.ones((20, 20), bool))
    for patch in ((21, 5), (5, 21)):
        assert find_patches(full, (20, 20), patch, 0.0).cells.shape == (0, 2)
    assert len(find_patches(full, (20, 20), (20, 20), 1.0)) == 1
    assert len(find_patches(trace(np.zeros((20, 20), bool)), (20, 20), (5, 5), 0.0)) == 0
    with pytest.raises(ValueError, match="share"):
        find_patches(full, (20, 20), (5, 5), 1.5)
    with pytest.raises(ValueError, match="cells lie within 20 px"):
        next(tissue_shares(full, Cells(Fraction(5), 5), Cells(Fraction(5), 4)))


def test_numbers_above_64_bits_are_right_too():
    mask = np.zeros((7, 11), bool)
    mask[:3, 2:9] = True
    # In px of the mask: one patch 7 high less a bit, and two 5.5 wide less a bit.
    level0, patch = (2**31 - 1, 2**31 - 19), (2**31 - 2, 2**30 - 10)
    high, wide = Fraction(7, level0[0]) * patch[0], Fraction(11, level0[1]) * patch[1]
    assert high.numerator * wide.numerator > 2**63
    found = find_patches(trace(mask), level0, patch, 0.0)
    shares = [3 * (wide - 2) / (high * wide), 3 * (9 - wide) / (high * wide)]
    assert found.cells.tolist() == [[0, 0], [0, 1]]
    assert found.tissue.tolist() == [float(share) for share in shares]


def test_memory_is_that_of_a_band():
    """A slide of 100 000 x 100 000 px: no more than bands of it are held."""
    shape = (100_000, 100_000)
    reads = []

    class Large:
        def __init__(self):
            self.shape = shape

        def read_rows(self, start, stop):
            reads.append((start, stop))
            return np.ones((stop - start, shape[1]), bool)

    tracemalloc.start()
    try:
        # Three rows of patches are as good as all.
        found = list(tissue_shares(Large(), Cells(Fraction(256), 3), Cells(Fraction(256), 390)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [row.tolist() for row in found] == [[1.0] * 390] * 3
    assert all(stop - start <= 255 for start, stop in reads)
    # Two bands (the old one goes when the new one is there) and some arrays of 8 bytes a column.
    assert peak < 2 * 255 * shape[1] + 12 * 8 * shape[1]
