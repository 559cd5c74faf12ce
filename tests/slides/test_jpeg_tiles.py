"""The fast path is another way to OpenSlide's pixels: equal where it is taken, and OpenSlide's elsewhere."""

import threading

import imagecodecs
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.geometry import Window
from gigaslide.slides import jpeg_tiles
from gigaslide.slides.jpeg_tiles import JpegTiles
from gigaslide.slides.reader import OpenSlideSource, open_slide
from gigaslide.slides.reader import _open_source as open_source
from gigaslide.slides.source import UnreadableError
from gigaslide.slides.tile_cache import TileCache
from tests.slides.files import damage_tile
from tests.slides.jpeg import blobs, write_jpeg_slide

SHAPE = (300, 410)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No test learns from what another one found out."""
    monkeypatch.setattr(jpeg_tiles, "_cache", TileCache(jpeg_tiles.CACHE_BYTES))
    monkeypatch.setattr(jpeg_tiles, "_verdicts", jpeg_tiles._Verdicts())


def outcome(source, number, window):
    """What a read gives: pixels, or that there are none."""
    try:
        return source.read(number, window)
    except UnreadableError:
        return None


def assert_equal(path, windows):
    """`windows`: level, window."""
    fast, reference = open_source(path), OpenSlideSource(path)
    try:
        for number, window in windows:
            expected, found = outcome(reference, number, window), outcome(fast, number, window)
            assert (found is None) == (expected is None), (number, window)
            if expected is not None:
                np.testing.assert_array_equal(found[0], expected[0], strict=True)
                np.testing.assert_array_equal(found[1], expected[1], strict=True)
    finally:
        fast.close()
        reference.close()


def windows_in(data, shape, count=4):
    """Half-open windows of any size inside a level."""
    for _ in range(count):
        ends = [sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size)))) for size in shape]
        (top, bottom), (left, right) = ends
        if top < bottom and left < right:
            yield Window.of(top, left, bottom - top, right - left)


@given(st.data())
@settings(max_examples=40)
def test_every_window_of_every_kind_has_openslides_pixels(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("jpeg")
    tile_px = data.draw(st.sampled_from([16, 48, 64, 128, 240]))
    height, width = data.draw(st.integers(20, 330)), data.draw(st.integers(20, 330))
    aperio = data.draw(st.booleans())
    ycbcr = data.draw(st.booleans())
    seed = data.draw(st.integers(0, 9))
    level0 = blobs((4 * height, 4 * width) if max(height, width) < 90 else (height, width), seed)
    scaled = level0[::4, ::4] if data.draw(st.booleans()) else level0[::3, ::2]
    rows, columns = (-(-size // tile_px) for size in level0.shape[:2])
    missing = data.draw(st.lists(st.integers(1, rows * columns), max_size=3)) if rows * columns > 1 else []
    path = write_jpeg_slide(
        folder / "slide.tif",
        level0,
        scaled,
        tile_px=tile_px,
        quality=data.draw(st.integers(40, 100)),
        subsampling=data.draw(st.sampled_from(["444", "422", "420"])),
        ycbcr=ycbcr,
        aperio=aperio,
        shared=data.draw(st.booleans()),
        missing=missing,
    )
    source = open_source(path)
    levels = source.about.levels
    assert isinstance(source, JpegTiles)
    assert source.trusted(0), "the fast path was not taken, so that this test shows nothing"
    source.close()
    found = [(number, window) for number, level in enumerate(levels) for window in windows_in(data, level.shape)]
    assert_equal(path, found)


@pytest.mark.parametrize("aperio", [False, True])
def test_below_an_empty_tile_pixels_are_openslides_also_where_the_smaller_level_has_some(tmp_path, aperio):
    level0 = blobs((212, 84))
    # Tile 45 of level 0 is empty, of level 1 there are 8.
    path = write_jpeg_slide(tmp_path / "slide.tif", level0, level0[::4, ::4], tile_px=16, aperio=aperio, missing=[45])
    source = open_source(path)
    assert source.trusted(0)
    assert_equal(path, [(number, Window.of(0, 0, *level.shape)) for number, level in enumerate(source.about.levels)])
    source.close()


def damaged(folder, data, overwrite):
    """A slide with damage in a tile that is no sample: path, the tile's index."""
    path = write_jpeg_slide(folder / "slide.tif", blobs((320, 320)), shared=data.draw(st.booleans()))
    (level,) = jpeg_tiles._jpeg_levels(path, open_source(path).about.levels)
    index = data.draw(st.sampled_from(sorted(set(range(25)) - set(jpeg_tiles._samples(level)))))
    count = int(level.counts[index])
    start = data.draw(st.integers(0, count - 1))
    with path.open("r+b") as file:
        file.seek(level.offsets[index] + start)
        file.write(overwrite(count - start))
    source = open_source(path)
    assert source.trusted(0)
    source.close()
    return path, index


@given(st.data())
@settings(max_examples=40)
def test_a_tile_that_was_cut_off_has_openslides_outcome(tmp_path_factory, data):
    filling = data.draw(st.sampled_from([0, 0xFF, 0xD9]))
    path, index = damaged(tmp_path_factory.mktemp("jpeg"), data, lambda left: bytes([filling]) * left)
    assert_equal(path, [(0, Window.of(0, 0, 320, 320)), (0, Window.of(index // 5 * 64, index % 5 * 64, 2, 2))])


@given(st.data())
@settings(max_examples=40)
def test_what_openslide_shows_of_a_damaged_tile_is_shown(tmp_path_factory, data):
    path, index = damaged(
        tmp_path_factory.mktemp("jpeg"), data, lambda left: data.draw(st.binary(min_size=1, max_size=min(512, left)))
    )
    window = Window.of(index // 5 * 64, index % 5 * 64, 64, 64)
    expected = outcome(OpenSlideSource(path), 0, window)
    if expected is not None:
        np.testing.assert_array_equal(open_source(path).read(0, window)[0], expected[0])


def test_the_real_slide(real_slide):
    source = open_source(real_slide)
    assert source.trusted(0)
    assert source.about.reader.startswith("openslide 4.")
    assert source.about.reader.endswith(f", tiles by imagecodecs {imagecodecs.__version__}")
    source.close()
    assert_equal(real_slide, [(0, Window.of(0, 0, 2967, 2220)), (0, Window.of(1000, 239, 482, 700))])


def test_samples_are_at_the_corners_edges_and_where_most_bytes_are(tmp_path):
    path = write_jpeg_slide(tmp_path / "slide.tif", blobs(SHAPE))
    (level,) = jpeg_tiles._jpeg_levels(path, open_source(path).about.levels)
    assert level.grid == (5, 7)
    spread = {0, 3, 6, 14, 17, 20, 28, 31, 34}
    largest = set(np.argsort(level.counts)[-3:].tolist())
    assert set(jpeg_tiles._samples(level)) == spread | largest


@pytest.mark.parametrize("where", [0, 6, 17, 28, 34, "largest"])
def test_a_level_with_one_other_sample_stays_with_openslide(tmp_path, monkeypatch, where):
    """A decoder that is off by one grey level in one pixel of one sample is not trusted, and its pixels not seen."""
    path = write_jpeg_slide(tmp_path / "slide.tif", blobs(SHAPE))
    decoded = JpegTiles._decoded

    def off_by_one(self, level, index, out):
        tile = decoded(self, level, index, out)
        if index == (int(np.argmax(level.counts)) if where == "largest" else where):
            tile[3, 5, 1] ^= 1
        return tile

    monkeypatch.setattr(JpegTiles, "_decoded", off_by_one)
    source = open_source(path)
    assert not source.trusted(0)
    assert "imagecodecs" not in source.about.reader
    assert_equal(path, [(0, Window.of(0, 0, *SHAPE))])


def test_colours_that_the_tags_name_wrongly_stay_with_openslide(tmp_path):
    """YCbCr said to be RGB: OpenSlide believes the tag, and so must we; or leave it to OpenSlide."""
    path = write_jpeg_slide(tmp_path / "slide.tif", blobs(SHAPE), subsampling="444")
    with tifffile.TiffFile(path, mode="r+") as tiff:
        tiff.pages.first.tags["PhotometricInterpretation"].overwrite(2)
    assert_equal(path, [(0, Window.of(0, 0, *SHAPE))])


def test_a_level_of_no_whole_scale_stays_with_openslide(tmp_path):
    path = write_jpeg_slide(tmp_path / "slide.tif", blobs((1001, 777)), blobs((250, 194)))
    source = open_source(path)
    assert [source.trusted(0), source.trusted(1)] == [True, False]


OTHERS = {
    "deflate": {"compression": "deflate"},
    "grey": {"pixels": blobs(SHAPE)[..., 0], "photometric": "minisblack", "compression": "jpeg"},
    "strips": {"compression": "jpeg", "tile": None, "rowsperstrip": 64},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_tiled_jpeg_in_colour_is_not_touched(tmp_path, kind):
    how = {"pixels": blobs(SHAPE), "photometric": "rgb", "tile": (64, 64)} | OTHERS[kind]
    tifffile.imwrite(tmp_path / "slide.tif", how.pop("pixels"), metadata=None, **how)
    assert not isinstance(open_source(tmp_path / "slide.tif"), JpegTiles)


def test_old_style_jpeg_is_not_touched(tmp_path):
    path = write_jpeg_slide(tmp_path / "slide.tif", blobs(SHAPE))
    levels = open_source(path).about.levels
    with tifffile.TiffFile(path, mode="r+") as tiff:
        tiff.pages.first.tags["Compression"].overwrite(6)
    assert jpeg_tiles._jpeg_levels(path, levels) == (None,)


def test_a_damaged_tile_is_an_error_there_and_the_next_read_works(tmp_path):
    path = damage_tile(write_jpeg_slide(tmp_path / "slide.tif", blobs(SHAPE)), 8)
    source = open_source(path)
    assert source.trusted(0)
    with pytest.raises(UnreadableError, match=r"JPEG"):
        source.read(0, Window.of(60, 60, 10, 10))
    np.testing.assert_array_equal(
        source.read(0, Window.of(0, 0, 64, 410))[0], OpenSlideSource(path).read(0, Window.of(0, 0, 64, 410))[0]
    )


def test_a_tile_that_says_it_is_larger_is_left_to_openslide(tmp_path):
    large = bytes(imagecodecs.jpeg8_encode(blobs((128, 128)), colorspace="RGB", outcolorspace="YCBCR"))
    path = write_jpeg_slide(tmp_path / "slide.tif", blobs(SHAPE, grain=1), quality=100)
    with tifffile.TiffFile(path) as tiff:
        page = tiff.pages.first
        # What is too long for its tile is cut off: the header is what counts.
        with path.open("r+b") as file:
            file.seek(page.dataoffsets[9])
            file.write(large[: page.databytecounts[9]])
    assert_equal(path, [(0, Window.of(64, 128, 64, 64))])


def test_threads_read_the_same_pixels_and_share_what_was_found_out(tmp_path):
    path = write_jpeg_slide(tmp_path / "slide.tif", blobs(SHAPE))
    slide = open_slide(path)
    asked = []
    equal = JpegTiles._equal
    expected = OpenSlideSource(path).read(0, Window.of(0, 0, *SHAPE))[0]
    found = []

    def read(top):
        found.append((top, slide.read(Window.of(top, 3, 100, 400))[0]))

    threads = [threading.Thread(target=read, args=(top,)) for top in range(0, 200, 10)]
    JpegTiles._equal = lambda *args: asked.append(1) or equal(*args)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        JpegTiles._equal = equal
    assert len(found) == len(threads)
    assert asked == []  # by `open_slide`, once for all
    for top, rgb in found:
        np.testing.assert_array_equal(rgb, expected[top : top + 100, 3:403])


def test_only_tiles_that_a_border_cuts_are_kept_and_within_the_limit(tmp_path, monkeypatch):
    cache = TileCache(5 * 64 * 64 * 3)
    monkeypatch.setattr(jpeg_tiles, "_cache", cache)
    source = open_source(write_jpeg_slide(tmp_path / "slide.tif", blobs(SHAPE)))
    source.read(0, Window.of(64, 64, 128, 128))
    assert not cache._kept
    source.read(0, Window.of(60, 64, 132, 128))
    assert [key[-1] for key in cache._kept] == [1, 2]
    for left in range(0, 400, 5):
        source.read(0, Window.of(0, left, 300, 10))
        assert sum(tile.nbytes for tile in cache._kept.values()) == cache._bytes <= 5 * 64 * 64 * 3
