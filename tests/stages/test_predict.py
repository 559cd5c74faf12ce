"""`gigaslide predict` on folders and tables, with the network of the package, in the processes it really starts."""

import csv
import json
import os
import re
import signal
import subprocess
import time

import imagecodecs
import numpy as np
import pytest
import shapely
import tifffile
from filelock import FileLock

from gigaslide.errors import UsageError
from gigaslide.prediction import outputs
from gigaslide.prediction.request import Request
from gigaslide.stages import predict
from gigaslide.stages.predict import Options
from tests.slides.files import HALF_UM, write_slide
from tests.slides.mirax import write_mrxs
from tests.stages.project import command

PINK = (205, 120, 165)


def discs(shape, centres, radius):
    """Pink discs on glass."""
    y, x = np.ogrid[: shape[0], : shape[1]]
    random = np.random.default_rng(0)
    pixels = np.full((*shape, 3), 244, np.uint8) + random.integers(-1, 2, (*shape, 1)).astype(np.int8).view(np.uint8)
    for row, column in centres:
        inside = (y - row) ** 2 + (x - column) ** 2 < radius**2
        pixels[inside] = np.clip(PINK + random.normal(0, 12, (np.count_nonzero(inside), 3)), 0, 255).astype(np.uint8)
    return pixels


@pytest.fixture(scope="module")
def slides(tmp_path_factory):
    """A good slide, a broken one, an empty one, an all-white one, a text, an MRXS; and the good slide's mask."""
    folder = tmp_path_factory.mktemp("slides")
    write_slide(folder / "good.tif", discs((600, 700), [(200, 220), (420, 480)], 110))
    write_slide(folder / "white.tif", np.full((300, 400, 3), 255, np.uint8))
    whole = (folder / "good.tif").read_bytes()
    (folder / "broken.tif").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.svs").write_bytes(b"")
    (folder / "text.svs").write_text("no slide\n")
    tifffile.imwrite(folder / "good_mask.tif", np.zeros((600, 700), np.uint8))
    levels = [discs((512, 512), [(330, 330)], 90)]
    levels.append(levels[0].reshape(256, 2, 256, 2, 3).mean((1, 3)).astype(np.uint8))
    missing = {(row, column) for row in range(8) for column in range(8) if row < 2 or column < 3}
    write_mrxs(folder / "border.mrxs", levels, 64, missing, imagecodecs.png_encode, "PNG")
    return folder


@pytest.fixture(scope="module")
def batch(slides, tmp_path_factory):
    out = tmp_path_factory.mktemp("results") / "out"
    return out, predict.run(Options((slides,), out, jobs=1))


def summary(out, name):
    return json.loads((out / name / outputs.SUMMARY).read_text())


def test_every_slide_has_the_right_outcome(batch):
    out, code = batch
    assert code == 1
    found = {path.name: summary(out, path.name)["status"] for path in out.iterdir() if path.is_dir()}
    assert found == {
        "good": "done",
        "border": "done",
        "white": "no_tissue",
        "broken": "failed",
        "empty": "failed",
        "text": "failed",
    }
    assert "empty" in summary(out, "empty")["reason"]
    assert re.search("cut short|truncated|damaged", summary(out, "broken")["reason"])
    assert "text.svs cannot be opened as a slide" in summary(out, "text")["reason"]


def test_the_tissue_is_where_it_is(batch):
    out, _ = batch
    disc_mm2 = np.pi * 110**2 * 0.25e-6
    assert summary(out, "good")["tissue_mm2"] == pytest.approx(2 * disc_mm2, rel=0.05)
    mask = tifffile.imread(out / "good" / outputs.MASK, key=0)
    assert mask[200, 220] == mask[420, 480] == 1
    assert mask[20, 20] == 0
    features = json.loads((out / "border" / outputs.GEOJSON).read_text())["features"]
    largest = max(features, key=lambda feature: feature["properties"]["measurements"]["Area µm^2"])
    centre = shapely.geometry.shape(largest["geometry"]).centroid
    # As QuPath counts: from the corner of what was scanned, at row 128 and column 192.
    assert abs(centre.x - (330 - 192)) < 10
    assert abs(centre.y - (330 - 128)) < 10


def test_the_table_and_the_sheet_name_every_slide(batch):
    out, _ = batch
    with (out / "summary.csv").open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"good", "white", "broken", "empty", "text", "border"}
    assert rows["white"]["status"] == "no_tissue"
    assert rows["white"]["tissue_mm2"] == "0.0"
    assert "empty" in rows["empty"]["remarks"]
    page = (out / "index.html").read_text()
    order = re.findall(r'data-name="(\w+)" data-status="(\w+)"', page)
    assert [status for _, status in order] == ["failed"] * 3 + ["done"] * 2 + ["no_tissue"]
    assert order[3][0] == "good"
    for name in ("good", "border", "white"):
        assert f'src="{name}/thumbnail.jpg"' in page
        assert (out / name / "thumbnail.jpg").is_file()


def test_the_next_run_tries_again_what_failed_and_nothing_else(batch, slides):
    out, _ = batch
    before = {path: path.stat().st_mtime_ns for path in (out / "good").iterdir()}
    assert predict.run(Options((slides,), out, jobs=1)) == 1
    assert {path: path.stat().st_mtime_ns for path in (out / "good").iterdir()} == before
    assert summary(out, "text")["attempts"] == 2


@pytest.mark.parametrize(
    "change", [Request(threshold=0.4), Request(simplify_um=0.0), Request(min_piece_um2=5.0), Request(heatmap=True)]
)
def test_other_settings_are_another_result(batch, slides, change):
    out, _ = batch
    options = Options((slides,), out, request=change)
    known = summary(out, "good")["made_from"]
    (item,) = [item for item in predict.read_inputs(options.paths, out) if item.name == "good"]
    assert predict._made_from(item, known["model_sha256"], Request()) == known
    assert predict._made_from(item, known["model_sha256"], change) != known


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_to_the_same_files(batch, slides, tmp_path):
    whole, _ = batch
    names = ["good", "border", "white"]
    table = tmp_path / "table.csv"
    paths = [slides / "good.tif", slides / "border.mrxs", slides / "white.tif"]
    table.write_text("slide,mpp\n" + "".join(f"{path},\n" for path in paths))
    out = tmp_path / "out"
    run = subprocess.Popen(command("predict", str(table), "--out", str(out)), start_new_session=True, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not (out / "good" / outputs.SUMMARY).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert (out / "good" / outputs.SUMMARY).exists()
    first = (out / "good" / outputs.SUMMARY).stat().st_mtime_ns
    assert predict.run(Options((table,), out, jobs=2)) == 0
    assert (out / "good" / outputs.SUMMARY).stat().st_mtime_ns == first
    for name in names:
        for file in (outputs.MASK, outputs.GEOJSON, outputs.OVERLAY, outputs.THUMBNAIL):
            assert (out / name / file).read_bytes() == (whole / name / file).read_bytes(), (name, file)
        assert not [path for path in (out / name).iterdir() if path.name.startswith(".")]


def test_what_a_user_put_beside_a_mask_stays(batch, slides, tmp_path):
    out, _ = batch
    corrected = out / "text" / "text.geojson"
    corrected.write_text("drawn by hand")
    (out / "text" / outputs.HEATMAP).write_text("of an earlier run")
    assert predict.run(Options((slides / "text.svs",), out)) == 1
    assert corrected.read_text() == "drawn by hand"
    assert not (out / "text" / outputs.HEATMAP).exists()
    beside = out / "good" / "good.geojson"
    beside.write_text("drawn by hand")
    known = summary(out, "good")
    assert beside.name not in known["outputs_bytes"]
    assert outputs.is_whole(out / "good", known)


def test_a_folder_without_one_of_its_files_is_not_whole(batch):
    out, _ = batch
    known = summary(out, "good")
    assert outputs.is_whole(out / "good", known)
    moved = (out / "good" / outputs.MASK).rename(out / "elsewhere.tif")
    assert not outputs.is_whole(out / "good", known)
    moved.rename(out / "good" / outputs.MASK)


def test_two_runs_in_one_folder_are_refused(batch, slides):
    out, _ = batch
    with FileLock(out / ".lock"), pytest.raises(UsageError, match="another `gigaslide predict` is at work"):
        predict.run(Options((slides,), out))


def test_a_wrong_network_is_said_before_any_slide_is_read(slides, tmp_path):
    wrong = tmp_path / "wrong.keras"
    wrong.write_text("no network")
    for model, text in ((str(wrong), "network in Keras' format"), ("nowhere.keras", "there is no file nowhere")):
        with pytest.raises(UsageError, match=text):
            predict.run(Options((slides,), tmp_path / "out", model=model))
    assert not list((tmp_path / "out").glob("*/"))


def test_names_and_tables(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_slide(tmp_path / folder / "one.tif", np.full((64, 64, 3), 255, np.uint8), **HALF_UM)
    write_slide(tmp_path / "a" / "two.tif", np.full((64, 64, 3), 255, np.uint8))
    found = predict.read_inputs((tmp_path / "a", tmp_path / "b"), tmp_path / "out")
    assert [item.name for item in found] == ["a-one", "two", "b-one"]
    table = tmp_path / "slides.csv"
    table.write_text("\ufeffslide, mpp\na/one.tif, 0.25\n", encoding="utf-8")
    (item,) = predict.read_inputs((table,), tmp_path / "out")
    assert (item.name, item.mpp_um_per_px) == ("one", 0.25)
    table.write_text("slide,mpp\nnone.tif,\n,0.5\na/one.tif,wide\n")
    with pytest.raises(UsageError) as refused:
        predict.read_inputs((table,), tmp_path / "out")
    assert str(refused.value).splitlines() == [
        f"{table} has 3 mistake(s):",
        f"  row 2, column slide: there is no file {tmp_path / 'none.tif'}",
        "  row 3, column slide: there is no file (empty)",
        "  row 4, column mpp: expected um per px, as 0.25; found 'wide'",
    ]
    table.write_text("file\na/one.tif\n")
    with pytest.raises(UsageError, match=r"should have a column named slide.*; found file"):
        predict.read_inputs((table,), tmp_path / "out")
