import csv
import json

import pytest

from gigaslide.errors import GigaslideError, UsageError
from gigaslide.evaluation.summary import ARTEFACT_COLUMNS, SLIDE_COLUMNS, csv_text
from gigaslide.masks.mask_tiff import write_mask
from gigaslide.reporting.charts import Bar
from gigaslide.stages import report
from tests.evaluation.slides import RunDouble, blobs
from tests.reporting.results import EPOCHS, SETTINGS, STEPS, results


@pytest.fixture
def slides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cohort = [blobs("good", seed=1), blobs("bad", seed=2, mpp_um_per_px=None)]
    monkeypatch.setattr(report, "open_split", lambda folder, split: cohort if split == "test" else [])
    write_inputs([slide.name for slide in cohort])
    for slide in cohort:
        write_mask(report.EVALUATE / "masks" / f"{slide.name}.tif", [slide.mask], slide.shape, (0.5, 0.5))
    return cohort


def write_inputs(names):
    values = results(names)
    for folder in (report.TRAIN, report.EVALUATE, report.RUN_FILE.parent):
        folder.mkdir(parents=True, exist_ok=True)
    report.RUN_FILE.write_text(json.dumps({"run_id": "1", "run_name": values.run_name}), encoding="utf-8")
    (report.TRAIN / "summary.json").write_text(json.dumps(values.summary), encoding="utf-8")
    (report.EVALUATE / "metrics.json").write_text(json.dumps(values.metrics), encoding="utf-8")
    for path, columns, rows in (
        (report.TRAIN / "steps.csv", STEPS[0], STEPS),
        (report.TRAIN / "epochs.csv", EPOCHS[0], EPOCHS),
        (report.EVALUATE / "slides.csv", SLIDE_COLUMNS, values.slides),
        (report.EVALUATE / "artefacts.csv", ARTEFACT_COLUMNS, values.artefacts),
    ):
        path.write_text(csv_text(list(columns), rows), encoding="utf-8")


def contents():
    return {path.name: path.read_bytes() for path in report.FOLDER.iterdir()}


def test_page_and_pictures_are_written_and_logged(slides):
    run = RunDouble()
    report.run(SETTINGS, run)
    pictures = {f"{slide.name}_{kind}.png" for slide in slides for kind in ("outlines", "disagreement", "detail")}
    assert set(contents()) == {"index.html", "training.png", "slides.png", "artefacts.png"} | pictures
    assert run.artifacts == [("report", "report")]
    page = contents()["index.html"].decode("utf-8")
    assert page.index("<h3>bad</h3>") < page.index("<h3>good</h3>")


def test_twice_gives_the_same_bytes(slides):
    report.run(SETTINGS, RunDouble())
    first = contents()
    report.run(SETTINGS, RunDouble())
    assert contents() == first


def test_only_the_slides_with_the_lowest_dice_are_in_pictures(slides, monkeypatch):
    monkeypatch.setattr(report, "_MOST_SLIDES", 1)
    report.run(SETTINGS, RunDouble())
    assert "bad_detail.png" in contents() and "good_detail.png" not in contents()


def test_without_a_test_slide(slides):
    slides.clear()
    write_inputs([])
    report.run(SETTINGS, RunDouble())
    assert set(contents()) == {"index.html", "training.png"}


@pytest.mark.parametrize(
    "path, stage",
    [
        (report.RUN_FILE, "train"),
        (report.TRAIN / "steps.csv", "train"),
        (report.EVALUATE / "metrics.json", "evaluate"),
    ],
)
def test_a_missing_input_is_named_and_nothing_is_written(slides, path, stage):
    path.unlink()
    with pytest.raises(UsageError, match=f"{path.name}, which is not there: run the stage {stage} first"):
        report.run(SETTINGS, RunDouble())
    assert not report.FOLDER.exists()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ((2, 1), "is 300 x 900 px .* the slide 600 x 900"),
        ((2, 2), r"size of its store \(600, 900\) .* 2 times smaller"),
    ],
)
def test_a_mask_of_another_slide_is_refused(slides, step, message):
    mask = slides[0].mask[:: step[0], :: step[1]]
    write_mask(report.EVALUATE / "masks" / "good.tif", [mask], mask.shape, None)
    with pytest.raises(GigaslideError, match=message):
        report.run(SETTINGS, RunDouble())


def test_bars_of_artefacts_without_tissue_have_an_error_but_no_dice():
    rows = results().artefacts
    assert report._bars(rows, "error_share", ["pen_red"]) == [Bar("pen_red", 0.25, 1.0)]
    assert report._bars(rows, "dice", ["pen_red"]) == [Bar("pen_red", None, None)]
    assert report._bars(rows, "dice", ["elsewhere"])[0].network > 0.9


def test_values_of_a_csv_come_back_as_they_were(tmp_path):
    rows = [{"slide": "007", "method": "auto", "is_best": True, "dice": 0.5, "mpp": None, "px": -3, "low": 1e-7}]
    (tmp_path / "rows.csv").write_text(csv_text(list(rows[0]), rows), encoding="utf-8")
    assert report._rows(tmp_path / "rows.csv", "train") == rows
    assert next(csv.DictReader((tmp_path / "rows.csv").open()))["is_best"] == "True"
