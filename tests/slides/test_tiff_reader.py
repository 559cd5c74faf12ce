"""TIFFs that go through tifffile: the slide in them is found, and every window is NumPy's slice of it."""

from pathlib import Path
from unittest.mock import patch

import imagecodecs
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.errors import SlideError
from gigaslide.geometry import Window
from gigaslide.slides import reader, tiff_pages
from gigaslide.slides.damage import Damage
from gigaslide.slides.reader import open_slide
from gigaslide.slides.tiff_reader import TiffSource
from tests.slides.files import HALF_UM, damage_tile, noise

SHAPE = (150, 210)
RGB = noise(SHAPE)
WIDE = np.random.default_rng(1).integers(0, 65536, (*SHAPE, 3), np.uint16)
OPAQUE = np.full((*SHAPE, 1), 255, np.uint8)


def whole(slide):
    return slide.read(Window.of(0, 0, *slide.shape))


def to_8_bit(values, low=0, high=65535):
    return np.rint((values.clip(low, high).astype(float) - low) * 255 / (high - low)).astype(np.uint8)


def write(path, pixels, **how):
    how = {"photometric": "rgb", "metadata": None} | how
    tifffile.imwrite(path, pixels, **how)
    return path


def write_ome(path, *images, **metadata):
    """Each image: its array, the number of sub-IFDs halved one after the other, and its name."""
    with tifffile.TiffWriter(path, ome=True) as writer:
        for pixels, levels, name in images:
            about = {"axes": "YXS", "Name": name, **metadata}
            writer.write(pixels, tile=(64, 64), subifds=levels, photometric="rgb", metadata=about)
            for _ in range(levels):
                pixels = pixels[::2, ::2]
                writer.write(pixels, tile=(64, 64), subfiletype=1, photometric="rgb")
    return path


# name: what is written, and what should be read.
LOSSLESS = {
    "strips": (RGB, {"rowsperstrip": 7}, RGB),
    "one strip": (RGB, {"rowsperstrip": SHAPE[0]}, RGB),
    "strips, lzw with predictor": (RGB, {"rowsperstrip": 16, "compression": "lzw", "predictor": True}, RGB),
    "strips, big-endian": (WIDE, {"rowsperstrip": 16, "byteorder": ">"}, to_8_bit(WIDE)),
    "16 bits, tiled": (WIDE, {"tile": (64, 48)}, to_8_bit(WIDE)),
    "16 bits, deflate": (WIDE, {"tile": (64, 48), "compression": "deflate", "predictor": True}, to_8_bit(WIDE)),
    "planar": (RGB.transpose(2, 0, 1), {"tile": (64, 64), "planarconfig": "separate"}, RGB),
    "planar strips": (RGB.transpose(2, 0, 1), {"rowsperstrip": 9, "planarconfig": "separate"}, RGB),
    "zstd": (RGB, {"rowsperstrip": 20, "compression": "zstd"}, RGB),
    "lzma": (RGB, {"rowsperstrip": 20, "compression": "lzma"}, RGB),
    "packbits": (RGB, {"rowsperstrip": 20, "compression": "packbits"}, RGB),
    "jpeg 2000": (RGB, {"tile": (64, 64), "compression": "jpeg2000", "compressionargs": {"reversible": True}}, RGB),
    "big": (RGB, {"rowsperstrip": 20, "bigtiff": True}, RGB),
    "grey": (RGB[..., 0], {"rowsperstrip": 20, "photometric": "minisblack"}, RGB[..., :1].repeat(3, 2)),
    "white is zero": (RGB[..., 0], {"rowsperstrip": 20, "photometric": "miniswhite"}, 255 - RGB[..., :1].repeat(3, 2)),
    "16-bit grey": (
        WIDE[..., 0],
        {"tile": (64, 64), "photometric": "minisblack"},
        to_8_bit(WIDE[..., :1]).repeat(3, 2),
    ),
    "black and white": (
        RGB[..., 0] > 99,
        {"photometric": "minisblack"},
        np.where(RGB[..., :1] > 99, np.uint8(255), np.uint8(0)).repeat(3, 2),
    ),
    "palette": (
        RGB[..., 0],
        {"photometric": "palette", "colormap": (np.arange(768, dtype=np.uint16).reshape(3, 256) * 80)},
        to_8_bit(np.arange(768).reshape(3, 256) * 80).T[RGB[..., 0]],
    ),
    "opaque": (np.dstack([RGB, OPAQUE]), {"tile": (64, 64), "extrasamples": ["unassalpha"]}, RGB),
    "range in tags": (
        WIDE,
        {
            "tile": (64, 64),
            "extratags": [(280, "H", 3, (100, 200, 300), True), (281, "H", 3, (3000, 4095, 3500), True)],
        },
        to_8_bit(WIDE, 100, 4095),
    ),
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_kinds_give_the_same_pixels(tmp_path, name):
    pixels, how, expected = LOSSLESS[name]
    slide = open_slide(write(tmp_path / "slide.tif", pixels, **{**HALF_UM, **how}))
    assert slide.library == f"tifffile {tifffile.__version__}"
    assert (slide.shape, slide.mpp_um_per_px, slide.resolution.source) == (SHAPE, (0.5, 0.5), "tiff tags")
    rgb, valid = whole(slide)
    np.testing.assert_array_equal(rgb, expected)
    assert valid.all()


@pytest.mark.parametrize(("name", "how"), [("jpeg", {"compressionargs": {"level": 90}}), ("jpeg2000", {})])
def test_lossy_kinds_give_the_decoders_pixels(tmp_path, name, how):
    pixels = np.ascontiguousarray(RGB[:128, :128])
    path = write(tmp_path / "slide.tif", pixels, rowsperstrip=128, compression=name, **how)
    with tifffile.TiffFile(path) as tiff:
        page = tiff.pages.first
        data = path.read_bytes()[page.dataoffsets[0] :][: page.databytecounts[0]]
    if name == "jpeg":
        expected = imagecodecs.jpeg8_decode(data, tables=page.jpegtables, colorspace="YCBCR", outcolorspace="RGB")
    else:
        expected = imagecodecs.jpeg2k_decode(data)
    np.testing.assert_array_equal(whole(open_slide(path))[0], expected)


def test_generic_tiffs_that_openslide_reads_rightly_stay_with_it(tmp_path):
    slide = open_slide(write(tmp_path / "slide.tif", RGB, tile=(64, 64)))
    assert slide.library.startswith("openslide 4")
    np.testing.assert_array_equal(whole(slide)[0], RGB)


@pytest.mark.parametrize("kind", ["unassalpha", "assocalpha"])
@pytest.mark.parametrize("bits", [8, 16])
def test_alpha_is_laid_over_white(tmp_path, kind, bits):
    alpha = np.random.default_rng(5).integers(0, 256, (*SHAPE, 1)).astype(np.uint8)
    alpha[:40, :50] = 0
    share = alpha / 255
    colours = RGB if kind == "unassalpha" else np.rint(RGB * share).astype(np.uint8)
    stored = np.dstack([colours, alpha]).astype(np.uint16 if bits == 16 else np.uint8)
    path = write(tmp_path / "slide.tif", stored * (257 if bits == 16 else 1), tile=(64, 64), extrasamples=[kind])
    rgb, valid = whole(open_slide(path))
    np.testing.assert_array_equal(valid, alpha[..., 0] > 0)
    assert (rgb[~valid] == 255).all()
    assert np.abs(rgb - (RGB * share + 255 * (1 - share))).max() <= (0.5 if kind == "unassalpha" else 1.0) + 1e-9


def test_a_channel_without_meaning_is_left_out_and_said(tmp_path):
    path = write(tmp_path / "slide.tif", np.dstack([RGB, OPAQUE - 99]), tile=(64, 64), extrasamples=["unspecified"])
    slide = open_slide(path)
    np.testing.assert_array_equal(whole(slide)[0], RGB)
    assert slide.warnings == ("its last channel has no stated meaning (ExtraSamples) and is left out",)


def test_ome_series_and_sub_ifds(tmp_path):
    path = write_ome(
        tmp_path / "slide.ome.tif",
        (noise((40, 50), 3), 0, "macro image"),
        (RGB, 2, "slide"),
        (noise((90, 90), 4), 0, "other"),
        PhysicalSizeX=0.25,
        PhysicalSizeXUnit="µm",
        PhysicalSizeY=260.0,
        PhysicalSizeYUnit="nm",
    )
    slide = open_slide(path)
    assert [level.shape for level in slide.levels] == [SHAPE, (75, 105), (38, 53)]
    assert (slide.mpp_um_per_px, slide.resolution.source) == ((0.26, 0.25), "ome")
    np.testing.assert_array_equal(whole(slide)[0], RGB)
    for step in (2, 4):
        np.testing.assert_array_equal(whole(slide.at_shape(RGB[::step, ::step].shape[:2]))[0], RGB[::step, ::step])
    # Per axis, from the real sizes: 150 / 38 and 210 / 53.
    assert slide.at_shape((38, 53)).level0_px_per_px == (150 / 38, 210 / 53)


@pytest.mark.parametrize("bits", [None, 12])
def test_ome_channels_first_in_pages_and_significant_bits(tmp_path, bits):
    metadata = {"axes": "CYX"} | ({} if bits is None else {"SignificantBits": bits})
    values = WIDE >> (0 if bits is None else 4)
    tifffile.imwrite(
        tmp_path / "s.ome.tif", values.transpose(2, 0, 1), photometric="minisblack", tile=(64, 64), metadata=metadata
    )
    slide = open_slide(tmp_path / "s.ome.tif")
    np.testing.assert_array_equal(whole(slide)[0], to_8_bit(values, 0, 65535 if bits is None else 4095))
    assert "taken as red, green and blue" in slide.warnings[0]


def test_flat_reduced_pages_are_levels(tmp_path):
    levels = [noise(shape, seed) for seed, shape in enumerate([(1001, 777), (250, 194), (62, 48)])]
    with tifffile.TiffWriter(tmp_path / "slide.tif") as writer:
        for number, level in enumerate(levels):
            writer.write(level, photometric="rgb", rowsperstrip=16, subfiletype=min(number, 1), metadata=None)
    slide = open_slide(tmp_path / "slide.tif")
    assert [level.shape for level in slide.levels] == [(1001, 777), (250, 194), (62, 48)]
    np.testing.assert_array_equal(whole(slide.at_shape((62, 48)))[0], levels[2])


def test_a_16_bit_window_is_scaled_as_the_whole_is(tmp_path):
    values = np.full(SHAPE, 300, np.uint16)
    values[0, 0] = 40000
    slide = open_slide(write(tmp_path / "s.tif", values, photometric="minisblack", tile=(64, 64)))
    assert set(np.unique(slide.read(Window.of(64, 64, 50, 50))[0])) == {1}  # 300 * 255 / 65535


WRONG = {
    "aperio label": ([(RGB, {"description": "Aperio Image Library v11\r\nlabel 387x463"})], "says that it is a label"),
    "aperio macro": ([(RGB, {"description": "Aperio Image Library v11 \nmacro 80x43"})], "says that it is a macro"),
    "aperio thumbnail": (
        [(RGB, {"description": "Aperio Image Library v11.2.1 \n2220x2967 -> 210x150 - |AppMag = 20"})],
        "says that it is a thumbnail",
    ),
    "philips macro": ([(RGB, {"description": "Macro"})], "says that it is a macro"),
    "thumbnail": ([(RGB, {"description": "thumbnail image"})], "says that it is a thumbnail"),
    "reduced": ([(RGB, {"subfiletype": 1})], "is marked as a reduced copy"),
    "mask": ([(RGB[..., 0], {"subfiletype": 4, "photometric": "minisblack"})], "is marked as a mask"),
    "beside a larger one": (
        [(RGB, {}), (np.zeros((400, 500), np.float32), {"photometric": "minisblack"})],
        "lies one of 400 x 500 px, which cannot be read as a slide",
    ),
}


@pytest.mark.parametrize("tiled", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_the_wrong_page_is_refused(tmp_path, name, tiled):
    pages, reason = WRONG[name]
    with tifffile.TiffWriter(tmp_path / "slide.tif") as writer:
        for pixels, how in pages:
            how = {"photometric": "rgb", "metadata": None, "tile": (64, 64) if tiled else None} | how
            if "subfiletype" in how and how["subfiletype"] & 4:
                pixels, how = pixels > 9, how | {"tile": None}  # a TIFF mask has one bit
            writer.write(pixels, **how)
    with pytest.raises(SlideError, match=rf"slide\.tif is not taken as a slide: .*{reason}"):
        open_slide(tmp_path / "slide.tif")


def test_a_larger_image_without_tiles_is_found_behind_a_tiled_label(tmp_path):
    """OpenSlide takes the first tiled image."""
    with tifffile.TiffWriter(tmp_path / "slide.tif") as writer:
        writer.write(noise((70, 70)), photometric="rgb", tile=(64, 64), metadata=None)
        writer.write(RGB, photometric="rgb", metadata=None)
    np.testing.assert_array_equal(whole(open_slide(tmp_path / "slide.tif"))[0], RGB)


REFUSED = {
    "float": (RGB.astype(np.float32), {}, "its samples are float32"),
    "signed": (RGB[..., 0].astype(np.int16), {"photometric": "minisblack"}, "its samples are int16"),
    "32 bits": (WIDE.astype(np.uint32), {}, "its samples are uint32"),
    "five channels": (
        np.dstack([RGB, RGB[..., :2]]),
        {"extrasamples": ["unspecified"] * 2},
        "it has 5 channels, expected 1",
    ),
    "cmyk": (np.dstack([RGB, OPAQUE]), {"photometric": "separated"}, "its colours are stored as SEPARATED"),
    "stack": (np.stack([RGB[..., 0]] * 4), {"photometric": "minisblack", "metadata": {"axes": "ZYX"}}, "along ZYX"),
    "webp": (RGB, {"compression": "webp"}, r"a method that is not supported \(WEBP 50001\)"),
}


@pytest.mark.parametrize("tile", [None, (64, 64)])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_slide_is_refused_with_the_reason(tmp_path, name, tile):
    """Also where OpenSlide would open it and show one plane of it."""
    pixels, how, reason = REFUSED[name]
    if name != "webp":  # OpenSlide reads that when it is tiled
        how = how | {"tile": tile}
    with pytest.raises(SlideError, match=rf"slide\.tif cannot be opened as a slide: .*{reason}"):
        open_slide(write(tmp_path / "slide.tif", pixels, **how))


def test_a_strip_too_large_to_decode_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tiff_pages, "SEGMENT_LIMIT_BYTES", 1000)
    with pytest.raises(SlideError, match="its tiles or strips are of 94500 bytes each, at most 1000 are read; convert"):
        open_slide(write(tmp_path / "slide.tif", RGB, compression="lzw", rowsperstrip=SHAPE[0]))


@pytest.mark.parametrize("compression", ["deflate", "jpeg", "jpeg2000", "zstd", "lzw"])
@pytest.mark.parametrize("layout", [{"tile": (64, 64)}, {"rowsperstrip": 32}])
def test_a_damaged_segment_becomes_white_and_invalid(tmp_path, compression, layout):
    path = write(tmp_path / "slide.tif", RGB, compression=compression, **layout)
    intact, _ = whole(open_slide(path))
    damage_tile(path, 1)
    slide = open_slide(path)
    with pytest.raises(SlideError, match=r"slide\.tif cannot be read at level 0"):
        whole(slide)
    place = Window.of(0, 64, 64, 64) if "tile" in layout else Window.of(32, 0, 32, SHAPE[1])
    damage = Damage()
    rgb, valid = whole(slide.counting(damage))
    expected = intact.copy()
    expected[place.slices] = 255
    np.testing.assert_array_equal(rgb, expected)
    lost = np.zeros(SHAPE, bool)
    lost[place.slices] = True
    np.testing.assert_array_equal(valid, ~lost)
    assert damage.tiles == {(0, 0, 1) if "tile" in layout else (0, 1, 0)}
    assert damage.lost_px == lost.sum()


def test_a_jpeg_that_says_it_is_huge_is_not_decoded(tmp_path):
    path = write(tmp_path / "slide.tif", RGB, compression="jpeg", rowsperstrip=32)
    content = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as tiff:
        start = tiff.pages.first.dataoffsets[1]
    frame = content.index(b"\xff\xc0", start)
    content[frame + 5 : frame + 9] = b"\xff\xf0\xff\xf0"
    path.write_bytes(content)
    damage = Damage()
    whole(open_slide(path).counting(damage))
    assert damage.tiles == {(0, 1, 0)}
    assert "its data say they are (65520, 65520) px, expected at most (32, 210)" in damage.first


def test_segments_that_were_not_written_are_white_and_invalid(tmp_path):
    tiles = (None if number == 1 else np.full((64, 64, 3), number, np.uint16) for number in range(4))
    path = tmp_path / "slide.tif"
    tifffile.imwrite(path, tiles, shape=(128, 128, 3), dtype=np.uint16, tile=(64, 64), photometric="rgb")
    rgb, valid = whole(open_slide(path))
    expected = np.ones((128, 128), bool)
    expected[:64, 64:] = False
    np.testing.assert_array_equal(valid, expected)
    assert (rgb[~valid] == 255).all()


def test_cut_short(tmp_path):
    path = write(tmp_path / "slide.tif", RGB, rowsperstrip=10)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(SlideError, match=r"cannot be read at level 0.* is damaged \(its data should be in bytes"):
        whole(open_slide(path))


LAYOUTS = st.fixed_dictionaries(
    {
        "shape": st.tuples(st.integers(1, 90), st.integers(1, 90)),
        "samples": st.sampled_from([1, 3]),
        "bits": st.sampled_from([8, 16]),
        "planar": st.booleans(),
        "tile": st.one_of(
            st.none(), st.tuples(st.sampled_from([16, 32, 48]), st.sampled_from([16, 32, 64])), st.integers(1, 99)
        ),
        "compression": st.sampled_from([None, "lzw", "deflate", "zstd", "packbits"]),
        "predictor": st.booleans(),
        "byteorder": st.sampled_from("<>"),
        "bigtiff": st.booleans(),
    }
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("layouts")


@settings(max_examples=150)
@given(LAYOUTS, st.data())
def test_any_window_of_any_layout_is_numpys_slice(scratch: Path, layout, data):
    height, width = layout["shape"]
    dtype = np.uint8 if layout["bits"] == 8 else np.uint16
    seed = data.draw(st.integers(0, 9))
    pixels = np.random.default_rng(seed).integers(0, 1 << layout["bits"], (height, width, layout["samples"]), dtype)
    planar = layout["planar"] and layout["samples"] > 1
    stored = pixels[..., 0] if layout["samples"] == 1 else pixels.transpose(2, 0, 1) if planar else pixels
    tile = layout["tile"]
    how = {"rowsperstrip": tile} if isinstance(tile, int) else {"tile": tile}
    if planar:
        how["planarconfig"] = "separate"
    if layout["compression"] in ("lzw", "deflate", "zstd"):
        how["predictor"] = layout["predictor"]
    path = write(
        scratch / "slide.tif",
        np.ascontiguousarray(stored),
        photometric="minisblack" if layout["samples"] == 1 else "rgb",
        compression=layout["compression"],
        byteorder=layout["byteorder"],
        bigtiff=layout["bigtiff"],
        **how,
    )
    expected = np.broadcast_to(pixels if dtype == np.uint8 else to_8_bit(pixels), (height, width, 3))
    margin = 40
    around = ((margin, margin), (margin, margin))
    padded = np.pad(expected, (*around, (0, 0)), constant_values=255)
    inside = np.pad(np.ones((height, width), bool), around)
    source = TiffSource(path)
    everything = Window.of(0, 0, height, width)
    np.testing.assert_array_equal(source.read(0, everything)[0], expected)
    source.close()
    with patch.object(reader, "openslide_suffices", lambda *args: False):
        slide = open_slide(path)
    for _ in range(3):
        top, left = data.draw(st.integers(-margin, height - 1)), data.draw(st.integers(-margin, width - 1))
        size = data.draw(st.integers(0, height + margin - top)), data.draw(st.integers(0, width + margin - left))
        window = Window.of(top, left, *size)
        rgb, valid = slide.read(window)
        here = window.shift(margin, margin).slices
        np.testing.assert_array_equal(rgb, padded[here])
        np.testing.assert_array_equal(valid, inside[here])


@pytest.mark.parametrize("part_bytes", [1, 700, 5000])
def test_large_uncompressed_strips_are_read_in_parts(tmp_path, monkeypatch, part_bytes):
    monkeypatch.setattr(tiff_pages, "_PART_BYTES", part_bytes)
    for rows in (SHAPE[0], 32, 7):
        path = write(tmp_path / "slide.tif", WIDE, rowsperstrip=rows, byteorder=">")
        slide = open_slide(path)
        assert slide.levels[0].tile[0] * SHAPE[1] * 6 <= max(part_bytes, SHAPE[1] * 6)
        np.testing.assert_array_equal(whole(slide)[0], to_8_bit(WIDE))


def test_a_bigtiff_is_read_beyond_4_gib(tmp_path):
    """The file is sparse: only the rows written here take place on the disk."""
    path, shape = tmp_path / "slide.tif", (48_000, 30_000, 3)
    pixels = tifffile.memmap(path, shape=shape, dtype=np.uint8, photometric="rgb", bigtiff=True, metadata=None)
    pixels[-150:, -210:] = RGB
    pixels.flush()
    del pixels
    assert path.stat().st_size > 1 << 32
    slide = open_slide(path)
    rgb, valid = slide.read(Window.of(shape[0] - 150, shape[1] - 210, 200, 210))
    np.testing.assert_array_equal(rgb[:150], RGB)
    assert valid[:150].all()
    assert not valid[150:].any()


def test_few_segments_are_kept(tmp_path, monkeypatch):
    cache = tiff_pages.SegmentCache(limit_bytes=5 * 64 * 64 * 3)
    path = write(tmp_path / "slide.tif", RGB, tile=(64, 64))
    with tifffile.TiffFile(path) as tiff:
        level = tiff_pages.TiffLevel((tiff.pages.first,), 0, cache)
        np.testing.assert_array_equal(level.read(Window.of(0, 0, *SHAPE))[0], RGB)
    assert 0 < cache._bytes <= 5 * 64 * 64 * 3
    assert len(cache._kept) <= 7  # tiles at the edges are smaller
