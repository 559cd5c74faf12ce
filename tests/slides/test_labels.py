import json

import numpy as np
import pytest
import tifffile

from gigaslide.config import Labels
from gigaslide.errors import GigaslideWarning, SlideError
from gigaslide.geometry import Window
from gigaslide.slides.labels import open_labels
from gigaslide.slides.reader import open_slide
from tests.slides import xml
from tests.slides.files import write_slide

SHAPE = (120, 160)
WHOLE = Window.of(0, 0, *SHAPE)
NAMES = Labels(tissue_classes=["Tissue"], ignore_classes=["Ignore"], without_annotation="error")
ONE_UM = {"resolution": (10000, 10000), "resolutionunit": "CENTIMETER"}
AUTO = NAMES.model_copy(update={"without_annotation": "auto"})


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    rgb = np.full((*SHAPE, 3), 243, np.uint8)
    rgb[40:, 40:120] = (200, 120, 170)
    return open_slide(write_slide(tmp_path_factory.mktemp("slides") / "slide.tif", rgb, **ONE_UM))


def box(name, top, left, bottom, right):
    ring = [[left, top], [right, top], [right, bottom], [left, bottom]]
    geometry = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "geometry": geometry, "properties": {"classification": {"name": name}}}


def geojson(tmp_path, *features):
    path = tmp_path / "slide.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def mask(tmp_path, values):
    path = tmp_path / "mask.tif"
    tifffile.imwrite(path, values, tile=(16, 16))
    return path


def test_geojson_ignore_lies_over_tissue(reader, tmp_path):
    path = geojson(tmp_path, box("Ignore", 20, 20, 40, 60), box("Tissue", 10, 30, 50, 90))
    expected = np.zeros(SHAPE, np.uint8)
    expected[10:50, 30:90] = 1
    expected[20:40, 20:60] = 255
    labels = open_labels(reader, path, NAMES)
    assert labels.kind == "geojson"
    np.testing.assert_array_equal(labels.read(WHOLE), expected)
    window = Window.of(33, 50, 20, 30)
    np.testing.assert_array_equal(labels.read(window), expected[window.slices])


def test_glass_is_cut_out_of_the_tissue_around_it(reader, tmp_path):
    """A hole in tissue, an island in the hole, and an outline of all the background."""
    drawn = [
        ("Tissue", 15, 25, 20, 30),
        ("Glass", 10, 20, 30, 40),
        ("Tissue", 0, 10, 50, 90),
        ("Glass", 0, 0, 120, 160),
    ]
    path = geojson(tmp_path, *[box(*corners) for corners in drawn])
    expected = np.zeros(SHAPE, np.uint8)
    expected[:50, 10:90] = 1
    expected[10:30, 20:40] = 0
    expected[15:20, 25:30] = 1
    labels = open_labels(reader, path, NAMES.model_copy(update={"glass_classes": ["Glass"]}))
    np.testing.assert_array_equal(labels.read(WHOLE), expected)
    window = Window.of(12, 22, 10, 50)
    np.testing.assert_array_equal(labels.read(window), expected[window.slices])


def test_glass_and_tissue_of_equal_size_are_glass(reader, tmp_path):
    path = geojson(tmp_path, box("Glass", 10, 30, 50, 90), box("Tissue", 10, 30, 50, 90))
    labels = open_labels(reader, path, NAMES.model_copy(update={"glass_classes": ["Glass"]}))
    assert not labels.read(WHOLE).any()


REGIONS = NAMES.model_copy(update={"region_classes": ["ROI"]})


def test_outside_of_regions_nothing_is_known(reader, tmp_path):
    tissue_and_ignore = box("Tissue", 15, 10, 90, 150), box("Ignore", 0, 0, 5, 5)
    path = geojson(tmp_path, box("ROI", 0, 0, 20, 50), box("ROI", 10, 40, 60, 60), *tissue_and_ignore)
    expected = np.full(SHAPE, 255, np.uint8)
    for region in (np.s_[:20, :50], np.s_[10:60, 40:60]):
        expected[region] = 0
    expected[15:90, 10:150][expected[15:90, 10:150] == 0] = 1
    expected[:5, :5] = 255
    labels = open_labels(reader, path, REGIONS)
    np.testing.assert_array_equal(labels.read(WHOLE), expected)
    small = expected[2::4, 2::4]  # what lies under the centre of each 4 x 4 px
    np.testing.assert_array_equal(labels.at_shape((30, 40)).read(Window.of(0, 0, 30, 40)), small)


def test_a_slide_without_regions_was_annotated_in_full(reader, tmp_path):
    path = geojson(tmp_path, box("Tissue", 10, 30, 50, 90))
    labels = open_labels(reader, path, REGIONS).read(WHOLE)
    assert set(np.unique(labels)) == {0, 1}


def test_xml_gives_the_same_labels_as_geojson(reader, tmp_path):
    corners = [(30, 10), (90.5, 10), (71.2, 50), (30, 33)]
    feature = box("Tissue", 0, 0, 1, 1)
    feature["geometry"]["coordinates"] = [corners]
    expected = open_labels(reader, geojson(tmp_path, feature), NAMES).read(WHOLE)
    for kind, text in {
        "asap": xml.asap(xml.asap_annotation(corners)),
        "imagescope": xml.imagescope(xml.layer(xml.region(corners))),
    }.items():
        (tmp_path / f"{kind}.xml").write_text(text)
        labels = open_labels(reader, tmp_path / f"{kind}.xml", NAMES)
        assert labels.kind == kind
        np.testing.assert_array_equal(labels.read(WHOLE), expected)


def test_an_annotation_beyond_the_slide_is_of_another_slide(reader, tmp_path):
    path = geojson(tmp_path, box("Tissue", 120, 10, 150, 50), box("Tissue", 10, 200, 50, 250))
    with pytest.raises(SlideError, match=r"lie on the slide, 120 x 160 px .* rows 10 to 150, columns 10 to 250: is it"):
        open_labels(reader, path, NAMES)
    with pytest.raises(SlideError, match="of another slide"):
        open_labels(reader.at_shape((30, 40)), path, NAMES)


def test_labels_follow_the_readers_grid(reader, tmp_path):
    path = geojson(tmp_path, box("Tissue", 12, 32, 60, 100))
    expected = np.zeros((30, 40), np.uint8)
    expected[3:15, 8:25] = 1
    small = reader.at_shape((30, 40))
    np.testing.assert_array_equal(open_labels(small, path, NAMES).read(Window.of(0, 0, 30, 40)), expected)
    same = open_labels(reader, path, NAMES).at_shape((30, 40))
    np.testing.assert_array_equal(same.read(Window.of(0, 0, 30, 40)), expected)
    image = mask(tmp_path, np.repeat(np.repeat(expected, 4, 0), 4, 1))
    np.testing.assert_array_equal(open_labels(small, image, NAMES).read(Window.of(0, 0, 30, 40)), expected)
    same = open_labels(reader, image, NAMES).at_shape((30, 40))
    np.testing.assert_array_equal(same.read(Window.of(0, 0, 30, 40)), expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1], [0, 1]),
        ([0, 255], [0, 1]),
        ([0, 1, 255], [0, 1, 255]),
        ([0, 2, 7], [0, 1, 1]),
        ([0, 2, 7, 255], [0, 1, 1, 255]),
        ([0], [0]),
        ([255], [1]),
    ],
)
def test_a_mask_without_numbers_in_the_settings(reader, tmp_path, values, expected):
    picture = np.resize(np.repeat(np.array(values, np.uint8), 7), SHAPE)
    labels = open_labels(reader, mask(tmp_path, picture), NAMES).read(WHOLE)
    for value, label in zip(values, expected, strict=True):
        assert (labels[picture == value] == label).all()


def test_a_mask_with_numbers_in_the_settings(reader, tmp_path):
    picture = np.resize(np.repeat(np.arange(5, dtype=np.uint8), 7), SHAPE)
    numbers = Labels(tissue_classes=["Tissue", 2, 4], ignore_classes=[3], without_annotation="error")
    with pytest.warns(GigaslideWarning, match=r"mask\.tif has values .* taken as glass: 1$"):
        labels = open_labels(reader, mask(tmp_path, picture), numbers).read(WHOLE)
    np.testing.assert_array_equal(labels, np.array([0, 0, 1, 255, 1], np.uint8)[picture])
    numbers = numbers.model_copy(update={"glass_classes": [1]})
    labels = open_labels(reader, mask(tmp_path, picture), numbers).read(WHOLE)
    np.testing.assert_array_equal(labels, np.array([0, 0, 1, 255, 1], np.uint8)[picture])


def test_a_mask_of_which_only_the_glass_is_named(reader, tmp_path):
    picture = np.resize(np.repeat(np.array([0, 1, 2, 255], np.uint8), 7), SHAPE)
    labels = open_labels(reader, mask(tmp_path, picture), NAMES.model_copy(update={"glass_classes": [2]})).read(WHOLE)
    for value, label in {0: 0, 1: 1, 2: 0, 255: 255}.items():
        assert (labels[picture == value] == label).all()


def test_without_annotation(reader):
    with pytest.raises(SlideError, match="has no annotation in the cohort table"):
        open_labels(reader, None, NAMES)
    labels = open_labels(reader, None, AUTO)
    assert labels.kind == "auto"
    found = labels.read(WHOLE)
    # At 1 um per px the blur has a sigma of 6 px, and the overview pixels of 2 px: the border is that uncertain.
    slack_px = 6 + 2
    assert (found[40 + slack_px :, 40 + slack_px : 120 - slack_px] == 1).all()
    assert not found[: 40 - slack_px].any()
    assert not found[:, : 40 - slack_px].any()
    assert not found[:, 120 + slack_px :].any()
    window = Window.of(30, 30, 50, 60)
    np.testing.assert_array_equal(labels.read(window), found[window.slices])


def test_black_and_not_scanned_is_no_tissue(tmp_path):
    black = np.zeros((128, 128, 3), np.uint8)
    sparse = open_slide(write_slide(tmp_path / "slide.tif", black, missing=[1, 2, 3]))
    assert not open_labels(sparse, None, AUTO).read(Window.of(0, 0, 128, 128)).any()


def test_other_files_are_refused(reader, tmp_path):
    with pytest.raises(SlideError, match=r"slide\.ndpa should end in one of \.geojson"):
        open_labels(reader, tmp_path / "slide.ndpa", NAMES)


def test_a_mask_of_another_slide_is_refused_before_it_is_read(reader, tmp_path):
    with pytest.raises(SlideError, match="expected the slide's size"):
        open_labels(reader, mask(tmp_path, np.zeros((121, 90), np.uint8)), NAMES)


@pytest.mark.parametrize("classes", [["Tissue"], ["Tissue", 7]])
def test_a_predicted_mask_without_tissue_has_none_also_where_pixels_are_invalid(reader, tmp_path, classes):
    """Another's mask of 0 and 255 has tissue where it is 255; ours says what its values mean."""
    values = np.zeros(SHAPE, np.uint8)
    values[:30] = 255
    description = "gigaslide mask: 0 glass, 1 tissue, 255 invalid"
    tifffile.imwrite(tmp_path / "mask.tif", values, tile=(16, 16), description=description, metadata=None)
    names = NAMES.model_copy(update={"tissue_classes": classes})
    np.testing.assert_array_equal(open_labels(reader, tmp_path / "mask.tif", names).read(WHOLE), values)
