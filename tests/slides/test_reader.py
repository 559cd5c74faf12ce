import pickle
import threading

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.errors import SlideError
from gigaslide.geometry import Window
from gigaslide.slides import reader as module
from gigaslide.slides import source
from gigaslide.slides.damage import Damage
from gigaslide.slides.reader import open_slide
from tests.slides.files import damage_tile, noise, write_slide

SHAPE = (150, 200)


@pytest.fixture(scope="module")
def pixels():
    return noise(SHAPE)


@pytest.fixture(scope="module")
def slide(tmp_path_factory, pixels):
    return open_slide(write_slide(tmp_path_factory.mktemp("slides") / "slide.tif", pixels))


def whole(reader):
    return reader.read(Window.of(0, 0, *reader.shape))


@given(st.integers(-60, 210), st.integers(-60, 260), st.integers(0, 120), st.integers(0, 120))
def test_a_window_has_the_slides_pixels_and_white_invalid_ones_outside(slide, pixels, top, left, height, width):
    window = Window.of(top, left, height, width)
    rgb, valid = slide.read(window)
    margin = 400
    around = ((margin, margin), (margin, margin))
    expected = np.pad(pixels, (*around, (0, 0)), constant_values=255)
    inside = np.pad(np.ones(SHAPE, bool), around)
    here = window.shift(margin, margin).slices
    np.testing.assert_array_equal(rgb, expected[here])
    np.testing.assert_array_equal(valid, inside[here])


def test_pieces_fit_together(slide, pixels, monkeypatch):
    calls = []
    read_level = module.SlideReader._read_level

    def counted(*args):
        calls.append(args[-1].shape)
        return read_level(*args)

    monkeypatch.setattr(module.SlideReader, "_read_level", counted)
    monkeypatch.setattr(module, "_PIECE_BYTES", 4 * 1000)
    rgb, valid = whole(slide)
    np.testing.assert_array_equal(rgb, pixels)
    assert valid.all()
    assert len(calls) > 20
    assert max(height * width for height, width in calls) <= 1000


def test_one_call_of_openslide_stays_below_its_limit():
    assert module._PIECE_BYTES < 2**31


def test_a_coarse_window_is_read_in_pieces_of_the_fine_level(tmp_path, monkeypatch):
    reader = open_slide(write_slide(tmp_path / "slide.tif", noise((640, 512)))).at_shape((40, 32))
    expected, _ = whole(reader)
    sizes = []
    read_level = module.SlideReader._read_level

    def measured(*args):
        sizes.append(args[-1].shape)
        return read_level(*args)

    monkeypatch.setattr(module.SlideReader, "_read_level", measured)
    monkeypatch.setattr(module, "_PIECE_BYTES", 4 * 2048)
    np.testing.assert_array_equal(whole(reader)[0], expected)
    assert max(height * width for height, width in sizes) <= 2048


# A pyramid whose levels are no whole ratios: 4.004 and 4.005, then 16.15 and 16.19.
PYRAMID = [(1001, 777), (250, 194), (62, 48)]


@pytest.fixture(scope="module")
def levels():
    return [noise(shape, seed) for seed, shape in enumerate(PYRAMID)]


@pytest.fixture(scope="module")
def pyramid(tmp_path_factory, levels):
    return open_slide(write_slide(tmp_path_factory.mktemp("slides") / "pyramid.tif", *levels))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_grid_of_a_levels_size_is_that_level(pyramid, levels, number):
    reader = pyramid.at_shape(PYRAMID[number])
    np.testing.assert_array_equal(whole(reader)[0], levels[number])
    assert reader.level0_px_per_px == (1001 / PYRAMID[number][0], 777 / PYRAMID[number][1])


@pytest.mark.parametrize(
    ("mpp_um_per_px", "shape"),
    [
        (0.5, (1001, 777)),
        (0.504, (1001, 777)),  # within 1 %: the level as it is
        (2.0, (250, 194)),
        (2.01, (250, 194)),
        (2.1, (238, 185)),
        (8.1, (62, 48)),
        (8.0, (63, 49)),  # that level is 1.2 % off
    ],
)
def test_a_level_within_one_percent_is_taken_as_it_is(pyramid, mpp_um_per_px, shape):
    assert pyramid.at_mpp(mpp_um_per_px).shape == shape


def mean_along_first_axis(values, few):
    """The integral up to each border between the few pixels, and its differences."""
    many = values.shape[0]
    integral = np.concatenate([np.zeros_like(values[:1], np.float64), values.cumsum(axis=0, dtype=np.float64)])
    borders = np.arange(few + 1) * many / few
    below = np.minimum(borders.astype(int), many - 1)
    share = (borders - below)[:, None, None]
    return np.diff(integral[below] * (1 - share) + integral[below + 1] * share, axis=0) * few / many


@pytest.mark.parametrize(("shape", "number"), [((100, 77), 1), ((249, 193), 1), ((31, 24), 2), ((700, 600), 0)])
def test_other_grids_average_the_next_finer_level(pyramid, levels, shape, number):
    rgb, valid = whole(pyramid.at_shape(shape))
    fine = mean_along_first_axis(levels[number], shape[0])
    fine = mean_along_first_axis(fine.transpose(1, 0, 2), shape[1]).transpose(1, 0, 2)
    # Rounded to whole numbers: half a grey level, and the float32 sums (see test_resample).
    assert np.abs(rgb - fine).max() <= 0.5 + 0.01
    assert valid.all()


def test_landmarks_stay_in_place_on_every_grid(tmp_path):
    """A block of the slide covers the same part of the slide on every grid, within one pixel of level 0."""
    height, width = 1001, 777
    image = np.full((height, width, 3), 255, np.uint8)
    top, bottom, left, right = 301, 702, 200, 501
    image[top:bottom, left:right] = 0

    def shrunk(shape):
        rows, columns = (
            ((np.arange(few) + 0.5) * many / few).astype(int) for few, many in zip(shape, (height, width), strict=True)
        )
        return image[np.ix_(rows, columns)]

    slide = open_slide(write_slide(tmp_path / "slide.tif", image, *map(shrunk, PYRAMID[1:])))
    for shape in [(1001, 777), (500, 389), (250, 194), (100, 80), (62, 48), (20, 16)]:
        reader = slide.at_shape(shape)
        dark = 1 - whole(reader)[0][..., 0] / 255
        y_scale, x_scale = reader.level0_px_per_px
        # Its extents are the sums along the axes, in pixels of level 0. A level that was made by nearest
        # neighbour is itself off by up to half of its pixels at either side.
        level_scale = max(1.0, *(height / level[0] for level in PYRAMID if level[0] >= shape[0]))
        slack_px = 1 if level_scale == 1 else level_scale
        assert dark.sum(axis=0).max() * y_scale == pytest.approx(bottom - top, abs=slack_px)
        assert dark.sum(axis=1).max() * x_scale == pytest.approx(right - left, abs=slack_px)
        y_centre = (dark.sum(axis=1) * (np.arange(shape[0]) + 0.5)).sum() / dark.sum() * y_scale
        x_centre = (dark.sum(axis=0) * (np.arange(shape[1]) + 0.5)).sum() / dark.sum() * x_scale
        assert y_centre == pytest.approx((top + bottom) / 2, abs=slack_px)
        assert x_centre == pytest.approx((left + right) / 2, abs=slack_px)


def test_windows_of_a_coarse_grid_fit_together(slide):
    reader = slide.at_shape((61, 83))
    expected, _ = whole(reader)
    for window in [Window.of(0, 0, 10, 83), Window.of(7, 30, 54, 41), Window.of(60, 82, 1, 1)]:
        np.testing.assert_array_equal(reader.read(window)[0], expected[window.slices])


def test_what_was_not_scanned_is_white_and_invalid(tmp_path, pixels):
    # Tiles of 64 px in rows of 4; 1 and 6 are not in the file.
    slide = open_slide(write_slide(tmp_path / "sparse.tif", pixels, missing=[1, 6]))
    rgb, valid = whole(slide)
    expected = np.ones(SHAPE, bool)
    expected[:64, 64:128] = False
    expected[64:128, 128:192] = False
    np.testing.assert_array_equal(valid, expected)
    assert (rgb[~valid] == 255).all()
    np.testing.assert_array_equal(rgb[valid], pixels[valid])


def test_a_coarse_pixel_is_valid_when_all_of_it_was_scanned(tmp_path):
    slide = open_slide(write_slide(tmp_path / "sparse.tif", noise((128, 192)), missing=[1]))
    _, valid = whole(slide.at_shape((20, 30)))  # 6.4 px of level 0 per pixel: columns 10 to 19 are the tile
    expected = np.ones((20, 30), bool)
    expected[:10, 10:20] = False
    np.testing.assert_array_equal(valid, expected)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, (255, 255, 255)),
        ({"openslide.background-color": "0A141E"}, (10, 20, 30)),
        ({"openslide.background-color": "?"}, (255, 255, 255)),
    ],
)
def test_background_is_the_slides_own(properties, expected):
    assert module._background(properties) == expected


def test_a_resolution_finer_than_the_slide_is_refused(slide):
    with pytest.raises(SlideError, match=r"0\.5 um per px at full resolution, coarser than the 0\.25"):
        slide.at_mpp(0.25)


def test_without_a_pixel_size_only_work_in_pixels_goes_on(tmp_path, pixels):
    slide = open_slide(write_slide(tmp_path / "slide.tif", pixels, resolution=(1, 1), resolutionunit="NONE"))
    assert slide.mpp_um_per_px is None
    np.testing.assert_array_equal(whole(slide)[0], pixels)
    assert slide.overview(1000)[0].shape == (27, 37, 3)  # 150 x 200 px divided by sqrt(30)
    with pytest.raises(SlideError, match="mpp column of the cohort table"):
        slide.at_mpp(1.0)


def test_overview_is_bounded(slide):
    rgb, valid = slide.overview(3000)
    assert rgb.shape[:2] == valid.shape
    assert abs(rgb.shape[0] * rgb.shape[1] - 3000) <= 100  # sides rounded to whole pixels: half a pixel of each
    assert slide.overview(10**9)[0].shape[:2] == SHAPE


def test_a_pickled_reader_reads_and_threads_have_handles_of_their_own(slide, pixels):
    again = pickle.loads(pickle.dumps(slide))
    assert again == slide
    results = []

    def read():
        handle = module._sources.get(slide.path)
        results.append((whole(again)[0], handle))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((rgb == pixels).all() for rgb, _ in results)
    assert len({id(handle) for _, handle in results}) == 3


def test_few_slides_are_open_at_once(tmp_path):
    for number in range(7):
        whole(open_slide(write_slide(tmp_path / f"{number}.tif", noise((70, 70), number))))
    assert len(module._sources._open) <= source._OPEN_SLIDES


def test_a_damaged_tile_is_named_and_the_next_read_works(tmp_path):
    pixels = noise((256, 256))
    path = write_slide(tmp_path / "slide.tif", pixels)
    slide = open_slide(damage_tile(path, 5))
    with pytest.raises(SlideError, match=r"slide\.tif cannot be read at level 0, rows 60 to 130, columns 64 to 130"):
        slide.read(Window.of(60, 64, 70, 66))
    rgb, _ = slide.read(Window.of(0, 0, 64, 256))
    np.testing.assert_array_equal(rgb, pixels[:64])
    damage = Damage()
    rgb, valid = whole(slide.counting(damage))
    pixels[64:128, 64:128] = 255
    np.testing.assert_array_equal(rgb, pixels)
    assert not valid[64:128, 64:128].any()
    assert (damage.tiles, damage.lost_px, (~valid).sum()) == ({(0, 1, 1)}, 64 * 64, 64 * 64)
    assert "slide.tif cannot be read at level 0, rows 0 to 256, columns 0 to 256" in damage.first


def test_tiles_no_memory_holds_are_refused_before_openslide_ends_the_process(tmp_path):
    path = write_slide(tmp_path / "slide.tif", noise((256, 256)))
    with tifffile.TiffFile(path, mode="r+") as tiff:
        for name in ("TileWidth", "TileLength"):
            tiff.pages.first.tags[name].overwrite(1 << 18)
    with pytest.raises(SlideError, match=r"slide\.tif is damaged: it says its tiles are \(262144, 262144\) px"):
        open_slide(path)


def test_a_damaged_tile_is_counted_in_pixels_of_a_coarser_grid(tmp_path):
    slide = open_slide(damage_tile(write_slide(tmp_path / "slide.tif", noise((256, 256))), 5)).at_shape((100, 100))
    damage = Damage()
    _, valid = whole(slide.counting(damage))
    # 2.56 px of level 0 per pixel: 64 to 128 is 25 to 50.
    expected = np.ones((100, 100), bool)
    expected[25:50, 25:50] = False
    np.testing.assert_array_equal(valid, expected)
    assert damage.lost_px == 25 * 25


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("text.svs", b"this is a text", "it is a text file"),
        ("empty.svs", b"", r"the file is empty \(0 bytes\)"),
        ("absent.svs", None, "there is no such file"),
        ("picture.svs", b"\x89PNG\r\n\x1a\n" + bytes(40), "it is a PNG picture, not a slide"),
        ("index.mrxs", b"\xff\xd8\xff" + bytes(40), "it is a JPEG picture, not a slide"),
        ("rubbish.svs", bytes(range(256)), "it is no slide format that OpenSlide knows"),
    ],
)
def test_what_is_no_slide_is_refused_with_the_reason(tmp_path, name, content, reason):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SlideError, match=f"{name} cannot be opened as a slide: {reason}"):
        open_slide(tmp_path / name)


def test_the_real_slide(real_slide):
    slide = open_slide(real_slide)
    assert (slide.shape, slide.mpp_um_per_px, slide.resolution.source) == ((2967, 2220), (0.499, 0.499), "openslide")
    rgb, valid = slide.at_mpp(4.0).overview(10**6)
    assert rgb.shape == (370, 277, 3)
    assert valid.all()
    assert rgb[5:60, 30:90].mean() > 240  # glass
    assert rgb[200:220, 110:160].mean() < 200  # tissue


def test_a_truncated_slide_is_refused_with_the_reason(tmp_path, real_slide):
    half = tmp_path / "half.svs"
    half.write_bytes(real_slide.read_bytes()[: real_slide.stat().st_size // 2])
    with pytest.raises(SlideError, match=r"half\.svs cannot be opened as a slide: it is cut short"):
        open_slide(half)
