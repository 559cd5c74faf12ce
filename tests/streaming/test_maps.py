import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.geometry import Interval, Window
from gigaslide.streaming import maps
from gigaslide.streaming.maps import DiskMap, Map, RamMap

SHAPE = 9, 7, 3
EVERYTHING = Window.of(0, 0, 9, 7)
OPEN_FILES = Path("/proc/self/fd")
counts_open_files = pytest.mark.skipif(
    not OPEN_FILES.exists(), reason="NOT TESTED: open files are listed on Linux alone"
)


def read(kept: Map, window: Window, dtype: str) -> np.ndarray:
    values = np.full((1, *window.shape, SHAPE[2]), np.nan, dtype)
    kept.read(window, values)
    return values


def open_files(folder: Path) -> list[str]:
    """Return the files of `folder` that this process has open, removed ones too; none where there is no /proc."""
    links = []
    for descriptor in OPEN_FILES.iterdir() if OPEN_FILES.exists() else ():
        try:
            links.append(str(descriptor.readlink()))
        except FileNotFoundError:  # the listing's own
            continue
    return [link for link in links if link.startswith(str(folder))]


@st.composite
def windows(draw: st.DrawFn) -> Window:
    intervals = []
    for size in SHAPE[:2]:
        start = draw(st.integers(0, size - 1))
        intervals.append(Interval(start, draw(st.integers(start + 1, size))))
    return Window(*intervals)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_memory_and_disk_are_the_same(tmp_path: Path, dtype: str) -> None:
    @settings(max_examples=30)
    @given(st.lists(st.tuples(st.sampled_from(["write", "add"]), windows()), max_size=6), st.integers(0, 100))
    def after_any_writes(steps: list[tuple[str, Window]], seed: int) -> None:
        random, truth = np.random.default_rng(seed), np.zeros(SHAPE, dtype)
        kept: list[Map] = [RamMap(SHAPE, np.dtype(dtype)), DiskMap(SHAPE, np.dtype(dtype), tmp_path)]
        for action, window in steps:
            values = random.normal(size=(1, *window.shape, SHAPE[2])).astype(dtype)
            truth[window.slices] = values[0] + (truth[window.slices] if action == "add" else 0)
            for one in kept:
                getattr(one, action)(window, values)
        for one in kept:
            assert np.array_equal(read(one, EVERYTHING, dtype)[0], truth)
            for _, window in steps:
                assert np.array_equal(read(one, window, dtype)[0], truth[window.slices])
            one.close()

    after_any_writes()


@pytest.mark.parametrize("make", [RamMap, lambda *args: DiskMap(*args, Path.cwd())], ids=["ram", "disk"])
def test_what_was_not_written_is_zero(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = make(SHAPE, np.dtype("float32"))
    kept.write(Window.of(8, 6, 1, 1), np.ones((1, 1, 1, 3), np.float32))
    values = read(kept, EVERYTHING, "float32")
    assert values[0, 8, 6].tolist() == [1, 1, 1]
    assert values.sum() == 3
    kept.close()


@counts_open_files
def test_a_file_has_no_name_and_is_gone_after_close(tmp_path: Path) -> None:
    kept = DiskMap(SHAPE, np.dtype("float32"), tmp_path)
    kept.write(EVERYTHING, np.ones((1, *SHAPE), np.float32))
    assert list(tmp_path.iterdir()) == []
    assert len(open_files(tmp_path)) == 1
    kept.close()
    assert open_files(tmp_path) == []


def test_what_the_system_reads_and_writes_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread, pwrite = os.pread, os.pwrite
    monkeypatch.setattr(maps.os, "pread", lambda descriptor, size, offset: pread(descriptor, min(size, 5), offset))
    monkeypatch.setattr(maps.os, "pwrite", lambda descriptor, data, offset: pwrite(descriptor, data[:5], offset))
    kept = DiskMap(SHAPE, np.dtype("float32"), tmp_path)
    values = np.random.default_rng(0).normal(size=(1, *SHAPE)).astype(np.float32)
    kept.write(EVERYTHING, values)
    assert np.array_equal(read(kept, EVERYTHING, "float32"), values)
    kept.close()


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    kept = DiskMap(SHAPE, np.dtype("float32"), tmp_path)
    os.truncate(kept._file.fileno(), 100)
    with pytest.raises(OSError, match="shorter than it was made"):
        read(kept, EVERYTHING, "float32")
    kept.close()
