"""A slide from its file to its outputs, in this process; the batch around it is tested with the stage."""

import json
from pathlib import Path

import imagecodecs
import numpy as np
import openslide
import pytest
import tifffile

from gigaslide import config
from gigaslide.geometry import Window
from gigaslide.memory import planner
from gigaslide.network import unet
from gigaslide.network.model_file import About
from gigaslide.prediction import outputs, survey
from gigaslide.prediction.area import SlideArea
from gigaslide.prediction.request import Request
from gigaslide.prediction.slide import Network, predict_slide
from gigaslide.slides.labels import open_labels
from gigaslide.slides.reader import open_slide
from gigaslide.streaming.whole import WholeImage
from tests.networks import randomise
from tests.prediction.huge import BLOCK_PX, RADIUS_PX, predict_huge
from tests.slides.files import damage_tile, noise, write_slide
from tests.slides.mirax import write_mrxs

PARAMS = config.load(Path(__file__).parents[2] / "params.yaml")
EXACT = Request(simplify_um=0.0)
# A logit is a sum of some hundred products, each rounded by 2^-24 of itself; a probability moves by a quarter of it.
ROUNDING = 2.0**-16


@pytest.fixture(scope="module")
def network():
    return Network(randomise(unet.build(PARAMS.network, 0), 7), About(0.5, 0.5), "random", "0" * 64)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(planner, "_TILE_PX", (128,))
    monkeypatch.setattr(planner, "_SMALLEST_TILE_PX", 128)
    monkeypatch.setattr(survey, "WINDOW_PX", 128)


def quiet(share):
    pass


def predict(path, network, folder, request=EXACT, **more):
    return predict_slide(open_slide(path), network, request, folder, 2, 8e9, more.get("progress", quiet))


def mask_of(folder):
    return tifffile.imread(folder / outputs.MASK, key=0)


def pale(shape, seed=0):
    """Glass with coloured specks of all sizes: what a random network makes of it is of many pieces and holes."""
    random = np.random.default_rng(seed)
    pixels = np.full((*shape, 3), (245, 244, 243), np.uint8)
    for _ in range(60):
        y, x, size = random.integers(0, shape[0]), random.integers(0, shape[1]), random.integers(4, 80)
        pixels[y : y + size, x : x + size] = random.integers(60, 240, 3)
    return pixels


def test_the_mask_is_that_of_the_whole_image(tmp_path, network):
    path = write_slide(tmp_path / "a.tif", pale((500, 701)))
    summary = predict(path, network, tmp_path / "out")
    reader = open_slide(path)
    area = SlideArea(reader, tuple(summary["glass_rgb"]))
    ((_, probability),) = WholeImage(network.model, PARAMS.network.total_stride, 1.0, 1.0).predict(area)
    mask = mask_of(tmp_path / "out")
    assert mask.shape == (500, 701)
    assert set(np.unique(mask)) == {0, 1}
    near = np.abs(probability - 0.5) < ROUNDING
    assert near.mean() < 1e-3  # or the test would not see much
    np.testing.assert_array_equal(mask[~near], (probability >= 0.5)[~near])
    assert "tile:128" in summary["plan"]


def test_every_file_tells_of_the_same_pixels(tmp_path, network):
    path = write_slide(tmp_path / "a.tif", pale((300, 420)))
    summary = predict(path, network, tmp_path, Request(simplify_um=0.0, heatmap=True))
    mask = mask_of(tmp_path)
    assert summary["tissue_px"] == np.count_nonzero(mask == 1)
    assert summary["tissue_mm2"] == pytest.approx(summary["tissue_px"] * 0.25e-6)
    assert summary["status"] == "done"
    reader = open_slide(path)
    for name in (outputs.MASK, outputs.GEOJSON):
        labels = open_labels(reader, tmp_path / name, PARAMS.labels)
        np.testing.assert_array_equal(labels.read(Window.of(0, 0, 300, 420)), mask)
    heat = tifffile.imread(tmp_path / outputs.HEATMAP, key=0)
    np.testing.assert_array_equal(heat >= 128, mask == 1)  # 127.5 is one half
    with openslide.OpenSlide(tmp_path / outputs.MASK) as opened:
        assert opened.dimensions == (420, 300)
        assert float(opened.properties["openslide.mpp-x"]) == pytest.approx(0.5)


def test_areas_not_scanned_are_invalid_and_lost_tiles_too(tmp_path, network):
    path = write_slide(tmp_path / "a.tif", pale((256, 256)), missing=[2, 3])
    damage_tile(path, 9)
    summary = predict(path, network, tmp_path, Request(max_corrupt_fraction=0.2))
    mask = mask_of(tmp_path)
    invalid = np.zeros((256, 256), bool)
    invalid[:64, 128:] = True
    invalid[128:192, 64:128] = True
    np.testing.assert_array_equal(mask == 255, invalid)
    assert summary["invalid_share"] == 3 / 16
    assert summary["corrupt_share"] == 1 / 16
    assert any("1 corrupt tile(s)" in text for text in summary["warnings"])


@pytest.mark.parametrize("threshold", [0.9999, 0.0001])
def test_no_tissue_is_a_result(tmp_path, network, threshold):
    path = write_slide(tmp_path / "a.tif", np.full((200, 150, 3), 255, np.uint8))
    summary = predict(path, network, tmp_path, Request(threshold=threshold))
    if threshold > 0.5:
        assert summary["status"] == "no_tissue"
        assert json.loads((tmp_path / outputs.GEOJSON).read_text()) == {"type": "FeatureCollection", "features": []}
        assert not mask_of(tmp_path).any()
    else:
        assert summary["pieces"] == 1
        assert summary["tissue_share"] == 1.0


def test_a_finer_slide_is_predicted_at_the_networks_pixels_and_drawn_at_its_own(tmp_path, network):
    pixels = pale((200, 300)).repeat(2, axis=0).repeat(2, axis=1)
    path = write_slide(tmp_path / "a.tif", pixels, resolution=(40000, 40000), resolutionunit="CENTIMETER")
    summary = predict(path, network, tmp_path / "fine")
    assert summary["shape_px"] == [200, 300]
    assert summary["level0_px_per_px"] == [2.0, 2.0]
    coarse = predict(write_slide(tmp_path / "b.tif", pale((200, 300))), network, tmp_path / "coarse")
    np.testing.assert_array_equal(mask_of(tmp_path / "fine"), mask_of(tmp_path / "coarse"))
    assert summary["tissue_mm2"] == pytest.approx(coarse["tissue_mm2"])
    labels = open_labels(open_slide(path), tmp_path / "fine" / outputs.GEOJSON, PARAMS.labels)
    expected = mask_of(tmp_path / "fine").repeat(2, axis=0).repeat(2, axis=1)
    np.testing.assert_array_equal(labels.read(Window.of(0, 0, 400, 600)), expected)


def test_small_pieces_and_holes_are_cleaned_if_asked_and_that_is_kept(tmp_path, network):
    path = write_slide(tmp_path / "a.tif", pale((300, 420)))
    plain = predict(path, network, tmp_path / "plain")
    clean = predict(path, network, tmp_path / "clean", Request(min_piece_um2=3.0, min_hole_um2=3.0))
    assert 0 < clean["pieces"] < plain["pieces"]
    assert clean["holes"] < plain["holes"]
    assert clean["settings"]["min_piece_um2"] == 3.0
    assert clean["tissue_px"] == np.count_nonzero(mask_of(tmp_path / "clean") == 1)


@pytest.mark.parametrize("origin", ["bounds", "full"])
def test_coordinates_of_a_slide_with_borders_start_where_qupath_starts(tmp_path, network, origin):
    levels = [noise((512, 512)), noise((256, 256))]
    missing = {(row, column) for row in range(8) for column in range(8) if row < 2 or column < 3}
    path = write_mrxs(tmp_path / "a.mrxs", levels, 64, missing, imagecodecs.png_encode, "PNG")
    reader = open_slide(path)
    assert reader.bounds_origin_yx_px == (128, 192)
    predict(path, network, tmp_path / "out", Request(simplify_um=0.0, origin=origin))
    rings = [
        np.array(ring)
        for feature in json.loads((tmp_path / "out" / outputs.GEOJSON).read_text())["features"]
        for ring in feature["geometry"]["coordinates"]
    ]
    first = np.concatenate(rings).min(axis=0)
    mask = mask_of(tmp_path / "out")
    rows, columns = np.nonzero(mask == 1)
    assert (mask[:128] == 255).all()
    shift = np.array([192, 128]) if origin == "bounds" else np.zeros(2)
    np.testing.assert_array_equal(first, np.array([columns.min(), rows.min()]) - shift)


def test_progress_only_grows_and_ends_at_one(tmp_path, network):
    shares = []
    predict(write_slide(tmp_path / "a.tif", pale((300, 420))), network, tmp_path, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_budget_that_is_too_small_is_refused(tmp_path, network):
    path = write_slide(tmp_path / "a.tif", pale((300, 420)))
    with pytest.raises(planner.DoesNotFit, match="give a larger --budget-gb"):
        predict_slide(open_slide(path), network, EXACT, tmp_path, 2, 0.3e9, quiet)


def test_a_slide_larger_than_memory_of_which_little_was_scanned(tmp_path, monkeypatch):
    monkeypatch.undo()  # tiles and windows as they are
    summary = predict_huge((20_000, 24_000), tmp_path, 2.0)
    disc_mm2 = np.pi * RADIUS_PX**2 * 0.25e-6
    assert summary["tissue_mm2"] == pytest.approx(disc_mm2, rel=0.02)
    assert summary["invalid_share"] == pytest.approx(1 - BLOCK_PX**2 / (20_000 * 24_000))
    with tifffile.TiffFile(tmp_path / outputs.MASK) as file:
        assert file.pages[0].shape == (20_000, 24_000)
        smallest = file.pages[-1].asarray()
    scale = 20_000 / smallest.shape[0]
    y, x = np.argwhere(smallest == 1).mean(axis=0) * scale
    assert abs(y - (8_000 + BLOCK_PX / 2)) < 2 * scale
    assert abs(x - (16_800 + BLOCK_PX / 2)) < 2 * scale
