import csv
import json
import tracemalloc

import numpy as np
import openslide
import pytest
import tifffile

from gigaslide import files
from gigaslide.demo import cohort
from gigaslide.demo.artefacts import LABEL, NAMES
from gigaslide.demo.slide import SlideRecipe
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.slides.cohort import read_cohort


def test_the_default_cohort_is_complete():
    recipes = cohort.default_cohort()
    by_split = {split: [r for r in recipes if r.split == split] for split in ("train", "validation", "test")}
    assert {split: len(found) for split, found in by_split.items()} == {"train": 12, "validation": 4, "test": 6}
    assert len({recipe.seed for recipe in recipes}) == len({recipe.name for recipe in recipes}) == len(recipes)
    for split, without in (("train", {"fat"}), ("test", set())):
        assert {name for recipe in by_split[split] for name in recipe.artefacts} == set(NAMES) - without
    other = cohort.default_cohort(seed=1)
    assert not {recipe.seed for recipe in recipes} & {recipe.seed for recipe in other}


def test_a_slide_its_mask_and_its_labels_fit_together(tmp_path, real_slide):
    recipe = SlideRecipe("one", 700, 1300, 5, 0.5, ("plain", "pen_blue"))
    written = cohort.write_slide(recipe, real_slide, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.tiff", "one_artefacts.tif", "one_mask.tif"]
    mask, labels = tifffile.imread(written.mask), tifffile.imread(written.artefacts)
    assert mask.shape == labels.shape == (700, 1300)
    assert np.unique(mask).tolist() == [0, 1]
    assert np.unique(labels).tolist() == [0, LABEL["pen_blue"]]
    with openslide.OpenSlide(written.slide) as slide:
        assert slide.dimensions == (1300, 700)
        image = np.asarray(slide.read_region((0, 0), 0, (1300, 700)).convert("RGB"))
    bare = labels == 0
    assert image[bare & (mask == 1)].mean() < image[bare & (mask == 0)].mean() - 20


def test_the_same_recipe_is_the_same_file(tmp_path, real_slide):
    recipe = SlideRecipe("one", 300, 1200, 7, 0.5, ("fat", "dust"))
    one, other = (cohort.write_slide(recipe, real_slide, tmp_path / name) for name in ("a", "b"))
    for kind in ("slide", "mask", "artefacts"):
        assert files.sha256(getattr(one, kind)) == files.sha256(getattr(other, kind))


@pytest.mark.slow
def test_the_cohort_is_written_and_listed(tmp_path, real_slide):
    annotation = tmp_path / "annotation.geojson"
    annotation.write_text('{"type": "FeatureCollection", "features": []}')
    recipes = [
        SlideRecipe("a", 256, 300, 1, 0.5, ("plain",), "train"),
        SlideRecipe("b", 300, 256, 2, 0.5, ("pale", "dust"), "validation"),
        SlideRecipe("c", 256, 256, 3, 0.5, ("ihc",), "test"),
    ]
    table = cohort.write_cohort(tmp_path / "demo", real_slide, annotation, recipes, jobs=2)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    # What is written is what `prepare` reads.
    assert [(row.name, row.split, row.regions and row.regions.name) for row in read_cohort(table)] == [
        ("a", "train", "a_artefacts.tif"),
        ("b", "validation", "b_artefacts.tif"),
        ("c", "test", "c_artefacts.tif"),
        (real_slide.stem, "test", None),
    ]
    with tifffile.TiffFile(table.parent / "b_artefacts.tif") as labels:
        names = json.loads(labels.pages[0].description)["regions"]
    assert [names[LABEL[name] - 1] for name in NAMES[1:]] == list(NAMES[1:])
    for row in rows:
        assert row["mpp"] == ""
        assert (table.parent / row["annotation"]).is_file()
        with openslide.OpenSlide(table.parent / row["slide"]) as slide:
            assert 0.49 < float(slide.properties["openslide.mpp-x"]) < 0.51
    # Neither the number of processes nor their order leaves a trace.
    alone = cohort.write_slide(recipes[1], real_slide, tmp_path / "alone")
    assert files.sha256(alone.slide) == files.sha256(table.parent / "b.tiff")


@pytest.mark.slow
def test_a_slide_that_cannot_be_made_stops_the_cohort(tmp_path, real_slide):
    annotation = tmp_path / "annotation.geojson"
    annotation.write_text("{}")
    wrong = [SlideRecipe("wrong", 256, 256, 1, mpp_um_per_px=3.0)]
    with pytest.raises(GigaslideError, match=r"the demo slide wrong could not be made: .*0\.2 to 0\.55 um per px"):
        cohort.write_cohort(tmp_path / "demo", real_slide, annotation, wrong, jobs=1)
    assert not (tmp_path / "demo/cohort.csv").exists()


def test_bad_input_is_refused_before_any_work(tmp_path, real_slide):
    recipe = SlideRecipe("a", 256, 300, 1)
    with pytest.raises(UsageError, match="different names"):
        cohort.write_cohort(tmp_path / "demo", real_slide, real_slide, [recipe, recipe], jobs=1)
    with pytest.raises(UsageError, match=r"nowhere\.geojson, which is not there"):
        cohort.write_cohort(tmp_path / "demo", real_slide, tmp_path / "nowhere.geojson", [recipe], jobs=1)
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_slide(tmp_path, real_slide):
    peaks = []
    for width in (2048, 8192):
        recipe = SlideRecipe("wide", 2048, width, 3)
        cohort.load_atlases(real_slide, recipe.mpp_um_per_px)
        tracemalloc.start()
        try:
            cohort.write_slide(recipe, real_slide, tmp_path)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # 12.6 Mpx more are 37.7 MB of pixels; a sixteenth of that once and a half (`tiff`), and 2 MB for compressed labels.
    assert peaks[1] - peaks[0] < 37.7e6 / 16 * 1.5 + 2e6
