import math

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gigaslide.errors import SlideError
from gigaslide.geometry import Window
from gigaslide.slides import mask_image
from gigaslide.slides.mask_image import MaskImage, down_scale

LEVEL0 = (203, 307)


def values(k, rounding=lambda n, k: -(-n // k), dtype=np.uint8):
    shape = [rounding(size, k) for size in LEVEL0]
    return np.random.default_rng(k).integers(0, np.iinfo(dtype).max, shape, dtype)


WRITERS = {
    "tiled.tif": {"tile": (64, 32), "compression": "deflate"},
    "strips.tif": {"rowsperstrip": 7, "compression": "lzw"},
    "one_strip.tif": {},
    "big.tiff": {"tile": (16, 16), "bigtiff": True},
    "picture.png": None,
}


def write(folder, name, mask):
    path = folder / name
    if WRITERS[name] is None:
        Image.fromarray(mask).save(path)
    else:
        tifffile.imwrite(path, mask, **WRITERS[name])
    return path


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("k", [1, 3, 16])
def test_every_pixel_of_level_0_gets_its_mask_pixel(tmp_path, name, k):
    mask = values(k)
    image = MaskImage(write(tmp_path, name, mask), LEVEL0, LEVEL0)
    assert image.down_scale == k
    expected = np.repeat(np.repeat(mask, k, 0), k, 1)[: LEVEL0[0], : LEVEL0[1]]
    np.testing.assert_array_equal(image.read(Window.of(0, 0, *LEVEL0)), expected)
    for window in [Window.of(100, 200, 103, 107), Window.of(5, 6, 1, 1), Window.of(60, 60, 70, 9)]:
        np.testing.assert_array_equal(image.read(window), expected[window.slices])


def test_a_down_scale_may_be_rounded_down(tmp_path):
    mask = values(4, lambda n, k: n // k)
    image = MaskImage(write(tmp_path, "tiled.tif", mask), LEVEL0, LEVEL0)
    read = image.read(Window.of(0, 0, *LEVEL0))
    assert image.down_scale == 4
    np.testing.assert_array_equal(read[200:], np.repeat(read[199:200], 3, axis=0))  # beyond: the last pixel


@given(st.integers(1, 60), st.integers(1, 80))
def test_other_grids_take_the_value_under_their_own_centres(tmp_path_factory, height, width):
    folder = tmp_path_factory.mktemp("mask")
    mask = values(3)
    read = MaskImage(write(folder, "tiled.tif", mask), LEVEL0, (height, width)).read(Window.of(0, 0, height, width))
    # A centre exactly on the border of two mask pixels belongs to the later one; floats may say otherwise
    # only there, so it is computed in whole numbers: (i + 1/2) * n / m / 3 = (2 i + 1) * n / (6 m).
    rows = [(2 * i + 1) * LEVEL0[0] // (6 * height) for i in range(height)]
    columns = [(2 * j + 1) * LEVEL0[1] // (6 * width) for j in range(width)]
    np.testing.assert_array_equal(read, mask[np.ix_(rows, columns)])


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 64), st.booleans())
def test_the_down_scale_is_found_again(height, width, k, up):
    k = k if up else min(k, height, width)
    shape = tuple(-(-size // k) if up else size // k for size in (height, width))
    found = down_scale(shape, (height, width))
    assert found is not None
    # Small masks fit several numbers; then it is one that fits as well.
    assert all(few in (full // found, -(-full // found)) for few, full in zip(shape, (height, width), strict=True))
    if min(shape) > 2 * k:
        assert found == k


@pytest.mark.parametrize("shape", [(203, 154), (102, 307), (150, 227), (307, 203), (406, 614)])
def test_other_sizes_are_refused(tmp_path, shape):
    path = write(tmp_path, "tiled.tif", np.zeros(shape, np.uint8))
    with pytest.raises(SlideError, match=rf"{shape[0]} x {shape[1]} px .* the slide 203 x 307: expected"):
        MaskImage(path, LEVEL0, LEVEL0).read(Window.of(0, 0, 1, 1))


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.bool_])
def test_whole_numbers_of_any_size(tmp_path, dtype):
    mask = values(1) > 100 if dtype is np.bool_ else values(1, dtype=dtype)
    path = tmp_path / "mask.tif"
    tifffile.imwrite(path, mask)
    np.testing.assert_array_equal(MaskImage(path, LEVEL0, LEVEL0).read(Window.of(0, 0, *LEVEL0)), mask)


def test_segments_that_were_not_written_are_zero(tmp_path):
    path = tmp_path / "sparse.tif"
    tile = np.full((64, 64), 9, np.uint8)
    tifffile.imwrite(path, iter([tile, None, None, tile]), shape=(128, 128), dtype=np.uint8, tile=(64, 64))
    read = MaskImage(path, (128, 128), (128, 128)).read(Window.of(0, 0, 128, 128))
    np.testing.assert_array_equal(read, np.kron([[9, 0], [0, 9]], np.ones((64, 64), int)))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((*LEVEL0, 3), np.uint8), "one channel of whole numbers; it has 3 of uint8"),
        (np.zeros(LEVEL0, np.float32), "one channel of whole numbers; it has 1 of float32"),
    ],
)
def test_other_pictures_are_refused(tmp_path, array, message):
    path = tmp_path / "mask.tif"
    tifffile.imwrite(path, array)
    with pytest.raises(SlideError, match=message):
        MaskImage(path, LEVEL0, LEVEL0).read(Window.of(0, 0, 1, 1))


def test_a_coloured_png_and_rubbish_are_refused(tmp_path):
    Image.fromarray(np.zeros((*LEVEL0, 3), np.uint8)).save(tmp_path / "mask.png")
    with pytest.raises(SlideError, match="mode is RGB"):
        MaskImage(tmp_path / "mask.png", LEVEL0, LEVEL0).read(Window.of(0, 0, 1, 1))
    for name in ("rubbish.tif", "rubbish.png"):
        (tmp_path / name).write_bytes(b"rubbish")
        with pytest.raises(SlideError, match=rf"{name} cannot be read"):
            MaskImage(tmp_path / name, LEVEL0, LEVEL0).read(Window.of(0, 0, 1, 1))


def test_a_damaged_tile_is_named(tmp_path):
    path = write(tmp_path, "tiled.tif", values(1))
    with tifffile.TiffFile(path) as tiff:
        offset, count = tiff.pages.first.dataoffsets[3], tiff.pages.first.databytecounts[3]
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(count))
    with pytest.raises(SlideError, match=r"tiled\.tif is damaged in its tile or strip 3"):
        MaskImage(path, LEVEL0, LEVEL0).read(Window.of(0, 0, *LEVEL0))


def test_few_segments_are_held(tmp_path, monkeypatch):
    monkeypatch.setattr(mask_image, "_CACHE_BYTES", 3 * 16 * 16)
    image = MaskImage(write(tmp_path, "big.tiff", values(1)), LEVEL0, LEVEL0)
    np.testing.assert_array_equal(image.read(Window.of(0, 0, *LEVEL0)), values(1))
    assert len(image._source._cache) == 3


def test_one_huge_piece_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(mask_image, "_SEGMENT_LIMIT_BYTES", 1000)
    with pytest.raises(SlideError, match="save it as a tiled TIFF"):
        MaskImage(write(tmp_path, "one_strip.tif", values(1)), LEVEL0, LEVEL0).read(Window.of(0, 0, 1, 1))


PREDICTED = "gigaslide mask: 0 glass, 1 tissue, 255 invalid"


@given(st.integers(20, LEVEL0[0] - 1), st.data())
def test_a_predicted_mask_may_have_any_size_and_covers_the_slide(tmp_path_factory, height, data):
    """As predicted at some mpp: the grid of a reader, whose sides are rounded."""
    exact = LEVEL0[1] * height / LEVEL0[0]
    width = data.draw(st.sampled_from([math.floor(exact), math.ceil(exact)]))
    mask = np.random.default_rng(height).integers(0, 2, (height, width), np.uint8)
    path = tmp_path_factory.mktemp("mask") / "mask.tif"
    tifffile.imwrite(path, mask, description=PREDICTED, tile=(64, 64), metadata=None)
    image = MaskImage(path, LEVEL0, LEVEL0)
    found = image.read(Window.of(0, 0, *LEVEL0))
    if down_scale(mask.shape, LEVEL0) is None:
        rows, columns = (
            np.floor((np.arange(full) + 0.5) * size / full).astype(int)
            for full, size in zip(LEVEL0, mask.shape, strict=True)
        )
        np.testing.assert_array_equal(found, mask[np.ix_(rows, columns)])
        # On its own grid it is itself.
        np.testing.assert_array_equal(MaskImage(path, LEVEL0, mask.shape).read(Window.of(0, 0, *mask.shape)), mask)


@pytest.mark.parametrize("shape", [(LEVEL0[0] + 1, LEVEL0[1] + 1), (LEVEL0[0] - 1, LEVEL0[1] // 2), (100, 100)])
def test_a_predicted_mask_of_another_shape_is_refused(tmp_path, shape):
    tifffile.imwrite(tmp_path / "mask.tif", np.zeros(shape, np.uint8), description=PREDICTED, metadata=None)
    with pytest.raises(SlideError, match="expected the slide's size"):
        MaskImage(tmp_path / "mask.tif", LEVEL0, LEVEL0).read(Window.of(0, 0, 1, 1))


def test_other_grids_share_what_is_held_of_the_file(tmp_path):
    """Each with segments of its own would multiply the memory."""
    image = MaskImage(write(tmp_path, "tiled.tif", values(1)), LEVEL0, LEVEL0)
    small = image.at_shape((50, 60))
    assert small.read(Window.of(0, 0, 50, 60)).shape == (50, 60)
    assert small._source is image._source
