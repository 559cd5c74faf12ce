import json

import numpy as np
import pytest
import shapely

from gigaslide.errors import UsageError
from gigaslide.viewer.strokes import Stroke, parse_stroke

SHAPE = (100, 200)
BRUSH = {"kind": "brush", "label": "tissue", "points": [[10, 20], [30, 20]], "radius_px": 5}
POLYGON = {"kind": "polygon", "label": "glass", "points": [[0, 0], [10, 0], [10, 10]]}


def test_a_brush_covers_what_is_near_its_path():
    stroke = parse_stroke(BRUSH, SHAPE)
    # A rectangle and a disc, of whose area the 64 chords leave out less than 0.2 %.
    assert stroke.area.area == pytest.approx(20 * 10 + np.pi * 25, rel=2e-3)
    assert stroke.area.bounds == pytest.approx((5, 15, 35, 25))


@pytest.mark.parametrize("points", [[[10, 20]], [[10, 20], [10, 20], [10, 20]]])
def test_a_click_is_a_disc(points):
    stroke = parse_stroke(BRUSH | {"points": points}, SHAPE)
    assert stroke.area.area == pytest.approx(np.pi * 25, rel=2e-3)


def test_an_outline_that_crosses_itself_is_filled():
    stroke = parse_stroke(POLYGON | {"points": [[0, 0], [10, 10], [10, 0], [0, 10]]}, SHAPE)
    assert stroke.area.is_valid
    assert stroke.area.area == pytest.approx(50)


def test_an_outline_on_one_line_is_empty():
    stroke = parse_stroke(POLYGON | {"points": [[0, 0], [10, 10], [5, 5]]}, SHAPE)
    assert shapely.is_empty(stroke.area)
    assert stroke.polygons == []


@pytest.mark.parametrize("value", [BRUSH, POLYGON])
def test_json_says_the_same_stroke(value):
    stroke = parse_stroke(value, SHAPE)
    again = parse_stroke(json.loads(json.dumps(stroke.as_json())), SHAPE)
    assert again.area.equals(stroke.area)
    assert again.label == stroke.label


WRONG = [
    None, 7, [], "brush", {},
    BRUSH | {"kind": "spray"}, BRUSH | {"kind": ["brush"]}, BRUSH | {"label": "tumour"}, BRUSH | {"label": {}},
    BRUSH | {"radius_px": 0}, BRUSH | {"radius_px": -1}, BRUSH | {"radius_px": True}, BRUSH | {"radius_px": "5"},
    BRUSH | {"radius_px": float("nan")}, BRUSH | {"radius_px": float("inf")}, BRUSH | {"radius_px": 1e9},
    BRUSH | {"points": []}, BRUSH | {"points": [[1]]}, BRUSH | {"points": [[1, 2, 3]]}, BRUSH | {"points": "ab"},
    BRUSH | {"points": [[1, None]]}, BRUSH | {"points": [[1, float("nan")]]}, BRUSH | {"points": [[1, 1e9]]},
    BRUSH | {"points": [[1, 2]] * 100_001}, BRUSH | {"points": [[1, 10**400]]},
    POLYGON | {"points": [[0, 0], [1, 1]]}, POLYGON | {"radius_px": 5},
]  # fmt: skip


@pytest.mark.parametrize("value", WRONG)
def test_anything_else_is_refused(value):
    with pytest.raises(UsageError, match="a stroke should have"):
        parse_stroke(value, SHAPE)


def test_strokes_are_told_apart_by_identity():
    one, other = (Stroke("brush", "tissue", ((1.0, 1.0),), 2.0) for _ in range(2))
    assert one != other
    assert one in {one}
