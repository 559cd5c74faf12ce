"""What a pixel is in a set of stores; and that two scanners' slides of one tissue become the same store."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.config import Labels, Prepare
from gigaslide.errors import GigaslideWarning
from gigaslide.geometry import Window
from gigaslide.slides.cohort import CohortRow
from gigaslide.slides.preparation import Job, prepare_slide
from gigaslide.slides.store import Store
from gigaslide.slides.working_resolution import table, working_resolution
from tests.slides.files import write_slide


def store(mpp, source="openslide", name="a"):
    mpp = None if mpp is None else [mpp, mpp]
    return Store(Path("a.zarr"), {"name": name, "mpp_um_per_px": mpp, "mpp_source": source})


def test_the_common_size_is_the_one_that_was_asked_for_else_their_mean():
    stores = [store(0.499), store(0.505, "tiff tags"), store(0.5)]
    found = working_resolution(stores, 0.5)
    assert (found.mpp_um_per_px, found.differs) == (0.5, False)
    assert found.range_um_per_px == (0.499, 0.505)
    assert dict(found.sources) == {"openslide": 2, "tiff tags": 1}
    assert working_resolution(stores, None).mpp_um_per_px == pytest.approx((0.499 * 0.505 * 0.5) ** (1 / 3))


@pytest.mark.parametrize(
    ("sizes", "differs", "bounds"),
    [
        ([0.25, 0.5], True, (0.25, 0.5)),
        ([0.25, None, 0.5], True, (0.25, 0.5)),
        ([0.25, None], False, (0.25, 0.25)),
        ([None, None], False, None),
        ([], False, None),
    ],
)
def test_there_is_no_common_size_where_they_differ_or_one_does_not_say(sizes, differs, bounds):
    found = working_resolution(map(store, sizes), None)
    assert (found.mpp_um_per_px, found.differs, found.range_um_per_px) == (None, differs, bounds)


@given(st.floats(0.05, 20), st.floats(0.99, 1.01), st.floats(0.99, 1.01))
def test_levels_that_are_taken_as_they_are_do_not_differ(mpp, one, other):
    found = working_resolution([store(mpp * one), store(mpp * other)], mpp)
    assert (found.mpp_um_per_px, found.differs) == (mpp, False)


def test_what_differs_is_warned_of_in_um():
    with pytest.warns(
        GigaslideWarning, match=r"0\.25 to 0\.5 um, so that a kernel of 11 px covers 2\.75 um on one and"
    ):
        working_resolution([store(0.25), store(0.5)], None).warn_if_it_differs(11)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        working_resolution([store(0.5), store(0.5)], None).warn_if_it_differs(11)
        working_resolution([], None).warn_if_it_differs(11)


def test_a_row_per_slide():
    rows = table({"train": [store(0.5)], "validation": [store(None, "unknown", "b")]})
    assert rows == [
        {"slide": "a", "split": "train", "mpp_um_per_px": 0.5, "mpp_source": "openslide"},
        {"slide": "b", "split": "validation", "mpp_um_per_px": None, "mpp_source": "unknown"},
    ]


EXTENT_UM = (150, 200)
WAVES = np.random.default_rng(5).uniform([0.02, 0, 0], [0.3, 2 * np.pi, 2 * np.pi], (12, 3))
TISSUE_UM = Window.of(30, 40, 70, 110)


def scanned(mpp_um_per_px):
    """The tissue as a scanner of that pixel size sees it: waves of 3 to 50 um, integrated over each pixel, rounded."""
    edges_y, edges_x = (np.arange(round(um / mpp_um_per_px) + 1) * mpp_um_per_px for um in EXTENT_UM)
    channels = np.zeros((3, len(edges_y) - 1, len(edges_x) - 1))
    for number, (per_um, direction, phase) in enumerate(WAVES):
        y, x = 2 * np.pi * per_um * np.sin(direction), 2 * np.pi * per_um * np.cos(direction)
        integral = np.exp(1j * (y * edges_y[:, None] + x * edges_x[None] + phase)) / (1j * y * 1j * x)
        mean = np.diff(np.diff(integral, axis=0), axis=1).real / mpp_um_per_px**2
        channels[number % 3] += mean
    return np.rint(128 + 120 / 4 * channels).astype(np.uint8).transpose(1, 2, 0)


def prepared(folder, mpp_um_per_px):
    rgb = scanned(mpp_um_per_px)
    per_cm = round(10_000 / mpp_um_per_px)
    slide = write_slide(folder / f"{per_cm}.tif", rgb, resolution=(per_cm, per_cm), resolutionunit="CENTIMETER")
    mask = np.zeros(rgb.shape[:2], np.uint8)
    mask[
        tuple(slice(round(i.start / mpp_um_per_px), round(i.stop / mpp_um_per_px)) for i in (TISSUE_UM.y, TISSUE_UM.x))
    ] = 1
    tifffile.imwrite(folder / f"{per_cm}-mask.tif", mask)
    labels = Labels(tissue_classes=["Tissue"], ignore_classes=[], without_annotation="error")
    settings = Prepare(region_px="whole", window_px=512, workers=1)
    row = CohortRow("slide", slide, folder / f"{per_cm}-mask.tif", "train", None, None)
    return prepare_slide(Job(row, labels, settings, 0.5, folder / f"{per_cm}.zarr"), lambda share: None).store


def test_two_scanners_slides_of_one_tissue_are_the_same_store_at_one_resolution(tmp_path):
    fine, coarse = prepared(tmp_path, 0.25), prepared(tmp_path, 0.5)
    assert fine.attributes["level0_shape_px"] == [600, 800]
    assert fine.shape == coarse.shape == (300, 400)
    assert fine.attributes["mpp_um_per_px"] == coarse.attributes["mpp_um_per_px"] == [0.5, 0.5]
    assert working_resolution([fine, coarse], 0.5).mpp_um_per_px == 0.5
    whole = Window.of(0, 0, 300, 400)
    difference = np.abs(fine.read_image(whole).astype(int) - coarse.read_image(whole))
    # Rounded to whole numbers: the fine pixels by 0.5 each, so their mean by 0.5, that mean by 0.5, the coarse pixel
    # by 0.5; whole numbers that differ by at most 1.5 differ by at most 1.
    assert difference.max() <= 1
    assert np.ptp(coarse.read_image(whole)) > 150  # there is something to differ in
    np.testing.assert_array_equal(fine.read_mask(whole), coarse.read_mask(whole))
