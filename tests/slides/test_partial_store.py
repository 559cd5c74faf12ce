import numpy as np
import pytest

from gigaslide.geometry import Window
from gigaslide.slides.damage import Damage
from gigaslide.slides.partial_store import Attempt, PartialStore, belongs_to, remove_partial
from gigaslide.slides.store import SCHEMA_VERSION, open_store
from gigaslide.slides.window_sums import WindowSums
from tests.slides.files import noise

SHAPE, WINDOW_PX = (600, 600), 512
WINDOWS = [Window.of(0, 0, 512, 512), Window.of(0, 512, 512, 88), Window.of(512, 0, 88, 512)]


def begin(store, inputs="slide", keep_damaged=True):
    partial = PartialStore(store, {"from": inputs})
    return partial, partial.open(SHAPE, WINDOW_PX, with_regions=False, keep_damaged=keep_damaged)


def write(partial, writer, number, lost_px=0):
    window = WINDOWS[number]
    rgb, mask = noise(window.shape, number), np.full(window.shape, number % 2, np.uint8)
    writer.write(window, image=rgb, mask=mask)
    sums = WindowSums.of(rgb, mask == mask, mask, Damage({(0, 0, 0)} if lost_px else set(), lost_px, ""))
    partial.record(number, window, writer, sums)
    return sums


@pytest.fixture
def store(tmp_path):
    """Two windows are whole, and the process is gone."""
    partial, writer = begin(tmp_path / "a.b.zarr")
    for number in (1, 0):
        write(partial, writer, number)
    return tmp_path / "a.b.zarr"


def files_of(store):
    (partial,) = store.parent.glob(".*.partial.zarr")
    return sorted(path.relative_to(partial).as_posix() for path in partial.rglob("*") if path.is_file())


KEPT = ["image/c/0/0/0", "image/c/0/1/0", "image/zarr.json", "mask/c/0/1", "mask/zarr.json"]


def test_what_is_whole_is_known_and_kept(store):
    assert files_of(store) == KEPT  # a mask of nothing but 0 is no file
    partial, _ = begin(store)
    assert [partial.done(number) is not None for number in range(3)] == [True, True, False]
    assert partial.done(1).labels[1] == 512 * 88
    assert files_of(store) == KEPT


def test_a_shard_without_a_line_is_removed(store):
    _, writer = begin(store)
    window = WINDOWS[2]
    writer.write(window, image=noise(window.shape), mask=np.ones(window.shape, np.uint8))
    (next(store.parent.glob(".*.partial.zarr")) / "image/c/0/1/0.__lock").write_bytes(b"half")
    begin(store)
    assert files_of(store) == KEPT


@pytest.mark.parametrize("cut", [1, 5, 400])
def test_a_line_that_was_cut_off_counts_for_nothing(store, cut):
    (journal,) = store.parent.glob(".*.journal")
    journal.write_bytes(journal.read_bytes()[:-cut])
    partial, writer = begin(store)
    assert [partial.done(number) is not None for number in range(3)] == [False, True, False]
    assert files_of(store) == ["image/c/0/1/0", "image/zarr.json", "mask/c/0/1", "mask/zarr.json"]
    write(partial, writer, 0)  # and the next line is whole
    partial, _ = begin(store)
    assert partial.done(0) is not None


def test_a_shard_of_another_size_than_its_line_says_is_made_again(store):
    (shard,) = store.parent.glob(".*.partial.zarr/image/c/0/1/0")
    shard.write_bytes(b"")
    partial, _ = begin(store)
    assert [partial.done(number) is not None for number in range(2)] == [True, False]


def test_damaged_windows_are_read_again_when_none_may_be(store):
    partial, writer = begin(store)
    write(partial, writer, 2, lost_px=9)
    assert begin(store)[0].done(2).damage.lost_px == 9
    assert begin(store, keep_damaged=False)[0].done(2) is None


def test_other_inputs_begin_anew(store):
    partial, _ = begin(store, "another slide")
    assert [partial.done(number) for number in range(3)] == [None] * 3
    assert files_of(store) == ["image/zarr.json", "mask/zarr.json"]
    assert len(list(store.parent.glob(".*"))) == 2


def test_only_what_is_of_that_store_is_removed(store):
    others = [".a.partial.zarr", ".a.0123456789abcdef.partial.zarr", ".x.a.b.0123456789abcdef.partial.journal"]
    for name in others:
        (store.parent / name).mkdir()
        assert not belongs_to(store.parent / name, store)
    remove_partial(store)
    assert sorted(path.name for path in store.parent.iterdir()) == sorted(others)


def known(partial):
    return [partial.done(number) is not None for number in range(3)]


def test_an_attempt_goes_on_with_what_a_run_had_begun_and_the_next_one_with_that(store):
    first = Attempt(store)
    assert not list(store.parent.glob(".*.partial.zarr"))
    partial, writer = begin(first.store)
    assert known(partial) == [True, True, False]
    write(partial, writer, 2)
    second = Attempt(store)
    assert known(begin(second.store)[0]) == [True, True, True]
    assert [path.name for path in store.parent.iterdir()] == [second.store.parent.name]
    assert known(begin(Attempt(store).store, "another slide")[0]) == [False] * 3


def test_who_was_given_up_and_goes_on_spoils_nothing(store):
    first = Attempt(store)
    given_up, writer_given_up = begin(first.store)
    second = Attempt(store)
    partial, writer = begin(second.store)
    for number in range(3):  # it does not know, and ends before the other
        write(given_up, writer_given_up, number)
    writer_given_up.finish({"schema_version": 0})
    given_up.put_in_place()
    assert not store.exists()
    assert known(partial) == [True, True, False]
    write(partial, writer, 2)
    writer.finish({"schema_version": SCHEMA_VERSION, "shape_px": SHAPE})
    partial.put_in_place()
    second.put_in_place()
    found = open_store(store)
    assert found.attributes["files"] == len(KEPT) + 1
    for number, window in enumerate(WINDOWS):
        assert np.array_equal(found.read_image(window), noise(window.shape, number))
    remove_partial(store)
    assert [path.name for path in store.parent.iterdir()] == [store.name]
