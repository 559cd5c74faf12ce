import multiprocessing
import shutil
from collections import namedtuple

import pytest
from filelock import FileLock

from gigaslide.errors import SlideError
from gigaslide.slides import staging
from gigaslide.slides.staging import staged

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def slide(tmp_path):
    """An MRXS: a file and a folder."""
    (tmp_path / "far/slide").mkdir(parents=True)
    (tmp_path / "far/slide.mrxs").write_bytes(b"index")
    (tmp_path / "far/slide/Data.dat").write_bytes(b"pixels" * 1000)
    return tmp_path / "far/slide.mrxs"


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def copies(cache):
    return [path for path in cache.iterdir() if path.is_dir()]


def test_without_a_cache_the_slide_itself_is_read(slide):
    with staged(slide, None) as path:
        assert path == slide


def test_all_files_are_copied_and_gone_after_use(slide, cache):
    with staged(slide, cache) as path:
        assert path.name == "slide.mrxs"
        assert path.is_relative_to(cache)
        assert path.read_bytes() == b"index"
        assert (path.with_suffix("") / "Data.dat").read_bytes() == b"pixels" * 1000
    assert copies(cache) == []


def test_an_error_inside_removes_the_copy_too(slide, cache):
    with pytest.raises(SlideError, match="mine"), staged(slide, cache):
        raise SlideError("mine")
    assert copies(cache) == []


def left_behind(slide, cache):
    """What a killed process leaves: its copy, whose lock the kernel has freed."""
    with staged(slide, cache) as path:
        shutil.copytree(path.parents[1], cache / "kept")
        name = path.parents[1].name
    (cache / "kept").rename(cache / name)
    return cache / name


def test_a_whole_copy_of_a_killed_run_is_taken_over(slide, cache, monkeypatch):
    left_behind(slide, cache)
    monkeypatch.setattr(staging, "_copy", None)  # nothing is copied
    with staged(slide, cache) as path:
        assert path.read_bytes() == b"index"


@pytest.mark.parametrize("damage", ["changed", "half", "no list"])
def test_a_damaged_copy_is_made_again(slide, cache, damage):
    folder = left_behind(slide, cache)
    if damage == "changed":
        (folder / "slide/slide/Data.dat").write_bytes(b"Pixels" * 1000)
    elif damage == "half":
        (folder / "slide/slide/Data.dat").unlink()
    else:
        (folder / staging._LIST).unlink()
    with staged(slide, cache) as path:
        assert (path.with_suffix("") / "Data.dat").read_bytes() == b"pixels" * 1000


def test_another_slide_at_that_path_is_another_copy(slide, cache):
    left_behind(slide, cache)
    slide.write_bytes(b"other")
    with staged(slide, cache) as path:
        assert path.read_bytes() == b"other"


def test_a_copy_that_is_not_the_same_is_refused(slide, cache, monkeypatch):
    monkeypatch.setattr(staging.files, "sha256", lambda path: "another")
    with pytest.raises(SlideError, match=r"the copy of .*slide\.mrxs is not the same: check slides\.cache_dir"):
        staged(slide, cache).__enter__()
    assert copies(cache) == []


def test_without_room_unused_copies_go_first_and_then_the_original_is_read(slide, cache, monkeypatch):
    old = left_behind(slide, cache)
    other = slide.with_name("other.svs")
    other.write_bytes(b"other")
    monkeypatch.setattr(
        staging.shutil, "disk_usage", lambda path: Usage(0, 0, 0 if old.exists() else staging._SPARE_BYTES + 100)
    )
    with staged(other, cache) as path:
        assert path.is_relative_to(cache)
        assert not old.exists()
        with staged(slide, cache) as path:  # 6005 bytes do not fit
            assert path == slide


def hold(slide, cache, ready, done):
    with staged(slide, cache):
        ready.set()
        done.wait(60)


def test_a_second_process_reads_the_original_and_leaves_the_copy_alone(slide, cache):
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    first = context.Process(target=hold, args=(slide, cache, ready, done))
    first.start()
    try:
        assert ready.wait(60)
        (copy,) = copies(cache)
        with staged(slide, cache) as path:
            assert path == slide
        assert copy.exists()
    finally:
        done.set()
        first.join(60)
    assert copies(cache) == []
    with FileLock(cache / f"{copy.name}.lock", timeout=0):
        pass
