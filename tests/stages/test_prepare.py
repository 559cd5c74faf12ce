import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
from filelock import FileLock

from gigaslide import config, files
from gigaslide.errors import UsageError
from gigaslide.geometry import Window
from gigaslide.slides.store import open_split
from gigaslide.stages import prepare
from tests.slides.files import damage_tile, noise, write_slide

ROOT = Path(__file__).parents[2]
SHAPE = (600, 700)


def settings(folder, **blocks):
    """The project's settings, with the slides of `folder` and small windows."""
    values = config.load(ROOT / "params.yaml").model_dump()
    values["slides"] |= {"dir": str(folder / "slides"), "cohort": "cohort.csv", "mpp_um_per_px": None}
    values["prepare"] |= {"region_px": "whole", "window_px": 512, "workers": 1}
    for block, changes in blocks.items():
        values[block] |= changes
    return config.Settings.model_validate(values)


def write_table(folder, names):
    splits = ["train", "validation"] + ["test"] * len(names)
    rows = [f"{name}.tif,{name}-mask.tif,{split}," for name, split in zip(names, splits, strict=False)]
    (folder / "slides/cohort.csv").write_text("\n".join(["slide,annotation,split,mpp", *rows]))


def write_one(folder, name, seed, shape=SHAPE):
    write_slide(folder / f"slides/{name}.tif", noise(shape, seed))
    mask = np.zeros(shape, np.uint8)
    mask[100:300, 200 + seed : 500] = 1
    tifffile.imwrite(folder / f"slides/{name}-mask.tif", mask)


@pytest.fixture
def cohort(tmp_path):
    """Four slides: c in `test`, like d."""
    (tmp_path / "slides").mkdir()
    for seed, name in enumerate("abcd"):
        write_one(tmp_path, name, seed)
    write_table(tmp_path, "abcd")
    return tmp_path


def run(folder, **blocks):
    return prepare.run(settings(folder, **blocks), folder / "stores", folder / "results")


def summary(folder):
    return {row["slide"]: row for row in json.loads((folder / "results/summary.json").read_text())["slides"]}


def states(folder):
    return json.loads((folder / ".stores.state.json").read_text())["slides"]


def statuses(folder):
    """What this run did, from the table for people."""
    lines = (folder / "results/summary.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("| ")]
    return {row[1]: row[3] for row in cells[2:]}


def test_a_cohort_becomes_stores(cohort, capsys):
    assert run(cohort) == 0
    assert [store.name for store in open_split(cohort / "stores", "train")] == ["a"]
    assert [store.name for store in open_split(cohort / "stores", "test")] == ["c", "d"]
    (store,) = open_split(cohort / "stores", "validation")
    np.testing.assert_array_equal(store.read_image(Window.of(0, 0, *SHAPE)), noise(SHAPE, 1))
    assert set(statuses(cohort).values()) == {"prepared"}
    assert summary(cohort)["b"] == {
        "slide": "b",
        "split": "validation",
        "status": "ready",
        "height_px": 600,
        "width_px": 700,
        "mpp_um_per_px": [0.5, 0.5],
        "mpp_source": "openslide",
        "label_source": "mask",
        "tissue_share": 200 * 299 / (600 * 700),
        "invalid_px": 0,
        "corrupt_px": 0,
        "reader": summary(cohort)["a"]["reader"],
        "warnings": [],
    }
    printed = capsys.readouterr().out
    assert "4/4 " in printed
    assert "a      train       prepared  600 x 700" in printed


def test_a_second_run_changes_nothing(cohort):
    run(cohort)
    before = files.sha256(cohort / "stores"), (cohort / "results/summary.json").read_bytes()
    stats = {path: path.stat() for path in (cohort / "stores").rglob("*.zarr/**/*") if path.is_file()}
    assert len(stats) > 20
    assert run(cohort) == 0
    assert set(statuses(cohort).values()) == {"unchanged"}
    assert (files.sha256(cohort / "stores"), (cohort / "results/summary.json").read_bytes()) == before
    assert {path: path.stat() for path in stats} == stats


def test_only_what_changed_is_done_again(cohort):
    run(cohort)
    write_one(cohort, "b", seed=9)
    write_table(cohort, "abd")
    assert run(cohort) == 0
    assert statuses(cohort) == {"a": "unchanged", "b": "prepared", "d": "unchanged"}
    assert sorted(path.name for path in (cohort / "stores").iterdir()) == ["a.zarr", "b.zarr", "d.zarr", "index.json"]


def test_one_bad_slide_does_not_stop_the_others(cohort, capsys):
    run(cohort)
    (cohort / "slides/b.tif").write_text("this is | no slide")
    (cohort / "slides/d-mask.tif").write_bytes(b"")
    assert run(cohort) == 1
    assert statuses(cohort) == {"a": "unchanged", "b": "failed", "c": "unchanged", "d": "failed"}
    assert "b.tif cannot be opened as a slide: it is a text file" in summary(cohort)["b"]["reason"]
    assert "d-mask.tif cannot be read" in summary(cohort)["d"]["reason"]
    assert not (cohort / "stores/b.zarr").exists()
    assert [store.name for store in open_split(cohort / "stores", "test")] == ["c"]
    printed = capsys.readouterr().out
    assert "2 of 4 slides failed" in printed
    assert (states(cohort)["b"]["state"], states(cohort)["b"]["attempts"]) == ("failed", 1)
    assert "it is a text file" in states(cohort)["b"]["reason"]
    assert run(cohort) == 1
    assert states(cohort)["b"]["attempts"] == 2
    # Failed is not skipped: put right, it is done.
    write_one(cohort, "b", 1)
    write_one(cohort, "d", 3)
    assert run(cohort) == 0
    assert statuses(cohort) == {"a": "unchanged", "b": "prepared", "c": "unchanged", "d": "prepared"}
    assert {name: state["attempts"] for name, state in states(cohort).items()} == {"a": 1, "b": 3, "c": 1, "d": 3}
    assert states(cohort)["b"]["reason"] is None


def test_a_corrupt_tile_is_counted_and_fails_a_slide_only_when_strict(cohort):
    damage_tile(cohort / "slides/b.tif", 1)
    assert run(cohort, slides={"max_corrupt_fraction": 0.02}) == 0
    assert summary(cohort)["b"]["corrupt_px"] == summary(cohort)["b"]["invalid_px"] == 64 * 64
    assert "left out as invalid: 1 corrupt tile(s), 0.98% of the pixels" in summary(cohort)["b"]["warnings"][0]
    assert run(cohort, slides={"max_corrupt_fraction": 0.0}) == 1
    assert statuses(cohort) == {"a": "unchanged", "b": "failed", "c": "unchanged", "d": "unchanged"}
    assert "b.tif cannot be read at level 0" in summary(cohort)["b"]["reason"]


def test_slides_side_by_side_give_the_same_bytes(cohort):
    run(cohort)
    one_by_one = files.sha256(cohort / "stores")
    files.remove(cohort / "stores")
    assert run(cohort, prepare={"workers": 2}) == 0
    assert files.sha256(cohort / "stores") == one_by_one


def test_what_a_killed_run_left_is_cleared_away(cohort):
    for name in (".a.partial.zarr", ".b.zarr.old", "gone.zarr"):
        (cohort / "stores" / name / "image").mkdir(parents=True)
    run(cohort)
    names = sorted(path.name for path in (cohort / "stores").iterdir())
    assert names == ["a.zarr", "b.zarr", "c.zarr", "d.zarr", "index.json"]


def test_two_runs_at_once_are_refused(cohort):
    with FileLock(cohort / ".stores.lock"), pytest.raises(UsageError, match="another `gigaslide prepare` is at work"):
        run(cohort)


def test_mistakes_in_the_table_touch_no_store(cohort):
    run(cohort)
    (cohort / "slides/cohort.csv").write_text("slide,annotation,split,mpp\nx.svs,,train,\n")
    with pytest.raises(UsageError, match="row 2, column slide: there is no file"):
        run(cohort)
    assert len(open_split(cohort / "stores", "test")) == 2


CHILD = """
import sys
from pathlib import Path
from tests.stages.test_prepare import run
if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
"""


def child(script, folder):
    return subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdout=subprocess.DEVNULL,
    )


def shards(store):
    """Inode and time of writing, by name: another file of the same content is another file."""
    found = [path for path in store.rglob("*") if path.is_file() and path.name != "zarr.json"]
    return {path.relative_to(store): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def journal_lines(stores):
    return [line for path in stores.glob(".b.*.journal") for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_killed_half_way_the_next_run_makes_the_missing_windows_and_ends_with_the_same_bytes(tmp_path):
    """kill -9 while a slide is being written, twice, run again; whole slides and whole windows are kept as they are."""
    (tmp_path / "slides").mkdir()
    for seed, name in enumerate("abc"):
        write_one(tmp_path, name, seed, shape=(700, 700) if name == "a" else (3500, 3500))
    damage_tile(tmp_path / "slides/b.tif", 3)  # in the first window
    write_table(tmp_path, "abc")
    script = tmp_path / "run.py"
    script.write_text(CHILD)
    stores = tmp_path / "stores"

    kept = {}
    for windows in (3, 20):
        killed = child(script, tmp_path)
        deadline = time.monotonic() + 120
        while not ((stores / "a.zarr").exists() and len(journal_lines(stores)) >= windows):
            assert time.monotonic() < deadline
            assert killed.poll() is None, "it ended before it could be killed"
            time.sleep(0.001)
        killed.kill()
        killed.wait()
        (partial,) = stores.glob(".b.*.partial.zarr")
        names = {name for line in journal_lines(stores) for name in json.loads(line)["bytes"]}
        assert kept.items() <= shards(partial).items()
        kept = {name: value for name, value in shards(partial).items() if name.as_posix() in names}
        assert not (stores / "index.json").exists()
        assert not (stores / "c.zarr").exists()
    assert 20 <= len(kept) < 2 * 49
    (partial / "image/c/6/6").mkdir(parents=True, exist_ok=True)
    (partial / "image/c/6/6/0").write_bytes(b"half a shard")
    finished = (stores / "a.zarr/zarr.json").stat()

    assert child(script, tmp_path).wait() == 0
    assert kept.items() <= shards(stores / "b.zarr").items()
    assert (stores / "a.zarr/zarr.json").stat() == finished
    assert statuses(tmp_path) == {"a": "unchanged", "b": "prepared", "c": "prepared"}
    assert states(tmp_path)["b"]["attempts"] == 3
    assert "1 corrupt tile" in summary(tmp_path)["b"]["warnings"][0]
    interrupted = files.sha256(stores), (tmp_path / "results/summary.json").read_bytes()
    files.remove(stores)
    assert child(script, tmp_path).wait() == 0
    assert set(statuses(tmp_path).values()) == {"prepared"}
    assert (files.sha256(stores), (tmp_path / "results/summary.json").read_bytes()) == interrupted


def test_the_real_slide(real_slide, tmp_path):
    (tmp_path / "slides").mkdir()
    rows = []
    for name, split in [("a", "train"), ("b", "validation")]:
        (tmp_path / f"slides/{name}.svs").symlink_to(real_slide)
        rows.append(f"{name}.svs,,{split},")
    (tmp_path / "slides/cohort.csv").write_text("\n".join(["slide,annotation,split,mpp", *rows]))
    assert run(tmp_path, labels={"without_annotation": "auto"}, prepare={"region_px": [1024, 1500]}) == 0
    about = summary(tmp_path)["a"]
    assert (about["height_px"], about["width_px"], about["label_source"]) == (1024, 1500, "auto")
    assert about["mpp_um_per_px"] == [0.499, 0.499]
    (store,) = open_split(tmp_path / "stores", "train")
    # The most tissue of 1024 rows is at the lower end of this slide, where the strip of skin is widest.
    assert store.attributes["offset_yx_px"][0] > 1500
    assert about["tissue_share"] > 0.5
