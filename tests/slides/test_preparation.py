import json
import tracemalloc

import numpy as np
import pytest
import tifffile

from gigaslide import files
from gigaslide.config import Labels, Prepare
from gigaslide.errors import SlideError
from gigaslide.geometry import Window
from gigaslide.slides import preparation
from gigaslide.slides.cohort import CohortRow
from gigaslide.slides.preparation import Job, prepare_slide
from tests.slides.dicom import write_dicom
from tests.slides.files import damage_tile, noise, write_slide

SHAPE = (700, 900)
LABELS = Labels(tissue_classes=["Tissue"], ignore_classes=["Ignore"], without_annotation="error")
PREPARE = Prepare(region_px="whole", window_px=512, workers=1)


def quiet(share):
    pass


@pytest.fixture
def job(tmp_path):
    """A slide of noise with one tile that was not scanned, and a mask of half its size."""
    slide = write_slide(tmp_path / "slide.tif", noise(SHAPE), missing=[1])
    mask = np.zeros((350, 450), np.uint8)
    mask[250:, 300:] = 1
    mask[:20] = 255
    tifffile.imwrite(tmp_path / "mask.tif", mask)
    row = CohortRow("slide", slide, tmp_path / "mask.tif", "train", None, None)
    return Job(row, LABELS, PREPARE, None, tmp_path / "slide.zarr")


def changed(job, *, row=None, **fields):
    values = {**job.__dict__, **fields}
    values["row"] = CohortRow(**{**job.row.__dict__, **(row or {})})
    return Job(**values)


def everything(store):
    return Window.of(0, 0, *store.shape)


def test_a_store_holds_the_slide_and_its_labels(job):
    shares = []
    prepared = prepare_slide(job, shares.append)
    store = prepared.store
    assert not prepared.unchanged
    assert store.shape == SHAPE
    image, mask = store.read_image(everything(store)), store.read_mask(everything(store))
    expected = noise(SHAPE)
    expected[:64, 64:128] = 255
    np.testing.assert_array_equal(image, expected)
    labels = np.zeros(SHAPE, np.uint8)
    labels[500:, 600:] = 1
    labels[:40] = 255
    labels[:64, 64:128] = 255
    np.testing.assert_array_equal(mask, labels)
    about = store.attributes
    assert about["tissue_px"] == 200 * 300
    assert about["invalid_px"] == 40 * 900 + 24 * 64
    assert about["glass_px"] == 700 * 900 - about["tissue_px"] - about["invalid_px"]
    assert about["slide_sha256"] == files.sha256(job.row.slide)
    assert about["annotation_sha256"] == files.sha256(job.row.annotation)
    assert (about["mpp_um_per_px"], about["mpp_source"]) == ([0.5, 0.5], "openslide")
    assert (about["offset_yx_px"], about["level0_shape_px"]) == ([0, 0], list(SHAPE))
    assert shares == [0.25, 0.5, 0.75, 1.0]


def test_an_area_lies_on_the_most_tissue(job):
    store = prepare_slide(changed(job, prepare=Prepare(region_px=[256, 300], window_px=512, workers=1)), quiet).store
    top, left = store.attributes["offset_yx_px"]
    assert store.shape == (256, 300)
    # It holds all of the tissue: rows 500 to 700, columns 600 to 900.
    assert top == 444
    assert left == 600
    assert store.attributes["tissue_px"] == 200 * 300
    np.testing.assert_array_equal(store.read_image(everything(store)), noise(SHAPE)[444:700, 600:900])


def test_another_resolution(job):
    store = prepare_slide(changed(job, mpp_um_per_px=2.0), quiet).store
    assert store.shape == (175, 225)
    mean = noise(SHAPE).reshape(175, 4, 225, 4, 3).mean(axis=(1, 3))
    valid = store.read_mask(everything(store)) != 255
    assert not valid[:16, 16:32].any()
    # Rounded to whole grey levels.
    assert np.abs(store.read_image(everything(store))[valid] - mean[valid]).max() <= 0.5 + 1e-3
    assert store.attributes["level0_px_per_px"] == [4.0, 4.0]
    assert store.mpp_um_per_px == pytest.approx(2.0)


def test_nothing_changed_leaves_the_store_alone(job):
    prepare_slide(job, quiet)
    stat = (job.store / "zarr.json").stat()
    again = prepare_slide(job, quiet)
    assert again.unchanged
    assert (job.store / "zarr.json").stat() == stat


def test_the_same_inputs_give_the_same_bytes(job, tmp_path):
    prepare_slide(job, quiet)
    other = changed(job, store=tmp_path / "elsewhere" / "slide.zarr")
    assert not prepare_slide(other, quiet).unchanged
    assert files.sha256(other.store) == files.sha256(job.store)


@pytest.mark.parametrize("threads", [2, 5])
def test_windows_side_by_side_give_the_same_bytes(job, tmp_path, threads):
    for index in (2, 61, 100):
        damage_tile(job.row.slide, index)
    slide = changed(job, max_corrupt_fraction=0.1)
    one_by_one = prepare_slide(slide, quiet).store
    other = changed(slide, store=tmp_path / "elsewhere" / "slide.zarr")
    prepare_slide(other, quiet, lambda: threads)
    assert files.sha256(other.store) == files.sha256(slide.store)
    assert one_by_one.attributes["corrupt_tiles"] == 3
    refused = changed(job, max_corrupt_fraction=0.001)
    said = set()
    for many in (1, threads, threads):
        with pytest.raises(SlideError, match=r"at least [12] corrupt") as caught:
            prepare_slide(refused, quiet, lambda many=many: many)
        said.add(str(caught.value))
    assert len(said) == 1


@pytest.fixture(params=["tiff", "dicom"])
def cached(request, job, tmp_path):
    """The job, and one that reads a copy."""
    if request.param == "tiff":
        damage_tile(job.row.slide, 2)
    else:
        job = changed(job, row={"slide": write_dicom(tmp_path / "dicom", noise(SHAPE))})
        (tmp_path / "dicom/notes.txt").write_text("no part of the slide")
    job = changed(job, max_corrupt_fraction=0.1)
    return job, changed(job, store=tmp_path / "elsewhere/slide.zarr", cache=tmp_path / "cache")


def test_a_copy_in_the_cache_changes_no_byte(cached):
    direct, copied = cached
    prepare_slide(direct, quiet)
    prepare_slide(copied, quiet)
    assert files.sha256(copied.store) == files.sha256(direct.store)
    assert [path for path in copied.cache.iterdir() if path.is_dir()] == []
    assert prepare_slide(copied, quiet).unchanged
    assert list(copied.cache.iterdir())  # it was used


@pytest.mark.parametrize("how", ["strict", "no slide"])
def test_an_error_names_the_slide_not_its_copy(cached, how):
    _, copied = cached
    if how == "no slide":
        copied.row.slide.write_text("broken")
    elif copied.row.slide.suffix == ".dcm":
        pytest.skip("nothing in it is damaged")
    with pytest.raises(SlideError) as caught:
        prepare_slide(changed(copied, max_corrupt_fraction=0.0), quiet)
    assert str(copied.row.slide) in str(caught.value)
    assert str(copied.cache) not in str(caught.value)


CHANGES = {
    "slide": lambda job: write_slide(job.row.slide, noise(SHAPE, seed=1)) and job,
    "annotation": lambda job: tifffile.imwrite(job.row.annotation, np.ones(SHAPE, np.uint8)) or job,
    "mpp in the table": lambda job: changed(job, row={"mpp_um_per_px": 0.25}),
    "resolution": lambda job: changed(job, mpp_um_per_px=1.0),
    "classes": lambda job: changed(job, labels=LABELS.model_copy(update={"tissue_classes": [1, 255]})),
    "window": lambda job: changed(job, prepare=PREPARE.model_copy(update={"window_px": 1024})),
    "region": lambda job: changed(job, prepare=PREPARE.model_copy(update={"region_px": [100, 100]})),
    "a lost shard": lambda job: files.remove(job.store / "image/c/0/1/0") or job,
    "a half written store": lambda job: files.remove(job.store / "zarr.json") or job,
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changed_makes_the_store_anew(job, change):
    before = prepare_slide(job, quiet).store.attributes
    job = CHANGES[change](job)
    after = prepare_slide(job, quiet)
    assert not after.unchanged
    assert prepare_slide(job, quiet).unchanged
    assert (after.store.attributes == before) == (change in ("a lost shard", "a half written store"))


def test_the_number_of_workers_changes_nothing(job):
    prepare_slide(job, quiet)
    more = changed(job, prepare=PREPARE.model_copy(update={"workers": 7}))
    assert prepare_slide(more, quiet).unchanged


def test_changed_code_makes_the_store_anew(job, monkeypatch):
    prepare_slide(job, quiet)
    monkeypatch.setattr(preparation, "_code_sha256", lambda: "other")
    assert not prepare_slide(job, quiet).unchanged


def test_a_slide_that_fails_leaves_no_store_behind(job):
    prepare_slide(job, quiet)
    job.row.slide.write_text("broken")
    with pytest.raises(SlideError, match=r"slide\.tif cannot be opened as a slide: it is a text file"):
        prepare_slide(job, quiet)
    assert not job.store.exists()
    assert not list(job.store.parent.glob(".*"))


def test_an_unchanged_store_survives_an_interrupt(job, monkeypatch):
    prepare_slide(job, quiet)

    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(preparation, "slide_sha256", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare_slide(job, quiet)
    assert job.store.exists()


def test_warnings_are_kept_in_the_store(job, tmp_path):
    ring = [[0, 0], [50, 0], [50, 50], [0, 50]]
    features = [
        {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": {"class": name}}
        for name in ("Tissue", "Necrosis")
    ]
    (tmp_path / "slide.geojson").write_text(json.dumps(features))
    store = prepare_slide(changed(job, row={"annotation": tmp_path / "slide.geojson"}), quiet).store
    assert store.attributes["warnings"] == ["left out of the annotation slide.geojson: 1 of class Necrosis"]


def regions(tmp_path, values, description):
    tifffile.imwrite(tmp_path / "regions.tif", values, description=description, metadata=None)
    return {"regions": tmp_path / "regions.tif"}


def test_regions_go_into_the_store(job, tmp_path):
    values = np.zeros((175, 225), np.uint8)
    values[100:, :50] = 2
    row = regions(tmp_path, values, json.dumps({"regions": ["pen", "fold"]}))
    store = prepare_slide(changed(job, row=row), quiet).store
    assert store.region_names == ("pen", "fold")
    np.testing.assert_array_equal(store.read_regions(everything(store)), values.repeat(4, 0).repeat(4, 1))


@pytest.mark.parametrize(
    ("value", "description", "message"),
    [
        (1, "hello", r'should name their values .* \{"regions": \["pen", \.\.\.\]\}; found \'hello\''),
        (3, json.dumps({"regions": ["pen"]}), r"have the value 3 but only 1 name\(s\)"),
    ],
)
def test_regions_without_names_are_refused(job, tmp_path, value, description, message):
    row = regions(tmp_path, np.full(SHAPE, value, np.uint8), description)
    with pytest.raises(SlideError, match=message):
        prepare_slide(changed(job, row=row), quiet)


def test_the_files_of_a_slide_are_all_hashed(tmp_path):
    (tmp_path / "slide.mrxs").write_text("index")
    (tmp_path / "slide").mkdir()
    (tmp_path / "slide/Data0001.dat").write_text("pixels")
    before = preparation.slide_sha256(tmp_path / "slide.mrxs")
    (tmp_path / "slide/Data0001.dat").write_text("others")
    assert preparation.slide_sha256(tmp_path / "slide.mrxs") != before


def test_memory_does_not_grow_with_the_slide(tmp_path, monkeypatch):
    """What Python and NumPy hold at most is the same for four times the pixels."""
    monkeypatch.setattr(preparation, "_code_sha256", lambda: "")
    peaks_bytes = []
    for height in (2048, 8192):
        slide = write_slide(tmp_path / f"{height}.tif", np.zeros((height, 1024, 3), np.uint8))
        tifffile.imwrite(tmp_path / f"{height}-mask.tif", np.zeros((height, 1024), np.uint8), tile=(256, 256))
        row = CohortRow("slide", slide, tmp_path / f"{height}-mask.tif", "train", None, None)
        job = Job(row, LABELS, PREPARE, None, tmp_path / f"{height}.zarr")
        monkeypatch.setattr("gigaslide.slides.mask_image._CACHE_BYTES", 1 << 20)
        tracemalloc.start()
        prepare_slide(job, quiet)
        peaks_bytes.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # A window of 512 x 512 px: 1 MiB RGBA three times over, 0.75 MiB RGB twice, labels, 1 MiB of mask; the tables of
    # tiles grow, by some 100 bytes for each of 1536 more tiles.
    assert peaks_bytes[0] < 8 << 20
    assert peaks_bytes[1] - peaks_bytes[0] < 1 << 20
