"""`gigaslide add` on small slides; DVC and the worker processes are real in the tests at the end only."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
import yaml
from filelock import FileLock
from PIL import Image

from gigaslide import config, files
from gigaslide.errors import GigaslideError, SlideError, UsageError
from gigaslide.slides.cohort import read_cohort
from gigaslide.stages import add, check, cohort_check, placing, split_new, versioning
from gigaslide.stages.workers import Outcome
from tests.slides.files import damage_tile, noise, write_slide
from tests.stages.project import PARAMS, command, gigaslide

ROOT = Path(__file__).parents[2]
SHAPE = (130, 150)
HEADER = "slide,annotation,split,mpp,patient"


def in_this_process(task, jobs, *_):
    for number, job in enumerate(jobs):
        try:
            yield Outcome(number, task(job, lambda share: None), None, 0.0)
        except Exception as error:
            yield Outcome(number, None, error, 0.0)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project with the demo's settings, and slides in `in/` beside it; no processes are started."""
    for name in ("project/.dvc", "in"):
        (tmp_path / name).mkdir(parents=True)
    folder = tmp_path / "project"
    shutil.copy(PARAMS, folder / "params.yaml")
    monkeypatch.chdir(folder)
    for module in (check, split_new):
        monkeypatch.setattr(module, "run_all", in_this_process)
    monkeypatch.setattr(versioning, "add", lambda folder: False)
    return folder


def slide(path, seed=0, **tags):
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_slide(path, noise(SHAPE, seed), **tags)


def polygon(path, name="Tissue"):
    ring = [[10, 10], [90, 10], [90, 60], [10, 10]]
    feature = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}}
    path.write_text(json.dumps([feature | {"properties": {"classification": {"name": name}}}]))


def mask(path):
    tifffile.imwrite(path, (noise(SHAPE)[..., 0] > 128).astype(np.uint8))


def run(*paths, **options):
    return add.run(config.load(), add.Options(tuple(map(str, paths)), **options))


def files_in(folder):
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def table(folder=Path("data/slides")):
    return (folder / "cohort.csv").read_text().splitlines()


def test_slides_with_their_annotations_become_a_cohort(project, capsys):
    slide(Path("../in/a.tif"), 1)
    slide(Path("../in/b.svs"), 2, description="Aperio Image|MPP = 0.25|AppMag = 40")
    mask(Path("../in/a-mask.tif"))
    polygon(Path("../in/b.geojson"))
    assert run("../in") == 0
    assert table() == [HEADER, "a.tif,annotations/a.tif,validation,,", "b.svs,annotations/b.geojson,train,,"]
    rows = read_cohort(Path("data/slides/cohort.csv"))
    assert [row.name for row in rows] == ["a", "b"]
    assert rows[0].slide.samefile("../in/a.tif")  # linked
    assert not rows[0].annotation.samefile("../in/a-mask.tif")
    printed = capsys.readouterr().out
    assert "a: annotation from a-mask.tif" in printed
    assert "2 added, 0 already there, 0 not added" in printed
    assert "set slides.dir: data/slides" in printed
    row = next(line for line in printed.splitlines() if line.startswith(" b "))
    assert row.split() == ["b", "added", "train", ".geojson", "aperio", "130", "x", "150", "1", "0.25", "openslide"]
    assert Image.open("results/add/thumbnails.png").size == (2 * 224, 256)


def test_one_that_cannot_be_read_is_named_and_the_others_are_added(project, capsys):
    slide(Path("../in/good.tif"))
    Path("../in/text.svs").write_text("no slide")
    slide(Path("../in/annotated.tif"), 3)
    Path("../in/annotated.geojson").write_text("{")
    data = slide(Path("../in/cut.tif"), 4).read_bytes()
    Path("../in/cut.tif").write_bytes(data[: len(data) // 2])
    assert run("../in") == 1
    assert table() == [HEADER, "good.tif,,train,,"]
    assert sorted(path.name for path in Path("data/slides").iterdir()) == ["cohort.csv", "good.tif"]
    printed = capsys.readouterr().out
    assert "text: ../in/text.svs cannot be opened as a slide: it is a text file" in printed
    assert "annotated: " in printed
    assert "cut: ../in/cut.tif is damaged: it is cut short" in printed
    assert "1 added, 0 already there, 3 not added" in printed
    assert "without annotation: good; `gigaslide prepare` needs one" in printed


def test_the_same_slide_again_changes_nothing(project, capsys):
    slide(Path("../in/a.tif"))
    run("../in")
    before = files_in(Path("data/slides"))
    shutil.copy("../in/a.tif", "../in/copy.tif")
    assert run("../in/a.tif", "data/slides", "../in/copy.tif") == 0
    assert files_in(Path("data/slides")) == before
    printed = capsys.readouterr().out
    assert "copy: the same slide is in the cohort as a" in printed
    assert "0 added, 3 already there" in printed


def test_another_slide_of_the_same_name_is_refused(project, capsys):
    slide(Path("../in/a.tif"), 1)
    run("../in")
    slide(Path("../other/A.svs"), 2)
    slide(Path("../x/b.tif"), 3)
    slide(Path("../y/b.tif"), 4)
    shutil.copy("../x/b.tif", "../y/c.tif")
    slide(Path("../y/left.tif"), 5)
    Path("data/slides/left.tif").write_text("not in the table")
    assert run("../other", "../x", "../y") == 1
    assert [line.split(",")[0] for line in table()] == ["slide", "a.tif", "b.tif"]
    printed = capsys.readouterr().out
    assert "A: another slide has the name A, with other bytes: data/slides/a.tif of the cohort table" in printed
    assert "../y/b.tif has the name of ../x/b.tif" in printed
    assert "../y/c.tif has the same bytes as ../x/b.tif" in printed
    assert "data/slides/left.tif is there already, with other bytes and in no row" in printed


def test_a_row_without_annotation_gets_one_that_comes_later(project):
    slide(Path("../in/a.tif"), 1)
    slide(Path("../in/b.tif"), 2)
    run("../in")
    before = table()
    Path("../drawn").mkdir()
    polygon(Path("../drawn/b.json"))
    assert run("../in", annotations=Path("../drawn")) == 0
    assert table() == [*before[:2], before[2].replace("b.tif,,", "b.tif,annotations/b.json,")]
    polygon(Path("../drawn/b.json"), "Other")
    assert run("../in", annotations=Path("../drawn")) == 0  # a row keeps the one it has
    assert "Tissue" in Path("data/slides/annotations/b.json").read_text()


def test_ambiguous_annotations_and_unreadable_ones_are_refused(project, capsys):
    for seed, name in enumerate("abc"):
        slide(Path(f"../in/{name}.tif"), seed)
    polygon(Path("../in/a-1.json"))
    polygon(Path("../in/a-2.json"))
    Path("../in/b.xml").write_text("<SomethingElse/>")
    assert run("../in") == 1
    printed = capsys.readouterr().out
    assert "a: 2 annotations may be its own: a-1.json, a-2.json" in printed
    assert "c.tif,,train,," in table()


def test_rows_that_are_there_stay_as_they_are(project):
    settings = yaml.safe_load(Path("params.yaml").read_text())
    settings["slides"]["dir"] = "data/mine"
    Path("params.yaml").write_text(yaml.safe_dump(settings))
    slide(Path("data/mine/old.tif"), 1)
    mask(Path("data/mine/regions.tif"))
    text = ' mpp,slide,split,annotation,regions\r\n0.25," old.tif ",test,,regions.tif\r\n\r\n'
    Path("data/mine/cohort.csv").write_bytes(text.encode())
    slide(Path("../in/new.tif"), 2)
    assert run("../in", split="train") == 0
    assert Path("data/mine/cohort.csv").read_bytes().decode() == (
        ' mpp,slide,split,annotation,regions,patient\r\n0.25," old.tif ",test,,regions.tif,\r\n\r\n'
        ",new.tif,train,,,\r\n"
    )
    # Now that the column is there, only a row is added.
    before = Path("data/mine/cohort.csv").read_bytes()
    slide(Path("data/mine/by hand.tif"), 3)
    assert run("data/mine/by hand.tif", split="validation") == 0
    assert Path("data/mine/cohort.csv").read_bytes() == before + b",by hand.tif,validation,,,\r\n"


def test_patients_stay_together(project, capsys):
    for number in range(6):
        slide(Path(f"../in/TCGA-AB-000{number % 2}-01Z-DX{number}.tif"), number)
    slide(Path("../in/x.tif"), 10)
    slide(Path("../in/y.tif"), 11)
    Path("patients.csv").write_text("slide,patient\nx.tif,P 7\ny,P 7\n")
    assert run("../in", patients=Path("patients.csv")) == 0
    rows = read_cohort(Path("data/slides/cohort.csv"))  # which refuses a patient in two splits
    assert [row.patient for row in rows] == ["TCGA-AB-0000"] * 3 + ["TCGA-AB-0001"] * 3 + ["P 7"] * 2
    known = {row.patient: row.split for row in rows}
    slide(Path("../more/TCGA-AB-0000-new.tif"), 20)
    other = "test" if known["TCGA-AB-0000"] != "test" else "train"
    assert run("../more", split=other) == 1
    assert f"its patient TCGA-AB-0000 is in {known['TCGA-AB-0000']} with TCGA-AB-0000-" in capsys.readouterr().out
    assert run("../more") == 0
    assert table()[-1] == f"TCGA-AB-0000-new.tif,,{known['TCGA-AB-0000']},,TCGA-AB-0000"


def test_a_patient_that_is_in_two_splits_already_does_not_keep_others_from_being_added(project, capsys):
    for number, split in enumerate(["train", "test"]):
        slide(Path(f"../in/TCGA-AB-0000-{number}.tif"), number)
        run("../in", split=split, patients=None) if number == 0 else None
    text = Path("data/slides/cohort.csv").read_text().replace(",TCGA-AB-0000", ",")
    shutil.copy("../in/TCGA-AB-0000-1.tif", "data/slides")
    Path("data/slides/cohort.csv").write_text(f"{text}TCGA-AB-0000-1.tif,,test,,\n")
    slide(Path("../more/TCGA-AB-0000-2.tif"), 5)
    slide(Path("../more/other.tif"), 6)
    assert run("../more") == 1
    assert "its patient TCGA-AB-0000 is in two splits (TCGA-AB-0000-1: test, TCGA-AB-0000-0: train)" in (
        capsys.readouterr().out
    )
    assert table()[-1].startswith("other.tif,")


def test_folders_that_are_one_slide(project, monkeypatch):
    """MRXS and DICOM, whose pixels these files do not have: what is checked is where the files go."""
    for name in ("m.mrxs", "m/Slidedat.ini", "m/deep/Data0.dat", "case 7/1.dcm", "case 7/2.dcm"):
        (Path("../in") / name).parent.mkdir(parents=True, exist_ok=True)
        (Path("../in") / name).write_text(f"content of {name}")
    found = check.Found("", SHAPE, 1, None, "unknown", (), noise((10, 10)))
    monkeypatch.setattr(check, "check_slide", lambda job, progress: found)
    assert run("../in", bring="move") == 0
    assert sorted(line.split(",")[0] for line in table()[1:]) == ["case 7/1.dcm", "m.mrxs"]
    assert [row.name for row in read_cohort(Path("data/slides/cohort.csv"), ())] == ["m", "case 7"]
    for name in ("m.mrxs", "m/Slidedat.ini", "m/deep/Data0.dat", "case 7/1.dcm", "case 7/2.dcm"):
        assert (Path("data/slides") / name).read_text() == f"content of {name}"
    assert list(Path("../in").iterdir()) == []


def test_move_removes_the_originals_of_what_was_added(project):
    slide(Path("../in/a.tif"))
    polygon(Path("../in/a.geojson"))
    Path("../in/text.svs").write_text("no slide")
    assert run("../in", bring="move") == 1
    assert [path.name for path in Path("../in").iterdir()] == ["text.svs"]
    assert run("data/slides", bring="move") == 0
    assert Path("data/slides/a.tif").exists()


def test_copy_leaves_a_file_of_its_own(project):
    slide(Path("../in/a.tif"))
    run("../in", bring="copy")
    assert not Path("data/slides/a.tif").samefile("../in/a.tif")


def test_use_points_the_settings_to_the_slides_and_keeps_the_comments(project):
    slide(Path("../in/a.tif"))
    before = Path("params.yaml").read_text()
    run("../in")
    assert Path("params.yaml").read_text() == before
    run("../in", use=True)
    assert Path("params.yaml").read_text() == before.replace("dir: data/demo", "dir: data/slides")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("https://example.org/a.svs", "found the address https://example.org/a.svs: fetch it first"),
        ("absent.svs", "there is no file or folder absent.svs"),
    ],
)
def test_wrong_paths_change_nothing(project, path, message):
    with pytest.raises(UsageError, match=message):
        run(path)
    assert not Path("data/slides/cohort.csv").exists()


def test_where_dvc_cannot_work(project, monkeypatch):
    slide(Path("../in/a.tif"))
    settings = config.load().replaced({"slides.dir": "/somewhere/else"})
    with pytest.raises(UsageError, match=r"slides\.dir should be a folder of this project"):
        add.run(settings, add.Options(("../in",)))
    Path(".dvc").rmdir()
    with pytest.raises(UsageError, match="is no DVC project"):
        run("../in")


def test_two_at_once_are_refused(project):
    slide(Path("../in/a.tif"))
    Path("data").mkdir()
    with FileLock("data/.slides.lock"), pytest.raises(UsageError, match="another `gigaslide add` is at work"):
        run("../in")


def test_what_a_stopped_run_left_is_repaired(project, monkeypatch):
    """Stopped after a slide was brought, after the table was written, and while DVC linked the files."""
    slide(Path("../in/a.tif"), 1)
    slide(Path("../in/b.tif"), 2)
    place, placed = placing.place, []

    def once(*arguments):
        if placed:
            raise KeyboardInterrupt
        placed.append(place(*arguments))

    monkeypatch.setattr(placing, "place", once)
    with pytest.raises(KeyboardInterrupt):
        run("../in")
    Path("data/slides/.b.partial.tif").write_text("half")
    assert not Path("data/slides/cohort.csv").exists()
    monkeypatch.setattr(placing, "place", place)

    def fails(folder):
        raise GigaslideError("DVC is busy")

    monkeypatch.setattr(versioning, "add", fails)
    with pytest.raises(GigaslideError, match="DVC is busy"):
        run("../in")
    assert sorted(path.name for path in Path("data/slides").iterdir()) == ["a.tif", "b.tif", "cohort.csv"]
    written = table()
    Path("data/slides/b.tif").unlink()
    added = []
    monkeypatch.setattr(versioning, "add", added.append)
    assert run("../in") == 0
    assert table() == written
    assert Path("data/slides/b.tif").exists()
    assert added == [Path("data/slides")]


def test_a_full_disk_is_said_and_leaves_nothing(project, monkeypatch, capsys):
    slide(Path("../in/a.tif"))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(placing, "bring", full)
    assert run("../in") == 1
    assert "cannot be brought to data/slides/a.tif: No space left on device" in capsys.readouterr().out
    assert list(Path("data/slides").iterdir()) == []


def test_the_cohort_is_checked_again(project, capsys):
    for number, name in enumerate("ab"):
        slide(Path(f"../in/{name}.tif"), number)
    run("../in", use=True)
    assert cohort_check.run(config.load()) == 0
    assert "2 of 2 slides are in order" in capsys.readouterr().out
    assert Path("results/cohort/thumbnails.png").exists()
    Path("data/slides/b.tif").unlink()
    Path("data/slides/b.tif").write_text("damaged")
    with Path("data/slides/cohort.csv").open("a") as file:
        file.write("gone.tif,,train,x,\n")
    assert cohort_check.run(config.load()) == 1
    printed = capsys.readouterr().out
    assert "b: data/slides/b.tif cannot be opened as a slide: it is a text file" in printed
    assert "cohort.csv has 2 mistake(s):" in printed
    assert "row 4, column slide: there is no file data/slides/gone.tif" in printed
    assert "1 of 2 slides are in order" in printed


# With DVC itself, and in processes of their own.


def dvc(*arguments):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "DVC_NO_ANALYTICS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def versioned(tmp_path, monkeypatch):
    """A project with git and DVC, and slides a and b, with annotations, in `in/` beside it."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    shutil.copy(PARAMS, folder / "params.yaml")
    shutil.copy(ROOT / ".gitignore", folder / ".gitignore")
    subprocess.run(["git", "init", "--quiet"], check=True)
    dvc("init", "--quiet")
    shutil.copy(ROOT / ".dvc/config", folder / ".dvc/config")
    for seed, name in enumerate("ab"):
        slide(Path(f"../in/{name}.tif"), seed)
        polygon(Path(f"../in/{name}.geojson"))
    return folder


DVC_YAML = f"""
stages:
  prepare:
    cmd: {sys.executable} -m gigaslide prepare
    params: [slides, labels, prepare]
    deps: [data/slides]
    outs:
      - data/stores: {{persist: true}}
      - results/prepare
"""


@pytest.mark.slow
def test_one_more_slide_is_the_only_one_that_dvc_repro_prepares(versioned):
    (versioned / "dvc.yaml").write_text(DVC_YAML)
    done = gigaslide(versioned, "add", "../in", "--use")
    assert done.returncode == 0, done.stderr
    # git keeps what names the slides, DVC the slides; original, project and cache share one file.
    ignored = subprocess.run(["git", "check-ignore", "-q", "data/slides.dvc"], check=False)
    assert ignored.returncode == 1
    assert Path("data/slides/a.tif").samefile("../in/a.tif")
    assert Path("data/slides/a.tif").stat().st_nlink == 3 or not os.access("data/slides/a.tif", os.W_OK)
    assert Path("data/slides/cohort.csv").stat().st_nlink == 1  # to be edited
    dvc("repro")
    assert "prepared" in Path("results/prepare/summary.md").read_text()
    tracked = Path("data/slides.dvc").read_bytes()
    assert gigaslide(versioned, "add", "../in").returncode == 0
    assert Path("data/slides.dvc").read_bytes() == tracked

    slide(Path("../more/c.tif"), 7)
    polygon(Path("../more/c.geojson"))
    assert gigaslide(versioned, "add", "../more", "--split", "test").returncode == 0
    dvc("repro")
    summary = Path("results/prepare/summary.md").read_text()
    assert "1 prepared, 2 unchanged, 0 failed." in summary
    done = gigaslide(versioned, "cohort", "check")
    assert (done.returncode, "3 of 3 slides are in order" in done.stdout) == (0, True)


@pytest.mark.slow
def test_killed_anywhere_it_is_repaired_by_the_same_command(versioned):
    """kill -9 when a slide, the table, and DVC's cache appear: what is there is whole, and the next run goes on."""
    moments = ["data/slides/a.tif", "data/slides/cohort.csv", ".dvc/cache/files/md5/*/*"]
    for moment in moments:
        for left in ("data", ".dvc/cache", ".dvc/tmp"):
            files.remove(Path(left))
        running = subprocess.Popen(command("add", "../in"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not list(versioned.glob(moment)):
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.001)
        running.kill()
        running.wait()
        for name in "ab":
            path = Path(f"data/slides/{name}.tif")
            assert not path.exists() or path.read_bytes() == Path(f"../in/{name}.tif").read_bytes()
        done = gigaslide(versioned, "add", "../in")
        assert done.returncode == 0, done.stderr
        assert table() == [HEADER, "a.tif,annotations/a.geojson,validation,,", "b.tif,annotations/b.geojson,train,,"]
        assert not list(Path("data/slides").rglob(".*"))
    assert "Data and pipelines are up to date" in dvc("status")


@pytest.mark.slow
def test_a_remote_gets_the_slides_when_asked(versioned):
    done = gigaslide(versioned, "add", "../in", "--push")
    assert done.returncode == 1
    assert "there is no DVC remote to push to" in done.stderr
    dvc("remote", "add", "--default", "store", "../remote")
    done = gigaslide(versioned, "add", "../in")
    assert "`dvc push data/slides.dvc` uploads them" in done.stdout
    assert not Path("../remote").exists()
    assert gigaslide(versioned, "add", "../in", "--push").returncode == 0
    # Two slides, their annotations, which are equal, the table, the folder.
    assert sum(path.is_file() for path in Path("../remote").rglob("*")) == 5


def dies(job, progress):
    os.abort()


def test_a_reader_that_crashes_takes_nothing_along(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "check_slide", dies)
    jobs = [check.CheckJob(tmp_path / "a.tif", None, None, config.load(PARAMS).labels)]
    (answer,) = check.check_all(jobs, 1)
    assert answer.found is None
    assert answer.problem.startswith("the process that read it died")


def test_a_reader_that_fails_in_its_own_way_is_a_problem_in_words(project, monkeypatch):
    def broken(job, progress):
        raise ValueError("boom")

    monkeypatch.setattr(check, "check_slide", broken)
    (answer,) = check.check_all([check.CheckJob(Path("a.tif"), None, None, config.load().labels)], 1)
    assert answer.problem == "it cannot be read: ValueError: boom"


def test_a_large_smallest_level_is_not_read_whole(project, monkeypatch):
    path = slide(Path("../in/a.tif"))
    job = check.CheckJob(path, None, None, config.load().labels)
    assert check.check_slide(job, lambda share: None).notes == ()
    monkeypatch.setattr(check, "_LARGEST_OVERVIEW_PX", 1000)
    found = check.check_slide(job, lambda share: None)
    assert found.notes == ("its smallest level is 130 x 150 px: only its corners and its middle were read",)


def test_what_does_not_open_is_a_slide_error(tmp_path):
    (tmp_path / "a.svs").write_text("no slide")
    with pytest.raises(SlideError):
        check.check_slide(check.CheckJob(tmp_path / "a.svs", None, None, config.load(PARAMS).labels), print)


def test_corrupt_tiles_are_told_and_refused_only_when_strict_or_when_nothing_is_left(tmp_path):
    labels = config.load(PARAMS).labels
    path = damage_tile(write_slide(tmp_path / "a.tif", noise((600, 700))), 1)
    (said,) = check.check_slide(check.CheckJob(path, None, None, labels, 0.01), lambda share: None).notes
    assert said.startswith(f"1 corrupt tile(s) where it was looked at ({path} cannot be read at level 0, rows 0 to 256")
    with pytest.raises(SlideError, match=r"a\.tif cannot be read at level 0"):
        check.check_slide(check.CheckJob(path, None, None, labels, 0.0), print)
    for index in range(10 * 11):
        damage_tile(path, index)
    with pytest.raises(SlideError, match="so are all of its corners: copy the slide again"):
        check.check_slide(check.CheckJob(path, None, None, labels, 0.01), print)
