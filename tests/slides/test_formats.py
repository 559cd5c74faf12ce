"""Every kind of slide file through `prepare_slide` into a store with the right pixels."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from gigaslide.config import Labels, Prepare
from gigaslide.errors import SlideError
from gigaslide.geometry import Window
from gigaslide.slides.cohort import CohortRow
from gigaslide.slides.preparation import Job, prepare_slide
from gigaslide.slides.reader import open_slide
from tests.slides.dicom import write_dicom
from tests.slides.files import damage_tile, noise, write_slide

SHAPE = (150, 210)
RGB = noise(SHAPE)
ALPHA = np.full((*SHAPE, 1), 255, np.uint8)
ALPHA[:30, :40] = 0
LABELS = Labels(tissue_classes=["Tissue"], ignore_classes=[], without_annotation="error")
PREPARE = Prepare(region_px="whole", window_px=512, workers=1)


def tiff(**how):
    def make(folder: Path):
        pixels = how.pop("pixels", RGB)
        tifffile.imwrite(folder / "slide.tif", pixels, photometric="rgb", metadata=None, **how)
        return folder / "slide.tif"

    return make


def ome(folder):
    tifffile.imwrite(folder / "s.ome.tif", RGB.transpose(2, 0, 1), photometric="minisblack", metadata={"axes": "CYX"})
    return folder / "s.ome.tif"


def picture(name):
    def make(folder):
        Image.fromarray(RGB).save(folder / name)
        return folder / name

    return make


# name: how it is written, which library reads it, and what is not valid.
KINDS = {
    "tiled, deflate": (lambda folder: write_slide(folder / "slide.tif", RGB), "openslide", None),
    "tiled, jpeg": (tiff(tile=(64, 64), compression="jpeg"), "openslide", None),
    "striped, lzw": (tiff(compression="lzw"), "tifffile", None),
    "striped, jpeg": (tiff(compression="jpeg", rowsperstrip=16), "tifffile", None),
    "jpeg 2000": (tiff(tile=(64, 64), compression="jpeg2000"), "tifffile", None),
    "16 bits": (tiff(tile=(64, 64), pixels=RGB.astype(np.uint16) * 257), "tifffile", None),
    "zstd, planar": (
        tiff(pixels=RGB.transpose(2, 0, 1), planarconfig="separate", compression="zstd"),
        "tifffile",
        None,
    ),
    "alpha": (
        tiff(pixels=np.dstack([RGB, ALPHA]), extrasamples=["unassalpha"], tile=(64, 64)),
        "tifffile",
        ALPHA[..., 0] == 0,
    ),
    "ome, channels first": (ome, "tifffile", None),
    "png": (picture("slide.png"), "pillow", None),
    "jpeg": (picture("slide.jpg"), "pillow", None),
    "dicom": (lambda folder: write_dicom(folder / "slide", RGB, RGB[::2, ::2]), "openslide", None),
}
LOSSY = ("tiled, jpeg", "striped, jpeg", "jpeg 2000", "jpeg")


def job_of(slide, folder, **more):
    mask = np.zeros(SHAPE, np.uint8)
    mask[50:100, 60:160] = 1
    tifffile.imwrite(folder / "mask.tif", mask)
    return Job(
        CohortRow("slide", slide, folder / "mask.tif", "train", None, None),
        LABELS,
        PREPARE,
        None,
        folder / "slide.zarr",
        **more,
    )


def prepared(job):
    store = prepare_slide(job, lambda share: None).store
    everything = Window.of(0, 0, *store.shape)
    return store, store.read_image(everything), store.read_mask(everything)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_becomes_a_store(tmp_path, name):
    make, library, missing = KINDS[name]
    slide = make(tmp_path)
    store, image, mask = prepared(job_of(slide, tmp_path))
    expected = open_slide(slide).read(Window.of(0, 0, *SHAPE))[0] if name in LOSSY else RGB.copy()
    labels = np.zeros(SHAPE, np.uint8)
    labels[50:100, 60:160] = 1
    if missing is not None:
        expected[missing], labels[missing] = 255, 255
    np.testing.assert_array_equal(image, expected)
    np.testing.assert_array_equal(mask, labels)
    assert store.attributes["reader"].split()[0] == library
    assert (store.attributes["corrupt_tiles"], store.attributes["corrupt_px"]) == (0, 0)


DAMAGED = {
    "openslide": {"tile": (64, 64), "compression": "deflate"},
    "tifffile, tiles": {"tile": (64, 64), "compression": "zstd"},
    "tifffile, strips": {"rowsperstrip": 10, "compression": "deflate"},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_corrupt_tile_is_left_out_and_counted_up_to_a_fraction(tmp_path, name):
    slide = tiff(**DAMAGED[name])(tmp_path)
    damage_tile(slide, 1)
    lost = Window.of(0, 64, 64, 64) if "tile" in DAMAGED[name] else Window.of(10, 0, 10, SHAPE[1])
    lost_px = lost.shape[0] * lost.shape[1]
    fraction = lost_px / (SHAPE[0] * SHAPE[1])
    store, image, mask = prepared(job_of(slide, tmp_path, max_corrupt_fraction=fraction))
    expected = RGB.copy()
    expected[lost.slices] = 255
    np.testing.assert_array_equal(image, expected)
    assert (mask[lost.slices] == 255).all()
    assert (mask == 255).sum() == lost_px
    assert (store.attributes["corrupt_tiles"], store.attributes["corrupt_px"]) == (1, lost_px)
    (said,) = store.attributes["warnings"]
    assert said.startswith(f"left out as invalid: 1 corrupt tile(s), {fraction:.2%} of the pixels (")
    # A tighter limit does not accept the store that is there.
    with pytest.raises(SlideError, match=r"slide\.tif has at least 1 corrupt tile\(s\).*slides\.max_corrupt_fraction"):
        prepare_slide(job_of(slide, tmp_path, max_corrupt_fraction=fraction * 0.99), lambda share: None)
    assert not (tmp_path / "slide.zarr").exists()


@pytest.mark.parametrize("name", DAMAGED)
def test_with_no_fraction_the_first_corrupt_tile_fails_the_slide(tmp_path, name):
    slide = tiff(**DAMAGED[name])(tmp_path)
    damage_tile(slide, 1)
    with pytest.raises(SlideError, match=r"slide\.tif cannot be read at level 0"):
        prepare_slide(job_of(slide, tmp_path, max_corrupt_fraction=0.0), lambda share: None)


def test_dicom_of_implausible_colours_is_flagged(tmp_path):
    tinted = np.full((*SHAPE, 3), (255, 120, 255), np.uint8)
    store, image, _ = prepared(job_of(write_dicom(tmp_path / "slide", tinted), tmp_path))
    (said,) = store.attributes["warnings"]
    assert said.startswith("the colours of level-0.dcm are implausible: its brightest parts are not near white")
    np.testing.assert_array_equal(image, tinted)


def test_every_file_of_a_dicom_slide_makes_the_store_anew(tmp_path):
    slide = write_dicom(tmp_path / "slide", RGB, RGB[::2, ::2])
    job = job_of(slide, tmp_path)
    prepared(job)
    assert prepare_slide(job, lambda share: None).unchanged
    write_dicom(tmp_path / "slide", RGB, 255 - RGB[::2, ::2])
    assert not prepare_slide(job, lambda share: None).unchanged


@pytest.mark.slow
def test_a_wide_strip_tiff_is_read_in_bounded_memory(tmp_path):
    """30 000 px wide, one strip of 0.5 GB; the peak is that of a process that reads all of it, window by window."""
    import subprocess
    import sys

    path = tmp_path / "slide.tif"
    shape = (6000, 30000, 3)
    rows = np.memmap(tmp_path / "rows", np.uint8, "w+", shape=shape)
    rows[::7] = 99
    tifffile.imwrite(path, rows, photometric="rgb", rowsperstrip=shape[0], metadata=None)
    code = """
import sys
from pathlib import Path
from gigaslide.geometry import Window, grid
from gigaslide.slides.reader import open_slide
from tests.peak import peak_bytes
slide = open_slide(Path(sys.argv[1]))
before = peak_bytes()
total = sum(int(slide.read(window)[0].sum()) for window in grid(slide.shape, (2048, 2048)))
slide.overview(1_000_000)
print(total, peak_bytes() - before)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code, path], cwd=root, capture_output=True, text=True, check=True)
    total, more_bytes = map(int, done.stdout.split())
    assert total == -(-shape[0] // 7) * shape[1] * 3 * 99
    # The cache holds 256 MiB; a piece of 16 Mpx as stored, as read and as float32 for averaging is the rest.
    assert 100 << 20 < more_bytes < 800 << 20
