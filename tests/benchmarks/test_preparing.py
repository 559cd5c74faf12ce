import json
import subprocess
import sys

import numpy as np
import pytest
import tifffile

from gigaslide import config
from gigaslide.benchmarks import preparing
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.geometry import Window
from gigaslide.slides.cohort import CohortRow
from tests.slides.jpeg import blobs, write_jpeg_slide
from tests.stages.test_prepare import ROOT

SHAPE = (700, 900)


@pytest.fixture
def rows(tmp_path):
    found = []
    for name in ("a", "b"):
        slide = write_jpeg_slide(tmp_path / f"{name}.tif", blobs(SHAPE), tile_px=256)
        tifffile.imwrite(tmp_path / f"{name}_mask.tif", np.eye(*SHAPE, dtype=np.uint8))
        found.append(CohortRow(name, slide, tmp_path / f"{name}_mask.tif", "train", None, None))
    return found


@pytest.mark.parametrize(("shape", "processes"), [((2967, 2220), 2), ((16000, 64000), 2), ((300, 10), 4)])
def test_openslides_windows_cover_the_slide_and_can_be_shared_out(shape, processes):
    code = f"from gigaslide.benchmarks.openslide_alone import windows; print(windows({shape}, {processes}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = [Window.of(*place) for place in json.loads(done.stdout.replace("(", "[").replace(")", "]"))]
    seen = np.zeros([size // 10 + 1 for size in shape], int)
    for window in found:
        seen[
            -(-window.y.start // 10) : -(-window.y.stop // 10), -(-window.x.start // 10) : -(-window.x.stop // 10)
        ] += 1
    assert sum(window.shape[0] * window.shape[1] for window in found) == shape[0] * shape[1]
    assert seen.max() == 1
    assert len(found) >= 4 * processes or max(window.shape[0] for window in found) <= 256


@pytest.mark.slow
def test_both_sides_are_timed(rows, tmp_path):
    settings = config.load(ROOT / "params.yaml")
    (tmp_path / "scratch").mkdir()
    figures = preparing.measure(settings, rows, tmp_path / "scratch", 2, rounds=1)
    for slide in figures["slides"]:
        assert len(slide["openslide_s_all"]) == len(slide["prepare_s_all"]) == 10
        assert slide["ratio"] == slide["prepare_s"] / slide["openslide_s"] > 0
    for both in (figures["together"], figures["whole_commands"]):
        assert both["ratio"] == both["prepare_s"] / both["openslide_s"]
    # A whole command includes starting Python and processes, which no timed part does.
    assert figures["whole_commands"]["prepare_s"] > figures["together"]["prepare_s"]
    assert figures["at_most_half"] == (figures["together"]["ratio"] <= 0.5)
    assert not list((tmp_path / "scratch").glob("*.zarr"))


def test_a_slide_that_openslide_cannot_read_is_said(tmp_path):
    (tmp_path / "no.svs").write_text("text")
    with pytest.raises(GigaslideError, match="OpenSlide alone failed"):
        preparing.openslide_alone([tmp_path / "no.svs"], 1, 1)


def test_without_the_large_slide_it_says_how_to_make_it(tmp_path, monkeypatch):
    monkeypatch.setattr(preparing.large_slide, "FOLDER", tmp_path)
    with pytest.raises(UsageError, match=r"large\.tiff: `gigaslide bench steps --make-slide` makes it"):
        preparing.rows_of(config.load(ROOT / "params.yaml"))
