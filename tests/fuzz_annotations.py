"""Annotation files that no program wrote: damaged ones, and ones from noise.

`python -m tests.fuzz_annotations 20000` reads that many and prints how many were accepted and refused, the longest
time and the peak memory. A file is either refused with a `SlideError` of one line, or gives valid polygons.

A run at commit 8dee07713f: 20000 inputs, 6164 accepted, 13836 refused, longest 0.111 s, peak memory of the process,
Hypothesis included, 474 MB. What runs before it found: an ellipse of 700 000 corners from one line, and a division by
zero in GEOS for corners of 5e-324.
"""

import json
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gigaslide.config import Labels
from gigaslide.errors import GigaslideWarning, SlideError
from gigaslide.geometry import Window
from gigaslide.memory.meter import MemoryMeter
from gigaslide.slides.annotations import Annotation, read_annotation
from gigaslide.slides.drawing import FARTHEST_PX
from gigaslide.slides.labels import PolygonLabels
from tests.slides.xml import HOLE, SQUARE, asap, asap_annotation, imagescope, layer, region

LABELS = Labels(
    tissue_classes=["Tissue", "#00ff00"],
    glass_classes=["Lumen"],
    ignore_classes=["Ignore"],
    region_classes=["ROI"],
    without_annotation="error",
)
SHAPE = (32, 40)


@st.composite
def _mostly(draw, usual, rare):
    """Of ten, nine are usual; `st.one_of` would take both equally often."""
    return draw(usual if draw(st.integers(0, 9)) else rare)


_KNOWN = st.sampled_from(["Tissue", "tissue*", "Tissue", "ROI", "Lumen", "Ignore"])
_NAMES = _mostly(_KNOWN, st.sampled_from(["Stroma", "None", ""]) | st.text(max_size=8))
_GOOD = st.integers(-5, 40) | st.floats(-5, 45) | st.sampled_from([-0.0, 5e-324, 2.5, 3.5, 1e9, -1e9])
_BAD = st.sampled_from([1e10, -1e300, 10**400, float("nan"), float("inf")])
_NUMBERS = _GOOD | _BAD
_DRAWN = st.lists(st.tuples(_GOOD, _GOOD), max_size=12) | st.sampled_from([SQUARE, HOLE])
_CORNERS = _mostly(_DRAWN, st.lists(st.tuples(_NUMBERS, _NUMBERS), max_size=4))
_ODD = (
    st.none()
    | st.booleans()
    | _NUMBERS
    | st.text(max_size=4)
    | st.builds(list)
    | st.builds(dict)
    | st.just([[[[1, 2]]]])
)


@st.composite
def _geometries(draw, depth=2):
    kind = draw(
        st.sampled_from([*["Polygon", "MultiPolygon"] * 3, "GeometryCollection", "Point", "LineString", "Circle"])
    )
    if kind == "GeometryCollection":
        return {"type": kind, "geometries": draw(st.lists(_geometries(depth - 1), max_size=2)) if depth else []}
    rings = st.lists(_CORNERS, min_size=1, max_size=3)
    coordinates = draw({"Polygon": rings, "MultiPolygon": st.lists(rings, max_size=3)}.get(kind, _CORNERS))
    return {"type": kind, "coordinates": coordinates}


@st.composite
def _features(draw):
    name = draw(_NAMES)
    properties = [{"classification": {"name": name}}, {"classification": name}, {"class": name}, None, {}]
    feature = {"type": "Feature", "geometry": draw(_geometries()), "properties": draw(st.sampled_from(properties))}
    if draw(st.integers(0, 19)) == 0:  # something else in the place of some part of it
        where = draw(st.sampled_from(["geometry", "properties", "type"]))
        feature[where] = draw(_ODD)
    if draw(st.integers(0, 19)) == 0 and isinstance(feature["geometry"], dict):
        feature["geometry"][draw(st.sampled_from(["type", "coordinates", "geometries"]))] = draw(_ODD)
    return feature


@st.composite
def _geojson(draw):
    features = draw(st.lists(_features(), min_size=1, max_size=4))
    documents = [{"type": "FeatureCollection", "features": features}, features, {"features": features, "type": 3}]
    documents += [[{"type": "FeatureCollection", "features": features}], *features[:1], draw(_ODD)]
    return json.dumps(draw(st.sampled_from(documents)))


def _attribute(text):
    return re.sub(r"[^\w #*.,-]", "_", str(text))


@st.composite
def _asap(draw):
    kinds = _mostly(st.sampled_from(["Polygon", "Rectangle", "Spline"]), st.sampled_from(["Dot", "None", "Star"]))
    annotations = [
        asap_annotation(draw(_CORNERS), _attribute(draw(_NAMES)), draw(kinds)) for _ in range(draw(st.integers(1, 4)))
    ]
    return asap(*annotations, groups=[(_attribute(draw(_NAMES)), _attribute(draw(_NAMES)))])


@st.composite
def _imagescope(draw):
    kinds = st.sampled_from([0, 1, 2, 3, 4, 9, "Ellipse", "Polygon", "x"])
    layers = [
        layer(
            *[
                region(draw(_CORNERS), draw(kinds), negative=draw(st.integers(0, 1)))
                for _ in range(draw(st.integers(1, 3)))
            ],
            name=_attribute(draw(_NAMES)),
            colour=_attribute(draw(st.sampled_from([65280, -1, "", 2**40]))),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    return imagescope(*layers)


@st.composite
def _damaged(draw, texts):
    """A text with a piece cut out, doubled, or put in place of another, or with bytes changed."""
    data = draw(texts).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 3)):
        return data
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        stop = draw(st.integers(start, min(len(data), start + 40)))
        piece = draw(
            st.sampled_from([b"", data[start:stop] * 2, b"<", b'"', b"[[", b"}", b"\xff", b"<!DOCTYPE a>", b"9"])
        )
        data = data[:start] + piece + data[stop:]
    return data


_WRITTEN = [
    st.tuples(st.just("a.geojson"), _damaged(_geojson())),
    st.tuples(st.just("a.xml"), _damaged(_asap())),
    st.tuples(st.just("a.annotations"), _damaged(_imagescope())),
]
_DEEP = st.sampled_from([b"[", b'{"a":', b"<a>"]).map(lambda opening: opening * 10**5)
FILES = _mostly(
    st.one_of(_WRITTEN),
    st.tuples(st.sampled_from(["a.json", "a.xml"]), st.binary(max_size=200) | _DEEP),
)


def check(folder: Path, name: str, data: bytes) -> Annotation | None:
    """Read one file; return None if it is refused in one line.

    Raises:
        AssertionError: it gives polygons or labels that are not valid, or is refused without a proper sentence.
        Exception: any other error than `SlideError` comes through: a fault found.
    """
    path = folder / name
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also those of NumPy: something was computed that should not be
        warnings.simplefilter("ignore", GigaslideWarning)
        try:
            annotation = read_annotation(path, LABELS)
        except SlideError as error:
            text = str(error)
            assert name in text
            assert text.isprintable(), text
            assert len(text) < 1000
            return None
        for polygon in (*annotation.tissue, *annotation.glass, *annotation.ignore, *annotation.regions):
            assert polygon.is_valid
            assert not polygon.is_empty
            assert max(map(abs, polygon.bounds)) <= FARTHEST_PX
        labels = PolygonLabels.of(annotation, SHAPE).read(Window.of(0, 0, *SHAPE))
        assert set(np.unique(labels).tolist()) <= {0, 1, 255}
    return annotation


def main(count: int) -> None:
    """Read `count` files and print what came of them."""
    results: Counter[str] = Counter()
    longest_s = 0.0
    with tempfile.TemporaryDirectory() as folder, MemoryMeter().interval() as memory:

        @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(FILES)
        def read(file: tuple[str, bytes]) -> None:
            nonlocal longest_s
            start_s = time.perf_counter()
            annotation = check(Path(folder), *file)
            longest_s = max(longest_s, time.perf_counter() - start_s)
            results["refused" if annotation is None else "accepted"] += 1

        read()
    print(  # noqa: T201
        f"{results.total()} inputs: {results['accepted']} accepted, {results['refused']} refused; "
        f"longest {longest_s:.3f} s, peak memory {memory.peak_bytes / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
