import json
import pickle
import resource
from pathlib import Path

import numpy as np
import pytest

from gigaslide import files
from gigaslide.errors import GigaslideError
from gigaslide.geometry import Window, grid
from gigaslide.slides.store import SCHEMA_VERSION, StoreWriter, open_split, open_store
from tests.slides.files import noise

SHAPE = (1100, 1700)
SHARD_PX = 1024
WHOLE = Window.of(0, 0, *SHAPE)


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    mask = rng.choice(np.array([0, 1, 255], np.uint8), SHAPE)
    mask[:600] = 0  # chunks of nothing but the fill value
    return {"image": noise(SHAPE), "mask": mask, "regions": rng.integers(0, 3, SHAPE, np.uint8)}


def write(path, arrays, **attributes):
    writer = StoreWriter(path, SHAPE, SHARD_PX, with_regions="regions" in arrays)
    for window in grid(SHAPE, (SHARD_PX, SHARD_PX)):
        writer.write(window, **{name: array[window.slices] for name, array in arrays.items()})
    names = ["pen", "fold"] if "regions" in arrays else []
    writer.finish(
        {
            "schema_version": SCHEMA_VERSION,
            "name": path.stem,
            "shape_px": list(SHAPE),
            "mpp_um_per_px": [0.25, 0.36],
            "region_names": names,
            **attributes,
        }
    )
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory, arrays):
    return open_store(write(tmp_path_factory.mktemp("stores") / "slide.zarr", arrays))


def test_a_shard_that_the_disk_has_no_room_for_to_its_last_byte_is_an_error_and_not_a_shorter_shard(tmp_path, arrays):
    """The system then takes what it has room for, and only the next write fails."""
    whole = Window.of(0, 0, SHARD_PX, SHARD_PX)
    writer = StoreWriter(tmp_path / "slide.zarr", SHAPE, SHARD_PX, with_regions=False)
    writer.write(whole, image=arrays["image"][whole.slices])
    (shard,) = writer.path.glob("image/c/*/*/*")
    room = shard.stat().st_size - 1
    shard.unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            writer.write(whole, image=arrays["image"][whole.slices])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [path for path in writer.path.rglob("image/c/**/*") if path.is_file()]


@pytest.mark.parametrize("window", [WHOLE, Window.of(500, 1000, 600, 700), Window.of(1099, 1699, 1, 1)])
def test_what_was_written_is_read(store, arrays, window):
    np.testing.assert_array_equal(store.read_image(window), arrays["image"][window.slices])
    np.testing.assert_array_equal(store.read_mask(window), arrays["mask"][window.slices])
    np.testing.assert_array_equal(store.read_regions(window), arrays["regions"][window.slices])
    assert store.read_image(window).dtype == np.uint8


def test_what_a_store_says_of_itself(store):
    assert (store.name, store.shape, store.region_names) == ("slide", SHAPE, ("pen", "fold"))
    assert store.mpp_um_per_px == pytest.approx(0.3)  # sqrt(0.25 * 0.36)


def test_without_regions_and_without_pixel_size(tmp_path, arrays):
    arrays = {name: arrays[name] for name in ("image", "mask")}
    store = open_store(write(tmp_path / "plain.zarr", arrays, mpp_um_per_px=None))
    assert store.read_regions(WHOLE) is None
    assert store.region_names == ()
    assert store.mpp_um_per_px is None


def test_a_shard_is_a_file_and_the_layout_is_zarr_3(store):
    shards = sorted(path.relative_to(store.path).as_posix() for path in store.path.rglob("c/*/*/*"))
    assert [shard for shard in shards if shard.startswith("image/")] == [
        f"image/c/{y}/{x}/0" for y in range(2) for x in range(2)
    ]
    group = json.loads((store.path / "zarr.json").read_text())
    array = json.loads((store.path / "image/zarr.json").read_text())
    assert (group["zarr_format"], group["node_type"]) == (3, "group")
    assert (array["zarr_format"], array["node_type"], array["shape"]) == (3, "array", [*SHAPE, 3])
    assert array["codecs"][0]["configuration"]["chunk_shape"] == [512, 512, 3]


def test_the_same_pixels_give_the_same_bytes(store, tmp_path, arrays):
    assert files.sha256(write(tmp_path / "slide.zarr", arrays)) == files.sha256(store.path)


def test_a_pickled_store_reads(store, arrays):
    store.read_image(Window.of(0, 0, 1, 1))  # with an open array in it
    again = pickle.loads(pickle.dumps(store))
    np.testing.assert_array_equal(again.read_mask(WHOLE), arrays["mask"])


@pytest.mark.parametrize("window", [Window.of(0, 0, 1101, 1), Window.of(-1, 0, 2, 2), Window.of(0, 1700, 1, 1)])
def test_a_window_outside_is_refused(store, window):
    with pytest.raises(ValueError, match="a window lies inside"):
        store.read_mask(window)


def test_what_is_no_store_is_refused(tmp_path, arrays):
    with pytest.raises(GigaslideError, match=r"no prepared store .* run `gigaslide prepare`"):
        open_store(tmp_path / "absent.zarr")
    (tmp_path / "zarr.json").write_text("{}")
    with pytest.raises(GigaslideError, match="no prepared store"):
        open_store(tmp_path)
    with pytest.raises(GigaslideError, match=f"has layout 99, this version reads {SCHEMA_VERSION}"):
        open_store(write(tmp_path / "new.zarr", arrays, schema_version=99))


def test_damage_is_said(tmp_path, arrays):
    path = write(tmp_path / "slide.zarr", arrays)
    shard = path / "image/c/0/0/0"
    content = bytearray(shard.read_bytes())
    content[1000:1100] = bytes(100)
    shard.write_bytes(content[:-40])
    with pytest.raises(GigaslideError, match=r"slide\.zarr is damaged"):
        open_store(path).read_image(WHOLE)
    files.remove(path / "mask")
    with pytest.raises(GigaslideError, match=r"slide\.zarr is damaged"):
        open_store(path).read_mask(WHOLE)


def test_a_split_in_the_order_of_the_table(tmp_path, arrays):
    splits = {"b": "train", "a": "train", "c": "test"}
    entries = [{"name": name, "split": split, "store": f"{name}.zarr"} for name, split in splits.items()]
    (tmp_path / "index.json").write_text(json.dumps({"slides": entries}))
    for name in splits:
        write(tmp_path / f"{name}.zarr", arrays)
    assert [store.name for store in open_split(tmp_path, "train")] == ["b", "a"]
    assert [store.name for store in open_split(tmp_path, "test")] == ["c"]
    assert open_split(tmp_path, "validation") == []


def test_nothing_prepared_is_said(tmp_path):
    with pytest.raises(GigaslideError, match="has no index of stores"):
        open_split(Path(tmp_path), "train")
