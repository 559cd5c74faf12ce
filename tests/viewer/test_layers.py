import io

import numpy as np
import pytest
from PIL import Image

from gigaslide.viewer.layers import LayerTiles
from gigaslide.viewer.paint import LINE_PX, STYLES
from gigaslide.viewer.shares import Shares
from gigaslide.viewer.strokes import Stroke
from tests.viewer.sessions import SHAPE, masks
from tests.viewer.test_shares import ArrayLabels

FULL = 9  # the level of full resolution: 512 px hold 420


@pytest.fixture(scope="module")
def tiles():
    prediction, truth = masks()
    shares = Shares(SHAPE, ArrayLabels(prediction), ArrayLabels(truth))
    shares.sample()
    return LayerTiles(shares, "prediction")


def level(tiles, layer, number, strokes=()):
    """Return a whole level, uint8 (y, x, 4), from its tiles."""
    canvas = np.zeros((*tiles.zoom.level_shape(number), 4), np.uint8)
    down, across = tiles.zoom.tile_counts(number)
    for row in range(down):
        for column in range(across):
            tile = np.asarray(Image.open(io.BytesIO(tiles.read(layer, strokes, number, column, row))))
            canvas[tiles.zoom.window(number, column, row).slices] = tile
    return canvas


def test_the_pyramid_goes_beyond_full_resolution(tiles):
    assert tiles.zoom.level_shape(FULL) == SHAPE
    assert tiles.zoom.level_shape(FULL + 3) == (8 * SHAPE[0], 8 * SHAPE[1])
    assert tiles.zoom.level_count == FULL + 4
    assert tiles.read("prediction", (), FULL, 2, 0) is None


@pytest.mark.parametrize("layer", ["prediction", "truth"])
def test_tissue_is_what_is_coloured(tiles, layer):
    found = level(tiles, layer, FULL)
    expected = masks()[layer == "truth"]
    assert ((found[..., 3] > 0) == (expected > 0)).all()
    inside = expected == 1
    assert (found[inside][:, :3] == STYLES[layer].line[:3]).all()
    deep = inside & (np.roll(inside, 5, 0) & np.roll(inside, -5, 0) & np.roll(inside, 5, 1) & np.roll(inside, -5, 1))
    assert (found[deep][:, 3] == STYLES[layer].fill[3]).all()


def test_missed_and_false_have_their_colours(tiles):
    found = level(tiles, "disagreement", FULL)
    prediction, truth = masks()
    for flags, style in (
        ((truth == 1) & (prediction == 0), "missed"),
        ((prediction == 1) & (truth == 0), "false"),
    ):
        assert flags.any()
        assert (found[flags][:, :3] == STYLES[style].line[:3]).all()
    assert (found[..., 3] > 0).sum() == ((truth != prediction) & (truth != 255)).sum()


@pytest.mark.parametrize("number", [FULL - 2, FULL, FULL + 2])
def test_an_outline_is_as_thin_at_every_zoom(tiles, number):
    """Along the row through the middle of the disc: line, fill, line."""
    row = level(tiles, "prediction", number)[140 * tiles.zoom.level_shape(number)[0] // SHAPE[0], :, 3]
    left = np.flatnonzero(row)[0]
    assert (row[left : left + LINE_PX] == 255).all()
    assert row[left + LINE_PX] == STYLES["prediction"].fill[3]


@pytest.mark.parametrize("number", [FULL, FULL + 1])
def test_outlines_do_not_know_where_tiles_end(tiles, number):
    """A mask moved by half a tile looks the same there."""
    prediction, _ = masks()
    moved_by = 128 >> (number - FULL)
    shape = SHAPE[0], SHAPE[1] + moved_by
    moved = np.zeros(shape, np.uint8)
    moved[:, moved_by:] = prediction
    shares = Shares(shape, ArrayLabels(moved), None)
    shares.sample()
    other = LayerTiles(shares, "prediction")
    start = moved_by << (number - FULL)
    one, two = (
        level(tiles, "prediction", number),
        level(other, "prediction", other.zoom.level_count - 4 + number - FULL),
    )
    np.testing.assert_array_equal(one[:, 20:], two[:, start + 20 :])


def test_full_resolution_pixels_are_squares_beyond_it(tiles):
    found = level(tiles, "prediction", FULL + 2)[..., 3] > 0
    expected = (masks()[0] == 1).repeat(4, axis=0).repeat(4, axis=1)
    np.testing.assert_array_equal(found, expected)


STROKES = (Stroke("brush", "glass", ((100.0, 140.0),), 30.0), Stroke("brush", "tissue", ((400.0, 280.0),), 15.0))


@pytest.mark.parametrize("number", [FULL, FULL + 1])
def test_corrections_lie_over_the_mask_they_began_with(tiles, number):
    found = level(tiles, "corrections", number, STROKES)
    width = 1 << (number - FULL)
    assert found[140 * width, 100 * width, 3] == 0
    assert found[280 * width, 400 * width, 3] == STYLES["corrected"].fill[3]
    plain = level(tiles, "corrections", number)
    assert plain[140 * width, 100 * width, 3] == STYLES["corrected"].fill[3]
    assert plain[280 * width, 400 * width, 3] == 0


def test_an_ignored_area_is_hatched(tiles):
    found = level(tiles, "corrections", FULL, (Stroke("brush", "ignore", ((160.0, 140.0),), 30.0),))
    patch = found[130:150, 150:170]
    assert (patch[..., :3] == STYLES["invalid"].fill[:3]).all()
    assert len(np.unique(patch[..., 3])) == 2


def test_coarse_levels_show_the_strokes_too(tiles):
    for number in range(FULL - 4, FULL):
        plain, drawn = (level(tiles, "corrections", number, strokes) for strokes in ((), STROKES))
        scale = SHAPE[0] / tiles.zoom.level_shape(number)[0]
        at = int(140 / scale), int(100 / scale)
        assert plain[at][3] > 0
        assert drawn[at][3] == 0


def test_small_pieces_do_not_vanish_from_far():
    prediction = np.zeros((256, 256), np.uint8)
    prediction[100:102, 100:102] = 1
    shares = Shares((256, 256), ArrayLabels(prediction), None)
    shares.sample()
    found = level(LayerTiles(shares, None), "prediction", 6)  # 4 px for one
    assert found[25, 25, 3] > 0
