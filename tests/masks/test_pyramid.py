import numpy as np
import openslide
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gigaslide.masks import pyramid
from gigaslide.masks.mask_tiff import MASK
from gigaslide.masks.pyramid import PyramidWriter, level_shapes

LABELS = np.random.default_rng(0).choice(np.array([0, 1, 255], np.uint8), (1501, 2103))


def write(path, labels=LABELS, bands=(512,), kind=MASK, mpp=(0.5, 0.25)):
    with PyramidWriter(path, labels.shape, mpp, kind) as writer:
        start = 0
        while start < len(labels):
            for rows in bands:
                writer.write_rows(labels[start : start + rows])
                start += rows
    return path


@pytest.mark.parametrize(
    ("shape", "levels"),
    [((1, 1), [(1, 1)]), ((1024, 3), [(1024, 3)]), ((1025, 3), [(1025, 3), (513, 2)]), ((3, 4099), None)],
)
def test_levels_are_halves_rounded_up(shape, levels):
    assert level_shapes(shape) == (levels or [(3, 4099), (2, 2050), (1, 1025), (1, 513)])


def test_bytes_do_not_depend_on_the_bands(tmp_path):
    whole = write(tmp_path / "whole.tif", bands=(1501,)).read_bytes()
    assert write(tmp_path / "some.tif", bands=(1, 700, 3)).read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["some.tif", "whole.tif"]


def test_levels_are_a_plain_chain_of_tiled_directories(tmp_path):
    with tifffile.TiffFile(write(tmp_path / "mask.tif")) as file:
        assert [page.shape for page in file.pages] == level_shapes(LABELS.shape)
        for number, page in enumerate(file.pages):
            assert page.is_tiled
            assert page.subifds is None
            assert int(page.subfiletype) == (number > 0)
            x_per_cm, y_per_cm = page.resolution
            # The tag is a fraction of 32-bit whole numbers.
            assert (1e4 / y_per_cm, 1e4 / x_per_cm) == pytest.approx((0.5 * 2**number, 0.25 * 2**number), rel=1e-6)


def test_without_mpp_there_is_no_resolution(tmp_path):
    with tifffile.TiffFile(write(tmp_path / "mask.tif", mpp=None)) as file:
        assert "XResolution" not in file.pages.first.tags or file.pages.first.resolution == (1, 1)
        assert int(file.pages.first.resolutionunit) == 1


def test_a_file_of_many_bytes_is_a_bigtiff(tmp_path, monkeypatch):
    with tifffile.TiffFile(write(tmp_path / "classic.tif")) as file:
        assert not file.is_bigtiff
    monkeypatch.setattr(pyramid, "_CLASSIC_BYTES", 100_000)
    with tifffile.TiffFile(write(tmp_path / "big.tif")) as file:
        assert file.is_bigtiff
        np.testing.assert_array_equal(file.pages.first.asarray(), LABELS)
    with openslide.OpenSlide(tmp_path / "classic.tif") as classic, openslide.OpenSlide(tmp_path / "big.tif") as big:
        shown = [np.asarray(slide.read_region((0, 0), 1, slide.level_dimensions[1])) for slide in (classic, big)]
    np.testing.assert_array_equal(*shown)


def test_after_an_error_there_is_what_was_there(tmp_path):
    path = tmp_path / "mask.tif"
    path.write_bytes(b"before")
    with pytest.raises(RuntimeError, match="power cut"), PyramidWriter(path, LABELS.shape, None, MASK) as writer:
        writer.write_rows(LABELS[:600])
        raise RuntimeError("power cut")
    with pytest.raises(ValueError, match="has 1501 rows; received 600"):  # noqa: SIM117
        with PyramidWriter(path, LABELS.shape, None, MASK) as writer:
            writer.write_rows(LABELS[:600])
    with pytest.raises(ValueError, match="has 1501 rows; received 1502"):  # noqa: SIM117
        with PyramidWriter(path, LABELS.shape, None, MASK) as writer:
            writer.write_rows(np.zeros((1502, 2103), np.uint8))
    assert [item.name for item in tmp_path.iterdir()] == ["mask.tif"]
    assert path.read_bytes() == b"before"


@pytest.mark.parametrize("rows", [np.zeros((3, 5), np.uint8), np.zeros((3, 4), bool), np.zeros(4, np.uint8)])
def test_rows_of_another_picture_are_refused(tmp_path, rows):
    with pytest.raises(ValueError, match="rows are uint8"), PyramidWriter(tmp_path / "m.tif", (9, 4), None, MASK) as it:
        it.write_rows(rows)


@settings(max_examples=100, deadline=None)
@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9)), st.data())
def test_blocks_of_every_size_are_reduced_by_their_number_and_sum(values, data):
    table = np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, 256, (5, 1021)).astype(np.uint8)
    height, width = values.shape
    target = np.zeros((-(-height // 2), -(-width // 2)), np.uint8)
    pyramid._reduce(values, table, target)
    for row in range(target.shape[0]):
        for column in range(target.shape[1]):
            block = values[2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            assert target[row, column] == table[block.size, block.sum(dtype=int)]
