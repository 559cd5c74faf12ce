from pathlib import Path

import pytest

from gigaslide.stages.matching import find_below, find_beside, masks_among, match


def matches(names, files):
    found = match(names, [Path(file) for file in files])
    return {name: one.annotation.name if one.annotation else one.why for name, one in found.items()}


@pytest.mark.parametrize(
    ("names", "files", "expected"),
    [
        (["a", "b"], ["a.geojson", "B.PNG"], {"a": "a.geojson", "b": "B.PNG"}),
        (["a"], [], {"a": None}),
        (["a"], ["a.xml", "a-mask.png"], {"a": "a.xml"}),
        (["s1", "s10"], ["s1-mask.png", "s10_mask.png"], {"s1": "s1-mask.png", "s10": "s10_mask.png"}),
        (["s1"], ["s10.png", "s1b.png"], {"s1": None}),
        (["a", "a-2"], ["a-2.png"], {"a": None, "a-2": "a-2.png"}),
        (["a", "a-2"], ["a-2-mask.png"], {"a": None, "a-2": "a-2-mask.png"}),
        (["TCGA-AB-1234-01Z"], ["TCGA-AB-1234.json"], {"TCGA-AB-1234-01Z": "TCGA-AB-1234.json"}),
        (["x.svs"], ["x.geojson"], {"x.svs": "x.geojson"}),
    ],
)
def test_by_name(names, files, expected):
    assert matches(names, files) == expected


def test_more_than_one_candidate_is_no_match():
    found = matches(["a", "b"], ["a.xml", "a.json", "b-1.png", "b-2.png"])
    assert found["a"] == "2 annotations may be its own: a.json, a.xml; keep one, with the slide's name"
    assert found["b"].startswith("2 annotations may be its own: b-1.png, b-2.png")
    found = matches(["p-1", "p-2"], ["p.json"])
    assert set(found.values()) == {"p.json may be of 2 slides: p-1, p-2; give it the name of one"}


def test_where_annotations_are_looked_for(tmp_path):
    for name in ("a.tif", "a.geojson", "a.png", "b_mask.png", "a-mask.tif", "notes.txt", "deep/c.xml", "deep/.d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    slides = [tmp_path / "a.tif", tmp_path / "a-mask.tif"]
    assert masks_among(slides) == [tmp_path / "a-mask.tif"]
    suffixes = (".geojson", ".tif", ".png", ".xml")
    # A picture beside slides may be a thumbnail; one in a folder of annotations is none.
    assert [path.name for path in find_beside(slides[:1], suffixes)] == ["a-mask.tif", "a.geojson", "b_mask.png"]
    below = [path.name for path in find_below(tmp_path, suffixes, slides[:1])]
    assert below == ["a-mask.tif", "a.geojson", "a.png", "b_mask.png", "c.xml"]


def test_a_slide_that_ends_like_a_mask_is_one_only_beside_its_slide():
    assert masks_among([Path("x/a-mask.tif"), Path("y/a.tif"), Path("x/b_mask.svs"), Path("x/b.svs")]) == []
