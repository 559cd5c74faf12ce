import csv
import json

import numpy as np
import pytest
import tifffile

from gigaslide import config
from gigaslide.errors import GigaslideError, GigaslideWarning
from gigaslide.evaluation.slide import measure
from gigaslide.geometry import Window
from gigaslide.slides.store import SCHEMA_VERSION, StoreWriter, open_split
from gigaslide.stages import evaluate
from gigaslide.stages.paths import STORES
from tests.evaluation.slides import MaskEngine, RunDouble, blobs

SETTINGS = config.load()


@pytest.fixture
def slides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cohort = [blobs("first", seed=1), blobs("second slide+", seed=2)]
    monkeypatch.setattr(evaluate, "open_split", lambda folder, split: cohort if split == "test" else [])
    return cohort


def read(name):
    return (evaluate.FOLDER / name).read_text(encoding="utf-8")


def test_all_files_are_written_and_agree(slides):
    run = RunDouble()
    evaluate.run(SETTINGS, MaskEngine(shift_px=3), run)
    metrics = json.loads(read("metrics.json"))
    rows = list(csv.DictReader(read("slides.csv").splitlines()))
    assert metrics["slide_count"] == 2
    assert {row["slide"]: float(row["dice"]) for row in rows if row["method"] == "network"} == metrics["slides"]
    assert {row["slide"]: float(row["dice"]) for row in rows if row["method"] == "auto"} == metrics["auto_slides"]
    assert {row["artefact"] for row in csv.DictReader(read("artefacts.csv").splitlines())} == {
        "fold",
        "pen_black",
        "elsewhere",
    }
    assert run.metrics["test_dice_mean"] == metrics["dice_mean"]
    assert run.metrics["test_dice/first"] == metrics["slides"]["first"]
    assert run.metrics["test_auto_dice/second slide_"] == metrics["auto_slides"]["second slide+"]
    assert "test_slide_count" in run.metrics


def test_the_numbers_are_those_of_the_pixels(slides):
    evaluate.run(SETTINGS, MaskEngine(shift_px=3), RunDouble())
    slide = slides[0]
    tissue = np.roll(slide.mask == 1, 3, axis=0)
    # 4 um at 0.5 um per px
    outcome = measure(slide, {"network": lambda window: tissue[window.slices]}, 8.0)["network"]
    row = next(csv.DictReader(read("slides.csv").splitlines()))
    assert int(row["true_positive_px"]) == outcome.counts.true_positive
    assert float(row["boundary_f"]) == round(outcome.boundary.f_score, 6)
    assert float(row["boundary_tolerance_px"]) == 8.0


def test_masks_hold_the_prediction(slides):
    evaluate.run(SETTINGS, MaskEngine(shift_px=3), RunDouble())
    for slide in slides:
        expected = np.where(slide.mask == 255, 255, np.roll(slide.mask == 1, 3, axis=0))
        np.testing.assert_array_equal(tifffile.imread(evaluate.FOLDER / "masks" / f"{slide.name}.tif"), expected)


def test_twice_gives_the_same_bytes_and_leaves_nothing_else(slides):
    def contents():
        return {path.name: path.read_bytes() for path in evaluate.FOLDER.rglob("*") if path.is_file()}

    evaluate.run(SETTINGS, MaskEngine(shift_px=3), RunDouble())
    first = contents()
    evaluate.run(SETTINGS, MaskEngine(shift_px=3, rows=100), RunDouble())
    assert contents() == first
    assert set(first) == {"metrics.json", "slides.csv", "artefacts.csv", "first.tif", "second slide+.tif"}


def test_the_threshold_is_used(slides):
    engine = MaskEngine(value=0.6)
    evaluate.run(SETTINGS, engine, RunDouble())
    assert json.loads(read("metrics.json"))["dice_mean"] == 1
    strict = SETTINGS.model_copy(update={"evaluate": SETTINGS.evaluate.model_copy(update={"threshold": 0.7})})
    evaluate.run(strict, engine, RunDouble())
    assert json.loads(read("metrics.json"))["dice_mean"] == 0


def test_no_test_slide_is_said_in_words(slides):
    slides.clear()
    run = RunDouble()
    with pytest.warns(GigaslideWarning, match="no slide is in the test split"):
        evaluate.run(SETTINGS, MaskEngine(), run)
    assert json.loads(read("metrics.json"))["dice_mean"] is None
    assert run.metrics == {"test_slide_count": 0}


def test_no_mpp_is_said_in_words_and_measured_in_pixels(slides):
    slides[:] = [blobs("unknown", mpp_um_per_px=None)]
    with pytest.warns(GigaslideWarning, match="unknown has no mpp: its boundary tolerance is 8 px"):
        evaluate.run(SETTINGS, MaskEngine(), RunDouble())
    row = next(csv.DictReader(read("slides.csv").splitlines()))
    assert (row["boundary_tolerance_px"], row["mpp_um_per_px"]) == ("8.0", "")


def test_a_network_that_diverged_is_refused_and_nothing_is_left(slides):
    with pytest.raises(GigaslideError, match="on first, rows 0 to 256, some are not numbers"):
        evaluate.run(SETTINGS, MaskEngine(value=float("nan")), RunDouble())
    assert [path for path in evaluate.FOLDER.rglob("*") if path.is_file()] == []


def test_prepared_stores_give_the_same_numbers(slides, monkeypatch):
    evaluate.run(SETTINGS, MaskEngine(shift_px=3), RunDouble())
    expected = {name: read(name) for name in ("metrics.json", "slides.csv", "artefacts.csv")}
    monkeypatch.setattr(evaluate, "open_split", open_split)
    for slide in slides:
        writer = StoreWriter(STORES / f"{slide.name}.zarr", slide.shape, 1024, with_regions=True)
        writer.write(Window.of(0, 0, *slide.shape), image=slide.image, mask=slide.mask, regions=slide.regions)
        writer.finish(
            {
                "schema_version": SCHEMA_VERSION,
                "name": slide.name,
                "shape_px": list(slide.shape),
                "mpp_um_per_px": [slide.mpp_um_per_px] * 2,
                "region_names": list(slide.region_names),
            }
        )
    index = [{"name": slide.name, "split": "test", "store": f"{slide.name}.zarr"} for slide in slides]
    (STORES / "index.json").write_text(json.dumps({"slides": index}), encoding="utf-8")
    evaluate.run(SETTINGS, MaskEngine(shift_px=3), RunDouble())
    assert {name: read(name) for name in expected} == expected
