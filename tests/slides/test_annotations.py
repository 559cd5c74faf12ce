import json
import os

import pytest

from gigaslide.config import Labels
from gigaslide.errors import GigaslideWarning, SlideError
from gigaslide.slides import annotations
from gigaslide.slides.annotations import read_annotation
from tests.slides.xml import SQUARE, asap, asap_annotation, imagescope, layer, region

LABELS = Labels(
    tissue_classes=["Tissue", "Tumor", 1],
    glass_classes=["Lumen"],
    ignore_classes=["Ignore"],
    region_classes=["ROI"],
    without_annotation="error",
)


def geojson(*names):
    polygon = {"type": "Polygon", "coordinates": [SQUARE]}
    return json.dumps([{"geometry": polygon, "properties": {"classification": {"name": name}}} for name in names])


def asap_of(*names):
    return asap(*[asap_annotation(SQUARE, name) for name in names])


def imagescope_of(*names):
    return imagescope(*[layer(region(SQUARE), name=name) for name in names])


FORMATS = {
    "geojson": ("slide.geojson", geojson),
    "asap": ("slide.xml", asap_of),
    "imagescope": ("slide.XML", imagescope_of),
    "halo": ("slide.annotations", imagescope_of),
}
every_format = pytest.mark.parametrize("kind", FORMATS)


def read(folder, kind, *names, labels=LABELS):
    file, write = FORMATS[kind]
    (folder / file).write_text(write(*names), encoding="utf-8")
    return read_annotation(folder / file, labels)


@every_format
def test_a_class_has_its_role_in_every_format(tmp_path, kind):
    labels = LABELS.model_copy(update={"region_classes": ["ROI", "Region*"]})
    annotation = read(tmp_path, kind, "Tissue", "tumor*", "Lumen", "Ignore", "Region*", "ROI", "roi", labels=labels)
    counts = [len(found) for found in (annotation.tissue, annotation.glass, annotation.ignore, annotation.regions)]
    assert counts == [2, 1, 1, 3]
    assert annotation.tissue[0].area == 16
    assert annotation.kind == ("imagescope" if kind == "halo" else kind)


@every_format
def test_a_file_of_other_classes_is_refused_with_what_it_has(tmp_path, kind):
    with pytest.raises(SlideError, match=r"has no class Tissue, Tumor, 1 .*are: Necrosis( / #00ff00)?, Stroma"):
        read(tmp_path, kind, "Stroma", "Necrosis")


@every_format
def test_glass_or_ignore_alone_says_nothing_of_the_rest(tmp_path, kind):
    with pytest.raises(SlideError, match="has no class"):
        read(tmp_path, kind, "Lumen", "Ignore")


@every_format
def test_a_region_without_tissue_is_glass_that_was_looked_at(tmp_path, kind):
    annotation = read(tmp_path, kind, "ROI")
    assert (annotation.tissue, len(annotation.regions)) == ((), 1)


def test_regions_without_an_area_are_not_taken_for_none(tmp_path):
    path = tmp_path / "slide.xml"
    path.write_text(asap(asap_annotation(SQUARE), asap_annotation(SQUARE[:2], "ROI")))
    with pytest.raises(SlideError, match=r"should have an area in its regions \(ROI, labels.region_classes\)"):
        read_annotation(path, LABELS)


@every_format
def test_nothing_drawn_is_no_tissue(tmp_path, kind):
    assert read(tmp_path, kind).tissue == ()


@every_format
def test_what_was_left_out_is_said_and_counted(tmp_path, kind):
    with pytest.warns(GigaslideWarning, match=r"left out of .*: 2 of class Necrosis.*, 1 of class Stroma"):
        read(tmp_path, kind, "Tissue", "Necrosis", "Stroma", "Necrosis")


def test_a_long_list_is_cut(tmp_path):
    with pytest.warns(GigaslideWarning, match=r"1 of class x009, 990 more$"):
        read(tmp_path, "geojson", "Tissue", *[f"x{number:03}" for number in range(1000)])


def test_names_from_the_file_stay_on_one_line_and_can_be_printed(tmp_path):
    with pytest.raises(SlideError) as error:
        read(tmp_path, "geojson", "a\nb\u2028c\x1b[31m", "\ud800", "y" * 1000)
    text = str(error.value)
    assert text.isprintable()
    assert "y" * 100 not in text
    text.encode()


def test_a_layer_without_a_name_is_known_by_its_colour(tmp_path):
    labels = LABELS.model_copy(update={"tissue_classes": ["#00FF00"]})
    assert len(read(tmp_path, "imagescope", "", labels=labels).tissue) == 1


def test_a_group_in_a_tissue_group_is_tissue(tmp_path):
    path = tmp_path / "slide.xml"
    path.write_text(asap(asap_annotation(SQUARE, "Invasive"), groups=[("Invasive", "Tumor"), ("Tumor", "None")]))
    assert len(read_annotation(path, LABELS).tissue) == 1


def test_another_kind_of_xml_is_named(tmp_path):
    path = tmp_path / "slide.xml"
    path.write_text('<?xml version="1.0"?><annotations><ndpviewstate id="1"/></annotations>')
    with pytest.raises(
        SlideError, match=r"slide\.xml cannot be used: .*<ASAP_Annotations> .* found <annotations>: open"
    ):
        read_annotation(path, LABELS)


def test_a_fault_is_told_with_file_place_and_what_to_do(tmp_path):
    path = tmp_path / "slide.xml"
    path.write_text(asap(asap_annotation([(0, "x")])))
    with pytest.raises(SlideError) as error:
        read_annotation(path, LABELS)
    assert str(error.value) == (
        f"the annotation {path} cannot be used: line 4: expected a number in Y; found 'x'; "
        "correct that, or export the annotation again"
    )


def test_a_file_too_large_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "cells.geojson"
    path.touch()
    os.truncate(path, annotations._LARGEST_BYTES + 1)
    with pytest.raises(SlideError, match="export annotations only"):
        read_annotation(path, LABELS)


@pytest.mark.parametrize("name", ["absent.xml", "absent.geojson"])
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(SlideError, match=name):
        read_annotation(tmp_path / name, LABELS)
