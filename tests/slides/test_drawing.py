import pytest

from gigaslide.slides.drawing import FARTHEST_PX, MalformedError, box, ellipse, polygons, ring, shown


def test_a_ring_is_closed_once():
    assert ring([(0, 0), (1, 0), (1, 1)]).tolist() == [[0, 0], [1, 0], [1, 1], [0, 0]]
    assert ring([(0, 0, 9), (1, 0, 9), (0, 0, 9)]).tolist() == [[0, 0], [1, 0], [0, 0]]
    assert ring([]).shape == (0, 2)


@pytest.mark.parametrize("corners", [None, 3, "ab", [1, 2], [[1], [2]], [[1, 2], [3]], [{}], [[10**400, 1]]])
def test_corners_that_are_none(corners):
    with pytest.raises(MalformedError, match="expected corners of two numbers each"):
        ring(corners)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -FARTHEST_PX * 1.01])
def test_corners_that_lie_nowhere(value):
    with pytest.raises(MalformedError, match=r"within 1e\+09; found \(3.0, "):
        ring([(0, 0), (3, value)])


def test_corners_that_are_almost_nothing_are_0():
    assert ring([(5e-324, -1e-200), (1, 0), (1e-9, 1)]).tolist() == [[0, 0], [1, 0], [1e-9, 1], [0, 0]]


def test_holes_of_under_three_corners_are_none():
    square = [(0, 0), (4, 0), (4, 4), (0, 4)]
    assert polygons(square, [[(1, 1), (2, 2)], []])[0].area == 16
    assert polygons(square[:2]) == polygons([]) == ()


def test_boxes_and_ellipses_without_an_area_are_none():
    assert box([(1, 1), (1, 5)]) == ellipse([(1, 1), (5, 1)]) == ()


def test_what_is_shown_is_short_and_of_one_line():
    assert shown("a\n b\t\x07c") == "a b ?c"
    assert shown("\ud800") == "\\ud800"
    assert len(shown("x" * 10**6)) == 80
    assert shown([[1, 2]] * 10**6) == "[[1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], ...]"
