"""A file of 10 000 polygons on a slide of 32000 x 32000 px, read and rasterised in a process of its own."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
import shapely

from gigaslide.classes import TISSUE
from gigaslide.config import Labels
from gigaslide.geometry import grid
from gigaslide.memory.meter import MemoryMeter
from gigaslide.slides.annotations import read_annotation
from gigaslide.slides.labels import PolygonLabels
from tests.slides import xml

SIDE_PX = 32_000
WINDOW_PX = 2048
CORNERS = 100  # of each polygon
LABELS = Labels(tissue_classes=["Tissue"], ignore_classes=[], without_annotation="error")


def rings(cells):
    """Stars on a grid of `cells` x `cells`, one per cell; a corner has two decimals, as programs write them."""
    rng = np.random.default_rng(0)
    cell_px = SIDE_PX / cells
    angles = 2 * np.pi * np.arange(CORNERS) / CORNERS
    for row in range(cells):
        for column in range(cells):
            radii = rng.uniform(0.2, 0.5, CORNERS) * cell_px
            centre = (np.array([column, row]) + 0.5) * cell_px
            yield (centre + radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)).round(2).tolist()


def write_geojson(path, cells):
    with path.open("w") as file:
        for number, corners in enumerate(rings(cells)):
            feature = {
                "type": "Feature",
                "geometry": {"type": "Polygon", "coordinates": [corners]},
                "properties": {"classification": {"name": "Tissue"}},
            }
            file.write(("," if number else '{"type": "FeatureCollection", "features": [') + json.dumps(feature))
        file.write("]}")


def write_asap(path, cells):
    path.write_text(xml.asap(*map(xml.asap_annotation, rings(cells))))


def write_imagescope(path, cells):
    path.write_text(xml.imagescope(xml.layer(*map(xml.region, rings(cells)))))


def measure(path):
    """Read and rasterise the whole slide; return pixels of tissue, bytes before and at the peak, seconds of each."""
    start_s = time.perf_counter()
    with MemoryMeter().interval() as memory:
        labels = PolygonLabels.of(read_annotation(path, LABELS), (SIDE_PX, SIDE_PX))
        read_s = time.perf_counter() - start_s
        windows = grid((SIDE_PX, SIDE_PX), (WINDOW_PX, WINDOW_PX))
        tissue_px = sum(int(np.count_nonzero(labels.read(window) == TISSUE)) for window in windows)
    fill_s = time.perf_counter() - start_s - read_s
    return {
        "tissue_px": tissue_px,
        "start_bytes": memory.start_bytes,
        "peak_bytes": memory.peak_bytes,
        "read_s": read_s,
        "fill_s": fill_s,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write", "cells"),
    # All three were measured with 10 000 polygons; one of them is enough for every day.
    [("a.geojson", write_geojson, 100), ("asap.xml", write_asap, 30), ("imagescope.xml", write_imagescope, 30)],
)
def test_ten_thousand_polygons_on_a_gigapixel_in_bounded_memory(tmp_path, name, write, cells):
    path = tmp_path / name
    write(path, cells)
    code = "import json, pathlib, sys; from tests.slides.test_annotation_memory import measure; "
    code += "print(json.dumps(measure(pathlib.Path(sys.argv[1]))))"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout)
    print(name, f"{path.stat().st_size / 1e6:.0f} MB", measured)  # noqa: T201
    assert measured["peak_bytes"] < 1e9
    # The file as bytes and as text; a corner in GEOS, as an edge, and on the way; four arrays of a window's bytes
    # and one of its pixels' numbers. Half as much again for what an allocator keeps.
    limit_bytes = 2 * path.stat().st_size + cells**2 * CORNERS * (16 + 32 + 32) + WINDOW_PX**2 * (4 + 8)
    assert measured["peak_bytes"] - measured["start_bytes"] < 1.5 * limit_bytes
    # The polygons do not overlap; pixels differ from their area along the edges only, to both sides alike.
    area = sum(shapely.Polygon(corners).area for corners in rings(cells))
    assert measured["tissue_px"] == pytest.approx(area, rel=1e-4)
