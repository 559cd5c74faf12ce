"""`gigaslide predict --export`: several tools, what is predicted already, and runs that were killed."""

import csv
import json
import os
import signal
import subprocess
import time

import h5py
import imagecodecs
import numpy as np
import pytest
import tifffile

from gigaslide.errors import UsageError
from gigaslide.exports.request import PatchRequest
from gigaslide.exports.tools import TOOLS
from gigaslide.prediction import outputs
from gigaslide.stages import predict
from gigaslide.stages.predict import Options
from gigaslide.stages.predict_worker import Handing
from tests.slides.files import write_slide
from tests.slides.mirax import write_mrxs
from tests.stages.project import command
from tests.stages.test_predict import discs

PATCHES = PatchRequest(64)
STALE = "exports/trident/20x_9px_0px_overlap/patches/good_patches.h5"


@pytest.fixture(scope="module")
def slides(tmp_path_factory):
    """A good slide, one of which a part was scanned, a white one, and one whose pixel size nobody knows."""
    folder = tmp_path_factory.mktemp("slides")
    write_slide(folder / "good.tif", discs((600, 700), [(200, 220), (420, 480)], 110))
    write_slide(folder / "white.tif", np.full((300, 400, 3), 255, np.uint8))
    write_slide(folder / "unknown.tif", discs((300, 300), [(150, 150)], 90), resolution=(1, 1), resolutionunit="NONE")
    levels = [discs((512, 512), [(330, 330)], 90)]
    levels.append(levels[0].reshape(256, 2, 256, 2, 3).mean((1, 3)).astype(np.uint8))
    missing = {(row, column) for row in range(8) for column in range(8) if row < 2 or column < 3}
    write_mrxs(folder / "border.mrxs", levels, 64, missing, imagecodecs.png_encode, "PNG")
    return folder


def run(slides, out, *tools, patches=PATCHES):
    return predict.run(Options((slides,), out, jobs=1, handing=Handing(tools, patches)))


@pytest.fixture(scope="module")
def batch(slides, tmp_path_factory):
    out = tmp_path_factory.mktemp("results") / "out"
    (out / STALE).parent.mkdir(parents=True)
    (out / STALE).touch()  # left by a run that was killed
    code = run(slides, out, *TOOLS)
    return out, code, files(out)


def summary(out, name):
    return json.loads((out / name / outputs.SUMMARY).read_text())


def coordinates(path):
    with h5py.File(path) as file:
        return file["coords"][:]


def files(out):
    """Every exported file with its bytes; of HDF5, whose attributes have a path, the coordinates."""
    found = [path for path in (out / "exports").rglob("*") if path.is_file()]
    return {
        path.relative_to(out).as_posix(): coordinates(path).tobytes() if path.suffix == ".h5" else path.read_bytes()
        for path in found
    }


def test_patches_have_tissue_in_the_mask_at_places_of_the_whole_slide(batch):
    out, *_ = batch
    for name in ("good", "border"):
        mask = tifffile.imread(out / name / outputs.MASK, key=0) == 1
        grid = [(x, y) for y in range(0, mask.shape[0] - 63, 64) for x in range(0, mask.shape[1] - 63, 64)]
        expected = [(x, y) for x, y in grid if mask[y : y + 64, x : x + 64].mean() >= 0.25]
        assert len(expected) > 3
        for path in (f"clam/patches/{name}.h5", f"trident/20x_64px_0px_overlap/patches/{name}_patches.h5"):
            assert list(map(tuple, coordinates(out / "exports" / path).tolist())) == expected
    assert tuple(np.mean(expected, axis=0) + 32) == pytest.approx((330, 330), abs=32)  # as OpenSlide counts, not QuPath


def test_the_list_for_clam_has_the_slides_with_patches(batch):
    out, *_ = batch
    with (out / "exports" / "clam" / "process_list_autogen.csv").open(newline="") as file:
        assert {row["slide_id"] for row in csv.DictReader(file)} == {"good.tif", "border.mrxs", "unknown.tif"}
    assert not (out / "exports" / "clam" / "patches" / "white.h5").exists()


def test_a_slide_that_one_tool_does_not_take_keeps_its_mask(batch):
    out, code, _ = batch
    assert code == 1
    found = summary(out, "unknown")
    assert found["status"] == "done"
    assert outputs.is_whole(out / "unknown", found)
    assert "mpp column of a table" in found["exports"]["trident"]["error"]
    assert all(found["exports"][tool]["patches"] > 3 for tool in TOOLS if tool != "trident")


def test_what_a_killed_run_left_is_gone(batch):
    assert not (batch[0] / STALE).exists()


def test_what_is_predicted_is_handed_on_from_its_mask(batch, slides, tmp_path):
    out, *_ = batch
    before, masks = files(out), {path: path.stat().st_mtime_ns for path in out.glob("*/mask.tif")}
    lost = out / "exports" / "clam" / "patches" / "good.h5"
    lost.unlink()
    assert run(slides, out, "clam") == 0  # trident is not asked for
    assert files(out) == before
    assert run(slides, out, "histolab", patches=PatchRequest(32)) == 0
    assert summary(out, "good")["exports"]["clam"]["files_bytes"]
    assert coordinates(lost).tobytes() == before["exports/clam/patches/good.h5"]
    assert files(out)["exports/histolab/tiles/good.csv"] != before["exports/histolab/tiles/good.csv"]
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/mask.tif")} == masks


@pytest.mark.slow
def test_killed_while_handing_on_it_goes_on_to_the_same_files(batch, slides):
    out, _, whole = batch
    for path in (out / "exports").rglob("*"):
        if path.is_file():
            path.unlink()
    tools = [part for tool in TOOLS for part in ("--export", tool)]
    arguments = command("predict", str(slides), "--out", str(out), "--jobs", "1", "--patch-px", "64", *tools)
    going = subprocess.Popen(arguments, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not any(path.is_file() for path in (out / "exports").rglob("*")) and time.monotonic() < deadline:
        time.sleep(0.002)
    os.killpg(going.pid, signal.SIGKILL)
    going.wait()
    # By name: what was being written is no file that can be read.
    assert {path.relative_to(out).as_posix() for path in (out / "exports").rglob("*") if path.is_file()} != set(whole)
    assert run(slides, out, *TOOLS) == 1  # unknown.tif for trident
    assert files(out) == whole


def test_a_slide_that_fails_takes_its_patches_with_it(batch, slides, tmp_path):
    out, copied = tmp_path / "out", tmp_path / "white.tif"
    (out / "exports" / "clam" / "patches").mkdir(parents=True)
    (out / "exports" / "clam" / "patches" / "white.h5").touch()
    copied.write_bytes((slides / "white.tif").read_bytes()[:100])
    assert run(copied, out, "clam") == 1
    assert not (out / "exports" / "clam" / "patches" / "white.h5").exists()
    assert (out / "exports" / "clam" / "process_list_autogen.csv").read_text() == "slide_id,process,status\n"


def test_slides_of_one_name_are_refused_at_once(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_slide(tmp_path / folder / "one.tif", np.full((64, 64, 3), 255, np.uint8))
    with pytest.raises(UsageError, match="clam knows a slide by its file's name, and several are named one"):
        predict.run(Options((tmp_path,), tmp_path / "out", handing=Handing(("clam",), PATCHES)))
    assert not (tmp_path / "out").exists()
