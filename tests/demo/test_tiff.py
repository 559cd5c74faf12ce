import tracemalloc

import imagecodecs
import numpy as np
import openslide
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.demo import tiff


def smooth_tiles(shape):
    """Yield tiles of a picture smooth enough for halved colours, even at a sixteenth of its size."""
    for top in range(0, shape[0], tiff.TILE_PX):
        for left in range(0, shape[1], tiff.TILE_PX):
            yield smooth(np.arange(top, top + tiff.TILE_PX), np.arange(left, left + tiff.TILE_PX))


def smooth(rows, columns):
    red = 128 + 100 * np.sin(rows[:, None] / 300 + columns[None, :] * 0)
    green = 128 + 100 * np.sin(columns[None, :] / 250 + rows[:, None] * 0)
    return np.stack([red, green, (red + green) / 2], axis=2).astype(np.uint8)


@pytest.mark.parametrize("shape", [(1000, 1500), (256, 256), (257, 4100), (2050, 70)])
def test_openslide_reads_every_level(tmp_path, shape):
    path = tmp_path / "slide.tiff"
    tiff.write_pyramid(path, shape, 0.25, smooth_tiles(shape))
    with openslide.OpenSlide(path) as slide:
        assert slide.properties["openslide.vendor"] == "generic-tiff"
        # Resolution tags are fractions of 32-bit numbers.
        assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(0.25, rel=1e-6)
        assert float(slide.properties["openslide.mpp-y"]) == pytest.approx(0.25, rel=1e-6)
        assert slide.level_dimensions[0] == shape[::-1]
        assert max(slide.level_dimensions[-1]) <= 512
        for level, (width, height) in enumerate(slide.level_dimensions):
            scale = 4**level
            assert (height, width) == tuple(-(-n // scale) for n in shape)
            found = np.asarray(slide.read_region((0, 0), level, (width, height)).convert("RGB")).astype(float)
            # The mean of a smooth picture is its value in the middle.
            rows, columns = ((np.arange(n) + 0.5) * scale - 0.5 for n in (height, width))
            inside = slice(0, shape[0] // scale), slice(0, shape[1] // scale)
            error = np.abs(found - smooth(rows, columns))[inside]
            # JPEG at quality 85: steps of 3 to 5 at low frequencies, so half of one, and rounding; several may add up.
            assert error.mean() < 2.5
            assert error.max() < 12


def test_openslide_sees_each_tile_as_it_was_encoded(tmp_path):
    # Noise has no two tiles alike, and no pixel like its neighbour: anything out of place shows.
    tiles = [np.random.default_rng(n).integers(0, 256, (256, 256, 3), dtype=np.uint8) for n in range(6)]
    path = tmp_path / "slide.tiff"
    tiff.write_pyramid(path, (500, 700), 0.5, tiles)
    decoded = [imagecodecs.jpeg8_decode(tiff._jpeg(tile)) for tile in tiles]
    whole = np.concatenate([np.concatenate(decoded[:3], axis=1), np.concatenate(decoded[3:], axis=1)])
    with openslide.OpenSlide(path) as slide:
        found = np.asarray(slide.read_region((0, 0), 0, (700, 500)).convert("RGB"))
    np.testing.assert_array_equal(found, whole[:500, :700])


def test_a_smaller_level_is_the_mean():
    image = np.random.default_rng(2).integers(0, 256, (64, 48, 3), dtype=np.uint8)
    exact = np.array(
        [[image[y : y + 4, x : x + 4].mean(axis=(0, 1)) for x in range(0, 48, 4)] for y in range(0, 64, 4)]
    )
    # Rounded to whole levels.
    assert np.abs(tiff._smaller(image) - exact).max() <= 0.5


def test_pages_are_a_plain_chain_of_reduced_images(tmp_path):
    path = tmp_path / "slide.tiff"
    tiff.write_pyramid(path, (1100, 2100), 0.5, smooth_tiles((1100, 2100)))
    with tifffile.TiffFile(path) as file:
        assert [page.subfiletype for page in file.pages] == [0, 1, 1]
        assert all(page.is_tiled and page.compression == 7 and not page.subifds for page in file.pages)
        assert not file.is_bigtiff


def test_large_files_are_bigtiff(tmp_path, monkeypatch):
    monkeypatch.setattr(tiff, "_CLASSIC_BYTES", 1000)
    path = tmp_path / "slide.tiff"
    tiff.write_pyramid(path, (300, 300), 0.5, smooth_tiles((300, 300)))
    with tifffile.TiffFile(path) as file:
        assert file.is_bigtiff
    with openslide.OpenSlide(path) as slide:
        assert slide.dimensions == (300, 300)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 700), st.integers(1, 700), st.integers(0, 99))
def test_labels_come_back_exactly(tmp_path_factory, height, width, seed):
    columns = -(-width // tiff.TILE_PX)
    rows = -(-height // tiff.TILE_PX)
    tile = tiff.TILE_PX
    labels = np.random.default_rng(seed).integers(0, 13, (rows * tile, columns * tile), dtype=np.uint8)
    tiles = [
        tiff.encode_labels(labels[r * tile : (r + 1) * tile, c * tile : (c + 1) * tile])
        for r in range(rows)
        for c in range(columns)
    ]
    path = tmp_path_factory.mktemp("labels") / "mask.tif"
    tiff.write_labels(path, (height, width), 0.5, tiles)
    found = tifffile.imread(path)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, labels[:height, :width])


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "slide.tiff"
    path.write_bytes(b"old")

    def broken():
        yield next(smooth_tiles((600, 600)))
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        tiff.write_pyramid(path, (600, 600), 0.5, broken())
    assert [file.name for file in tmp_path.iterdir()] == ["slide.tiff"]
    assert path.read_bytes() == b"old"


def test_memory_is_that_of_the_next_level(tmp_path):
    shape = (8192, 8192)
    tile = next(smooth_tiles(shape))
    tracemalloc.start()
    try:
        tiff.write_pyramid(tmp_path / "slide.tiff", shape, 0.5, (tile for _ in range(32 * 32)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # 201 MB of pixels. The next level is a sixteenth, 12.6 MB, and while it is halved its sums of 4 rows, as 16-bit
    # numbers, are half of it again; 4 MB for tiles and TIFF directories.
    assert peak < 12.6e6 * 1.5 + 4e6
