"""Every kind of slide file through `gigaslide add` and `gigaslide prepare`: the pixels that went in are in the store.

All kinds are one folder: one `add` and one `prepare`, as a user types them, then a test per kind.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image
from pydicom.uid import JPEG2000, JPEG2000Lossless, JPEGBaseline8Bit

from gigaslide.geometry import Window, grid
from gigaslide.slides.cohort import read_cohort
from gigaslide.slides.store import Store, open_split
from tests.slides.dicom import write_dicom
from tests.slides.files import HALF_UM, damage_tile, noise, write_slide
from tests.slides.mirax import write_mrxs
from tests.stages.project import PARAMS, gigaslide

TILE_PX = 64
SHAPE = (200, 270)
RGB = noise(SHAPE)
# What is drawn on every slide, as corners in whole pixels: rows 40 to 150, columns 50 to 201.
TISSUE = Window.of(40, 50, 110, 151)
# Photos of an MRXS that were not taken: the borders, and one in the middle.
MRXS_TILES = (6, 8)
MISSING = {(y, x) for y in range(6) for x in range(8) if y < 1 or y > 4 or x < 2 or x > 6} | {(3, 4)}
MRXS_RGB = noise((6 * TILE_PX, 8 * TILE_PX), 3)


def jpeg(tile: np.ndarray) -> bytes:
    """Without subsampling of colour, every coefficient rounded to a whole number."""
    return imagecodecs.jpeg8_encode(tile, 100, colorspace="rgb", outcolorspace="ycbcr", subsampling="444")


def jpeg_422(tile: np.ndarray) -> bytes:
    return imagecodecs.jpeg8_encode(tile, 90, colorspace="rgb", outcolorspace="ycbcr", subsampling="422")


def jpeg_2000(tile: np.ndarray) -> bytes:
    return imagecodecs.jpeg2k_encode(tile, reversible=True, codecformat="J2K", mct=True)


def jpeg_2000_lossy(tile: np.ndarray) -> bytes:
    return imagecodecs.jpeg2k_encode(tile, level=45, codecformat="J2K", mct=True)


def to_ycbcr(rgb: np.ndarray) -> np.ndarray:
    """JFIF's colours, rounded: what is in a tile of Aperio's 33003."""
    red, green, blue = (rgb[..., channel].astype(np.float64) for channel in range(3))
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    both = np.stack([luma, 128 + (blue - luma) / 1.772, 128 + (red - luma) / 1.402], axis=-1)
    return np.clip(np.rint(both), 0, 255).astype(np.uint8)


def aperio_33003(tile: np.ndarray) -> bytes:
    return imagecodecs.jpeg2k_encode(to_ycbcr(tile), reversible=True, codecformat="J2K", mct=False)


def padded_tiles(rgb: np.ndarray) -> list[tuple[Window, np.ndarray]]:
    tiles = []
    for window in grid(rgb.shape[:2], (TILE_PX, TILE_PX)):
        height, width = window.shape
        tile = np.pad(rgb[window.slices], [(0, TILE_PX - height), (0, TILE_PX - width), (0, 0)])
        tiles.append((window, np.ascontiguousarray(tile)))
    return tiles


def decoded(
    rgb: np.ndarray, encode: Callable[[np.ndarray], bytes], decode: Callable[[bytes], np.ndarray]
) -> np.ndarray:
    """Each tile through the codec, on its own, put where it was."""
    result = np.zeros_like(rgb)
    for window, tile in padded_tiles(rgb):
        result[window.slices] = decode(encode(tile))[: window.shape[0], : window.shape[1]]
    return result


def aperio(rgb: np.ndarray) -> str:
    height, width = rgb.shape[:2]
    return f"Aperio Image Library v11.2.1\r\n{width}x{height} [0,0 {width}x{height}] (64x64)|AppMag = 20|MPP = 0.4990"


def tiff(path: Path, *levels: np.ndarray, encode=None, **how) -> Path:
    """Write levels one after the other; `encode` makes the tiles, `compression` then only names what it made."""
    description = how.pop("description", None)
    how = {"photometric": "rgb", "metadata": None, **HALF_UM, **how}
    with tifffile.TiffWriter(path, bigtiff=how.pop("bigtiff", False), byteorder=how.pop("byteorder", None)) as writer:
        for number, level in enumerate(levels):
            more = {"subfiletype": 1 if number else 0, "description": description}
            if encode is None:
                writer.write(level, **how, **more)
            else:
                tiles = iter([encode(tile) for _, tile in padded_tiles(level)])
                writer.write(tiles, shape=level.shape, dtype=np.uint8, tile=(TILE_PX, TILE_PX), **how, **more)
    return path


@dataclass(frozen=True)
class Kind:
    """How a slide is written, and what its store has to hold.

    `expected`: what the codec gives, where it loses some; else `rgb`. `near`: how far that may be from what went in.
    `invalid`: bool (y, x). `drawn`: where TISSUE lies on the slide. `mpp_um_per_px`: None where it is not known.
    """

    write: Callable[[Path], object]
    reader: str
    ending: str = ".tif"
    rgb: np.ndarray = field(default_factory=lambda: RGB)
    expected: Callable[[], np.ndarray] | None = None
    near: int | None = 0
    invalid: np.ndarray | None = None
    drawn: Window = TISSUE
    mpp_um_per_px: float | None = 0.5
    mpp_source: str = "openslide"


PYRAMID = [noise(shape, seed) for seed, shape in enumerate([(1001, 777), (250, 194), (62, 48)])]
HALVES = [RGB, RGB[::2, ::2], RGB[::4, ::4]]
ALPHA = np.full((*SHAPE, 1), 255, np.uint8)
ALPHA[:60, :70] = 0
NOT_SCANNED = np.kron([[(y, x) in MISSING for x in range(8)] for y in range(6)], np.ones((TILE_PX,) * 2)).astype(bool)
CORRUPT = np.zeros((1001, 777), bool)
CORRUPT[64:128, 128:192] = True  # the 16th tile of rows of 13

# Quantised in steps of 1, each of a block's 64 coefficients is off by at most 0.5, so the block, of 64 values, by at
# most 4 in the 2-norm, and no value by more (the transform is orthonormal); rounding to whole numbers adds 0.5 before
# and 0.5 after. Blue is Y + 1.772 Cb: 5 * 2.772 + 0.5.
JPEG_NEAR = 14
# Y, Cb and Cr are each off by 0.5: 0.5 * 2.772 in blue, and 0.5 for rounding that, and one more where a table of whole
# numbers stands for 1.772.
YCBCR_NEAR = 2

JPEG_2K = {"compression": 34712, "encode": jpeg_2000}
of_jpeg = lambda rgb: decoded(rgb, jpeg, imagecodecs.jpeg8_decode)  # noqa: E731
of_422 = lambda rgb: decoded(rgb, jpeg_422, imagecodecs.jpeg8_decode)  # noqa: E731
of_lossy_2000 = lambda rgb: decoded(rgb, jpeg_2000_lossy, imagecodecs.jpeg2k_decode)  # noqa: E731
JPEG = {"compression": "jpeg", "encode": jpeg, "photometric": "ycbcr", "subsampling": (1, 1)}
TILED = {"tile": (TILE_PX, TILE_PX)}

KINDS = {
    "tiled-raw": Kind(lambda p: tiff(p, RGB, **TILED), "openslide"),
    "tiled-lzw": Kind(lambda p: tiff(p, *HALVES, compression="lzw", **TILED), "openslide"),
    "tiled-deflate-odd-pyramid": Kind(lambda p: write_slide(p, *PYRAMID), "openslide", rgb=PYRAMID[0]),
    "tiled-jpeg": Kind(lambda p: tiff(p, *HALVES, **JPEG), "openslide", expected=lambda: of_jpeg(RGB), near=JPEG_NEAR),
    "tiled-jpeg-422": Kind(
        lambda p: tiff(p, RGB, **JPEG | {"encode": jpeg_422, "subsampling": (2, 1)}),
        "openslide",
        expected=lambda: of_422(RGB),
        near=None,
    ),
    "tiled-jpeg-2000": Kind(lambda p: tiff(p, *HALVES, **JPEG_2K), "tifffile", mpp_source="tiff tags"),
    "striped-raw": Kind(lambda p: tiff(p, RGB, rowsperstrip=7), "tifffile", mpp_source="tiff tags"),
    "striped-lzw": Kind(lambda p: tiff(p, RGB, rowsperstrip=16, compression="lzw"), "tifffile", mpp_source="tiff tags"),
    "striped-deflate": Kind(
        lambda p: tiff(p, RGB, rowsperstrip=33, compression="deflate", predictor=True),
        "tifffile",
        mpp_source="tiff tags",
    ),
    "big-and-big-endian": Kind(lambda p: tiff(p, *HALVES, bigtiff=True, byteorder=">", **TILED), "openslide"),
    "16-bit": Kind(
        lambda p: tiff(p, RGB.astype(np.uint16) * 257, compression="deflate", **TILED),
        "tifffile",
        mpp_source="tiff tags",
    ),
    "aperio-jpeg": Kind(
        lambda p: tiff(p, *HALVES, **JPEG, description=aperio(RGB)),
        "openslide",
        ".svs",
        expected=lambda: of_jpeg(RGB),
        near=JPEG_NEAR,
        mpp_um_per_px=0.499,
    ),
    "aperio-33003": Kind(
        lambda p: tiff(p, *HALVES, compression=33003, encode=aperio_33003, description=aperio(RGB)),
        "openslide",
        ".svs",
        near=YCBCR_NEAR,
        mpp_um_per_px=0.499,
    ),
    "aperio-33005": Kind(
        lambda p: tiff(p, *HALVES, compression=33005, encode=jpeg_2000, description=aperio(RGB)),
        "openslide",
        ".svs",
        mpp_um_per_px=0.499,
    ),
    "dicom-raw": Kind(lambda p: write_dicom(p, *HALVES), "openslide", ""),
    "dicom-jpeg": Kind(
        lambda p: write_dicom(p, *HALVES, encode=jpeg_422, syntax=JPEGBaseline8Bit, photometric="YBR_FULL_422"),
        "openslide",
        "",
        expected=lambda: of_422(RGB),
        near=None,
    ),
    "dicom-jpeg-2000-lossless": Kind(
        lambda p: write_dicom(p, *HALVES, encode=jpeg_2000, syntax=JPEG2000Lossless, photometric="YBR_RCT"),
        "openslide",
        "",
    ),
    "dicom-jpeg-2000": Kind(
        lambda p: write_dicom(p, *HALVES, encode=jpeg_2000_lossy, syntax=JPEG2000, photometric="YBR_ICT"),
        "openslide",
        "",
        expected=lambda: of_lossy_2000(RGB),
        near=None,
    ),
    "mrxs": Kind(
        lambda p: write_mrxs(p, [MRXS_RGB, MRXS_RGB[::2, ::2]], TILE_PX, MISSING, imagecodecs.png_encode, "PNG"),
        "openslide",
        ".mrxs",
        rgb=MRXS_RGB,
        invalid=NOT_SCANNED,
        drawn=TISSUE.shift(1 * TILE_PX, 2 * TILE_PX),  # QuPath counts from the corner of what was scanned
    ),
    "mrxs-jpeg": Kind(
        lambda p: write_mrxs(p, [MRXS_RGB, MRXS_RGB[::2, ::2]], TILE_PX, MISSING, jpeg, "JPEG"),
        "openslide",
        ".mrxs",
        rgb=MRXS_RGB,
        expected=lambda: of_jpeg(MRXS_RGB),
        near=JPEG_NEAR,
        invalid=NOT_SCANNED,
        drawn=TISSUE.shift(1 * TILE_PX, 2 * TILE_PX),
    ),
    "alpha": Kind(
        lambda p: tiff(p, np.dstack([RGB, ALPHA]), extrasamples=["unassalpha"], **TILED),
        "tifffile",
        invalid=ALPHA[..., 0] == 0,
        mpp_source="tiff tags",
    ),
    "not-scanned": Kind(
        lambda p: write_slide(p, RGB, missing=[1, 7]),
        "openslide",
        invalid=np.isin(np.add.outer(np.arange(200) // 64 * 5, np.arange(270) // 64), [1, 7]),
    ),
    "corrupt-tile": Kind(
        lambda p: damage_tile(write_slide(p, *PYRAMID), 15), "openslide", rgb=PYRAMID[0], invalid=CORRUPT
    ),
    "no-tags": Kind(
        lambda p: write_slide(p, RGB, resolution=(1, 1), resolutionunit="NONE"),
        "openslide",
        mpp_um_per_px=None,
        mpp_source="unknown",
    ),
    "ome": Kind(
        lambda p: tifffile.imwrite(
            p,
            RGB.transpose(2, 0, 1),
            photometric="minisblack",
            metadata={
                "axes": "CYX",
                "PhysicalSizeX": 0.5,
                "PhysicalSizeXUnit": "µm",
                "PhysicalSizeY": 0.5,
                "PhysicalSizeYUnit": "µm",
            },
        ),
        "tifffile",
        ".ome.tif",
        mpp_source="ome",
    ),
    "png": Kind(lambda p: Image.fromarray(RGB).save(p), "pillow", ".png", mpp_um_per_px=None, mpp_source="unknown"),
}


GIT_IGNORE = Path(__file__).parents[2] / ".gitignore"


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """All kinds in `in/`, added and prepared."""
    folder = tmp_path_factory.mktemp("formats") / "project"
    slides, drawn = folder.parent / "in", folder.parent / "drawn"
    for path in (folder, slides, drawn):
        path.mkdir()
    y, x = TISSUE.y, TISSUE.x
    ring = [(x.start, y.start), (x.stop, y.start), (x.stop, y.stop), (x.start, y.stop), (x.start, y.start)]
    feature = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}}
    text = json.dumps([feature | {"properties": {"classification": {"name": "Tissue"}}}])
    for name, kind in KINDS.items():
        path = slides / f"{name}{kind.ending}"
        kind.write(path)
        (drawn / f"{path.name.removesuffix('.tif').removesuffix(kind.ending)}.geojson").write_text(text)
    shutil.copy(PARAMS, folder / "params.yaml")
    shutil.copy(GIT_IGNORE, folder / ".gitignore")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    subprocess.run([sys.executable, "-m", "dvc", "init", "--quiet"], cwd=folder, check=True, env=environment)
    done = gigaslide(folder, "add", "../in", "../in/png.png", "--annotations", "../drawn", "--use")
    assert done.returncode == 0, done.stdout + done.stderr
    done = gigaslide(folder, "prepare")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def stores(project) -> dict[str, Store]:
    found = [store for split in ("train", "validation", "test") for store in open_split(project / "data/stores", split)]
    return {store.name.removesuffix(".ome"): store for store in found}


def test_every_kind_is_in_the_cohort_and_has_a_store(project, stores):
    rows = read_cohort(project / "data/slides/cohort.csv")
    assert {row.name.removesuffix(".ome") for row in rows} == set(KINDS) == set(stores)
    assert all(row.annotation is not None for row in rows)


@pytest.mark.parametrize("name", KINDS)
def test_the_store_holds_the_pixels_that_went_in(stores, name):
    kind, store = KINDS[name], stores[name]
    shape = kind.rgb.shape[:2]
    assert store.shape == shape
    invalid = np.zeros(shape, bool) if kind.invalid is None else kind.invalid
    image, mask = (read(Window.of(0, 0, *shape)) for read in (store.read_image, store.read_mask))
    expected = kind.rgb if kind.expected is None else kind.expected()
    if kind.expected is not None or kind.near == 0:
        np.testing.assert_array_equal(image[~invalid], expected[~invalid])
    if kind.near is not None:
        difference = np.abs(image[~invalid].astype(int) - kind.rgb[~invalid])
        assert difference.max() <= kind.near
    assert (image[invalid] == 255).all()
    labels = np.zeros(shape, np.uint8)
    labels[kind.drawn.slices] = 1
    labels[invalid] = 255
    np.testing.assert_array_equal(mask, labels)


@pytest.mark.parametrize("name", KINDS)
def test_the_store_says_how_it_was_read_and_how_large_a_pixel_is(stores, name):
    kind, about = KINDS[name], stores[name].attributes
    assert about["reader"].split()[0] == kind.reader
    assert about["mpp_source"] == kind.mpp_source
    assert about["level0_shape_px"] == list(kind.rgb.shape[:2])
    if kind.mpp_um_per_px is None:
        assert about["mpp_um_per_px"] is None
    else:
        assert about["mpp_um_per_px"] == pytest.approx([kind.mpp_um_per_px] * 2, rel=1e-9)
    lost = 64 * 64 if name == "corrupt-tile" else 0
    assert (about["corrupt_px"], about["corrupt_tiles"]) == (lost, lost // 64**2)
