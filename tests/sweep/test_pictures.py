import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from gigaslide.sweep import heat_maps, pictures
from gigaslide.sweep.heat_maps import RECOMMENDED_COLOUR, Grid, _heat_maps_figure, kind_of, text_colour, write_gb
from gigaslide.sweep.pictures import _feasibility_figure, _importances_figure, _pareto_figure, pareto_front

DASH = "\N{EN DASH}"
AXES = ("kernel_size", "stride")
BUDGETS = (16.0, 32.0, 64.0, 96.0, 128.0)
EXTENT = (32768, 16384)


def trial(number, kernel, stride, state="complete", dice=None, seconds=None, **columns):
    return {
        "number": number,
        "kernel_size": kernel,
        "stride": stride,
        "state": state,
        "feasible": {"complete": True, "pruned": True, "infeasible": False}.get(state),
        "reason": "",
        "dice": dice,
        "dice_standard_error": None if dice is None else 0.008,
        "step_time_s": seconds,
        "predicted_peak_gb": None if state == "left out" else 20.0,
        "peak_memory_gb": None,
    } | columns


# 3 x 3 pairs; 5 of stride 8 was never tried.
ROWS = [
    trial(0, 3, 2, dice=0.842, seconds=0.47),
    trial(1, 5, 2, dice=0.879, seconds=12.34),
    trial(2, 11, 2, "infeasible", predicted_peak_gb=84.54),
    trial(None, 3, 4, "left out"),
    trial(3, 5, 4, dice=0.899, seconds=0.35),
    trial(4, 11, 4, "pruned", dice=0.853, seconds=123.4),
    trial(None, 3, 8, "left out"),
    trial(5, 11, 8, "failed"),
]


def texts(ax):
    return [text.get_text() for text in ax.texts]


def cells(ax):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_fill()]


def hatched(ax):
    return [patch for patch in cells(ax) if patch.get_hatch()]


def marks(ax, marker):
    return [tuple(line.get_xydata()[0]) for line in ax.lines if line.get_marker() == marker]


def legend_labels(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def words(figure):
    return " ".join(text.get_text() for text in figure.texts)


def cell_of(ax, x, y):
    return next(
        c for c in cells(ax) if (c.get_x() < x < c.get_x() + c.get_width()) and abs(c.get_center()[1] - y) < 0.1
    )


def lightness(patch):
    return float(np.dot([0.2126, 0.7152, 0.0722], patch.get_facecolor()[:3]))


def drawn(figure):
    """Return the extents of all texts inside the axes, as (text, box), in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return [
        (text.get_text(), Text.get_window_extent(text, canvas.get_renderer()))  # of an annotation without its line
        for ax in figure.axes
        for text in ax.texts
        if text.get_text()
    ]


def grid_rows(kernels, strides):
    pairs = [(kernel, stride) for kernel in kernels for stride in strides]
    return [
        trial(i, kernel, stride, dice=0.9 - 0.001 * (i * 7 % 40), seconds=kernel**1.2 / stride)
        if stride <= kernel
        else trial(None, kernel, stride, "left out")
        for i, (kernel, stride) in enumerate(pairs)
    ]


SMALL = grid_rows([3, 5, 7, 11, 15, 21], [2, 4, 8])
LARGE = grid_rows([3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 25, 31], [2, 3, 4, 5, 6, 8, 12, 16])


# Heat maps


def test_each_cell_says_what_became_of_its_trial():
    dice, seconds = _heat_maps_figure(ROWS, AXES, None).axes[:2]
    assert sorted(texts(dice)) == sorted(["0.842", "0.879", "84.5 GB", DASH, "0.899", "0.853", DASH])
    assert sorted(texts(seconds)) == sorted(["0.47", "12.3", "84.5 GB", DASH, "0.35", "123", DASH])
    for ax in (dice, seconds):
        assert [cell.get_center().tolist() for cell in hatched(ax)] == [[2, 0]]
        assert marks(ax, "x") == [(2, 2)]
        assert marks(ax, "o") == [(2.4, 1.4)]
        assert [label.get_text() for label in ax.get_xticklabels()] == ["3", "5", "11"]
        assert [label.get_text() for label in ax.get_yticklabels()] == ["2", "4", "8"]


def test_the_legend_has_the_kinds_that_are_there_and_no_others():
    assert legend_labels(_heat_maps_figure(ROWS, AXES, None)) == [
        "pruned: best Dice so far",
        "infeasible: predicted GB",
        "failed",
        "no result",
        "left out: impossible",
    ]
    assert legend_labels(_heat_maps_figure(ROWS[:2], AXES, None)) == []


def test_brighter_is_better_in_both_maps():
    dice, seconds = _heat_maps_figure(ROWS, AXES, None).axes[:2]
    assert lightness(cell_of(dice, 1, 1)) > lightness(cell_of(dice, 0, 0))
    assert lightness(cell_of(seconds, 1, 1)) > lightness(cell_of(seconds, 1, 0)) > lightness(cell_of(seconds, 2, 1))


def test_the_scale_of_time_is_logarithmic():
    rows = [trial(i, 3, 2**i, dice=0.9, seconds=10.0**i) for i in range(3)]
    seconds = _heat_maps_figure(rows, AXES, None).axes[1]
    middle = to_hex(cell_of(seconds, 0, 1).get_facecolor())
    assert middle == to_hex(colormaps["viridis_r"](0.5))


def test_the_colour_bar_goes_from_the_least_to_the_greatest_value():
    bars = _heat_maps_figure(ROWS, AXES, None).axes[2:]
    assert [[label.get_text() for label in bar.get_xticklabels()] for bar in bars] == [
        ["0.842", "0.871", "0.899"],
        ["0.35", "6.57", "123"],
    ]


def test_a_pruned_cell_is_smaller():
    dice = _heat_maps_figure(ROWS, AXES, None).axes[0]
    assert cell_of(dice, 2, 1).get_width() < cell_of(dice, 1, 1).get_width() == 1


def test_of_trials_in_a_cell_the_best_complete_one_is_shown():
    rows = [
        trial(0, 5, 2, dice=0.80, seconds=1.0, rate=1),
        trial(1, 5, 2, dice=0.85, seconds=2.0, rate=2),
        trial(2, 5, 2, "pruned", dice=0.99, seconds=3.0, rate=3),
        trial(3, 5, 2, "infeasible", rate=4),
        trial(4, 7, 2, "infeasible", predicted_peak_gb=70.0, rate=1),
        trial(5, 7, 2, "infeasible", predicted_peak_gb=60.0, rate=2),
        trial(6, 7, 2, "failed", rate=3),
    ]
    for order in (rows, rows[::-1]):
        figure = _heat_maps_figure(order, AXES, 0)
        assert [texts(ax) for ax in figure.axes[:2]] == [["0.850", "60.0 GB"], ["2.00", "60.0 GB"]]
        assert "share a cell" in figure.get_supxlabel()
        # The recommended one is another, so it says its own numbers.
        assert legend_labels(figure)[0] == "recommended: trial 0, Dice 0.800 in 1.00 s"


def test_a_trial_that_ran_and_broke_the_constraint_is_hatched():
    rows = [trial(0, 5, 2, dice=0.9, seconds=1.0, feasible=False, predicted_peak_gb=None, peak_memory_gb=33.0)]
    for ax in _heat_maps_figure(rows, AXES, None).axes[:2]:
        assert texts(ax) == ["33.0 GB"]
        assert len(hatched(ax)) == 1


@pytest.mark.parametrize("recommended, frames", [(3, 1), (None, 0), (99, 0), (2, 0)])
def test_the_recommended_cell_is_outlined_in_both_maps(recommended, frames):
    for ax in _heat_maps_figure(ROWS, AXES, recommended).axes[:2]:
        found = [patch for patch in ax.patches if to_hex(patch.get_edgecolor()) == RECOMMENDED_COLOUR.lower()]
        assert [patch.get_xy() for patch in found] == [(0.5, 0.5)] * frames


def test_other_parameters_words_and_lists():
    rows = [
        trial(0, 5, 2, dice=0.9, seconds=1.0, optimizer="sgd", features=[8, 16]),
        trial(1, 5, 2, dice=0.8, seconds=1.0, optimizer="adam", features=[8, 16]),
        trial(2, 5, 2, dice=0.8, seconds=1.0, optimizer=None, features=[4]),
    ]
    ax = _heat_maps_figure(rows, ("optimizer", "features"), 0).axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["adam", "sgd"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["[8, 16]"]


@pytest.mark.parametrize(
    "rows", [[], [trial(0, 5, 2, "waiting")], [ROWS[2], ROWS[3]], [trial(0, None, 2, dice=0.9, seconds=1.0)]]
)
def test_without_a_complete_trial_the_pictures_say_so(rows):
    figure = _heat_maps_figure(rows, AXES, None)
    assert "No trial is complete yet." in words(figure) + figure.get_supxlabel()
    assert heat_maps.heat_maps(rows)


@pytest.mark.parametrize("rows", [ROWS, []])
def test_without_a_complete_trial_there_is_no_front(rows):
    unfinished = [row for row in rows if row["state"] != "complete"]
    assert words(_pareto_figure(unfinished, None)).startswith("No trial is complete yet.")
    assert pictures.pareto(unfinished)


@pytest.mark.parametrize("odd", [math.nan, math.inf, None])
def test_a_number_that_is_none_is_not_drawn(odd):
    rows = [*ROWS, trial(9, 5, 8, dice=odd, seconds=odd)]
    assert texts(_heat_maps_figure(rows, AXES, None).axes[0]) == texts(_heat_maps_figure(ROWS, AXES, None).axes[0])
    assert texts(_pareto_figure(rows, None).axes[0]) == texts(_pareto_figure(ROWS, None).axes[0])


@pytest.mark.parametrize("state", ["done", "pending", ""])
def test_an_unknown_state_is_refused(state):
    with pytest.raises(ValueError, match="expected a state of"):
        kind_of(trial(0, 5, 2, state))


@pytest.mark.parametrize("rows", [SMALL, LARGE, SMALL[:1], SMALL[:3], LARGE[::8]])
def test_the_text_of_a_cell_stays_inside_it(rows):
    too_large = {"state": "infeasible", "feasible": False, "predicted_peak_gb": 123.4}
    figure = _heat_maps_figure([row | too_large if i % 3 == 2 else row for i, row in enumerate(rows)], AXES, 0)
    drawn(figure)
    renderer = figure.canvas.get_renderer()
    for ax in figure.axes[:2]:
        width, height = (ax.transData.transform((1, 1)) - ax.transData.transform((0, 0))).tolist()
        for text in ax.texts:
            box = text.get_window_extent(renderer)
            assert box.width <= width
            assert box.height <= height


def test_narrow_cells_have_short_numbers():
    assert ".900" in texts(_heat_maps_figure(LARGE, AXES, None).axes[0])
    rows = [row | {"state": "infeasible", "feasible": False} for row in LARGE if row["state"] == "complete"]
    assert texts(_heat_maps_figure(rows, AXES, None).axes[0])[0] == "20.0\nGB"


@given(st.integers(1, 14), st.integers(1, 10))
def test_a_figure_fits_its_grid(columns, lines):
    grid = Grid.of([(x, y) for x in range(columns) for y in range(lines)], AXES)
    width, height = grid.size_in
    assert 7 <= width <= heat_maps.WIDTH_IN
    assert 2 < height < 7
    assert 5 <= grid.font_pt <= 9


# Colours


def contrast(one, other):
    def luminance(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    light, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


@given(st.tuples(*[st.integers(0, 255)] * 3))
def test_text_has_the_contrast_that_wcag_asks_for_on_every_colour(rgb):
    background = to_hex([channel / 255 for channel in rgb])
    chosen = text_colour(background)
    assert contrast(chosen, background) >= 4.5
    assert contrast(chosen, background) == max(contrast(colour, background) for colour in ("black", "white"))


def test_text_is_black_on_bright_and_white_on_dark_cells():
    ax = _heat_maps_figure(ROWS, AXES, None).axes[0]
    colours = {text.get_text(): text.get_color() for text in ax.texts}
    assert (colours["0.842"], colours["0.899"]) == ("white", "black")


# The Pareto front


NUMBERS = st.floats(0.001, 1000) | st.integers(1, 4).map(float)


def dominates(one, other):
    return one[0] <= other[0] and one[1] >= other[1] and one != other


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30))
def test_no_point_of_the_front_is_dominated_and_all_others_are(points):
    front = pareto_front(points)
    assert len(set(front)) == len(front)
    assert [points[i] for i in front] == sorted(points[i] for i in front)
    for i, point in enumerate(points):
        assert any(dominates(other, point) for other in points) == (i not in front)


def test_a_front_by_hand():
    assert pareto_front([]) == []
    points = [(2.0, 0.9), (1.0, 0.8), (1.0, 0.7), (3.0, 0.9), (2.0, 0.9), (4.0, 0.95)]
    assert pareto_front(points) == [1, 0, 4, 5]


def test_the_pareto_picture_has_a_label_per_trial():
    figure = _pareto_figure(ROWS, 3)
    assert sorted(texts(figure.axes[0])) == ["k11 s4", "k3 s2", "k5 s2", "k5 s4"]
    assert legend_labels(figure) == ["Pareto front", "complete", "pruned: best Dice so far", "recommended"]
    assert "3 complete, 1 pruned, 1 infeasible (not drawn), 1 failed, 2 left out" in words(figure)
    assert "one standard error" in words(figure)
    assert figure.axes[0].get_xscale() == "log"


def test_pruned_trials_are_hollow_and_not_on_the_front():
    rows = [ROWS[0], trial(7, 21, 2, "pruned", dice=0.99, seconds=0.1)]
    ax = _pareto_figure(rows, None).axes[0]
    points = [line for line in ax.lines if line.get_marker() == "o"]
    hollow = [line.get_xydata().tolist() for line in points if to_hex(line.get_markerfacecolor()) == "#ffffff"]
    assert hollow == [[[0.1, 0.99]]]
    stairs = next(line for line in ax.lines if line.get_drawstyle() == "steps-post")
    assert [0.47, 0.842] in stairs.get_xydata().tolist()
    assert [0.1, 0.99] not in stairs.get_xydata().tolist()


def test_only_the_recommended_and_the_best_have_error_bars():
    def bars(recommended, rows=ROWS):
        return len(_pareto_figure(rows, recommended).axes[0].containers)

    assert bars(None) == 1
    assert bars(3) == 1  # the best
    assert bars(0) == 2
    assert bars(0, [row | {"dice_standard_error": None} for row in ROWS]) == 0


def test_trials_of_the_same_pair_are_told_apart_and_those_without_one_have_numbers():
    rows = [trial(i, 5, 2, dice=0.8 + i / 100, seconds=1.0 + i) for i in range(2)]
    assert sorted(texts(_pareto_figure(rows, None).axes[0])) == ["k5 s2 #0", "k5 s2 #1"]
    bare = [row | {"kernel_size": None, "stride": None} for row in rows]
    assert sorted(texts(_pareto_figure(bare, None).axes[0])) == ["#0", "#1"]
    half = [row | {"kernel_size": 3 + 2 * row["number"], "stride": None} for row in rows]
    assert sorted(texts(_pareto_figure(half, None).axes[0])) == ["k3", "k5"]


@pytest.mark.parametrize("rows", [ROWS, SMALL, LARGE])
def test_labels_of_the_pareto_picture_do_not_overlap(rows):
    figure = _pareto_figure(rows, 0)
    found = drawn(figure)
    area = figure.axes[0].get_window_extent()
    for i, (_, box) in enumerate(found):
        assert box.x0 >= area.x0 - 1
        assert box.x1 <= area.x1 + 1
        assert not any(box.overlaps(other) for _, other in found[:i])
    unlabelled = sum(row["state"] in ("complete", "pruned") for row in rows) - len(found)
    assert (f"Labels without room: {unlabelled}" in words(figure)) == (unlabelled > 0)
    assert unlabelled <= 0.2 * len(found)


WITHIN = st.tuples(st.floats(0, 600), st.floats(0, 250))


@given(st.lists(st.tuples(WITHIN, st.floats(10, 60)), max_size=25), st.integers(0, 25))
def test_places_are_free_and_inside(labels, first):
    points, widths = [point for point, _ in labels], [width for _, width in labels]
    places = pictures._place(points, widths, first, (600, 250), [(100, 100, 300, 110)])
    assert len(places) == len(points)
    taken = [(100, 100, 300, 110), *(pictures._square(point, pictures._MARK_RADIUS_PT) for point in points)]
    for place, width in zip(places, widths, strict=True):
        if place is not None:
            assert place[2] - place[0] == pytest.approx(width)
            assert 0 <= place[0] <= place[2] <= 600
            assert 0 <= place[1] <= place[3] <= 250
            assert pictures._is_free([place], taken)
            taken.append(place)


def test_a_lone_label_is_next_to_its_point():
    for first in (0, 1):
        (place,) = pictures._place([(300, 100)], [40], first, (600, 250), [])
        assert pictures._line((300, 100), place) == []


@given(st.floats(1e-3, 1e3), st.floats(1.05, 1e4))
def test_an_axis_of_time_has_two_ticks_at_least(low, ratio):
    ticks = [tick for tick in pictures._ticks(low, low * ratio) if low <= tick <= low * ratio]
    assert len(ticks) >= 2


# Importances


def test_importances_are_bars_the_greatest_on_top():
    figure = _importances_figure({"validation Dice": {"stride": 0.3, "kernel_size": 0.7}, "step time": {"stride": 0.4}})
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["kernel size", "stride"]
    assert left.yaxis_inverted()
    assert [patch.get_width() for patch in left.patches] == [0.7, 0.3]
    assert (texts(left), texts(right)) == (["0.70", "0.30"], ["not known", "0.40"])
    assert left.get_title(loc="left") == "Importance for the validation Dice"


@pytest.mark.parametrize("empty", [{}, {"validation Dice": {}}, {"validation Dice": {}, "step time": {}}])
def test_without_importances_there_is_a_sentence(empty):
    assert "too few" in words(_importances_figure(empty))


# Feasibility


PEAKS = {
    "whole image": {(3, 2): 20.0, (5, 2): 64.0, (5, 4): 64.04, (11, 2): 128.3},
    "streamed (auto)": {(3, 2): 3.0, (5, 2): 15.96, (5, 4): 4.0, (11, 2): 16.02},
}


def test_a_cell_has_the_colour_of_the_smallest_budget_that_it_fits_in():
    whole, streamed = _feasibility_figure(PEAKS, BUDGETS, EXTENT).axes
    colour = {
        (ax, x, y): to_hex(cell_of(ax, x, y).get_facecolor())
        for ax in (whole, streamed)
        for x in range(3)
        for y in (0, 1)
    }
    assert colour[streamed, 0, 0] == colour[streamed, 1, 0] == colour[streamed, 1, 1]
    assert colour[whole, 0, 0] == colour[streamed, 2, 0]  # 32 GB
    assert len({colour[whole, 0, 0], colour[whole, 1, 0], colour[whole, 1, 1], colour[streamed, 0, 0]}) == 4
    assert [cell.get_center().tolist() for cell in hatched(whole)] == [[2, 0]]
    assert hatched(streamed) == []


def test_the_maps_of_feasibility_say_how_many_fit():
    figure = _feasibility_figure(PEAKS, BUDGETS, EXTENT)
    titles = [(ax.get_title(loc="left"), ax.get_title(loc="right")) for ax in figure.axes]
    assert titles == [
        ("Whole image", "0 of 4 fit in 16 GB, 3 in 128 GB"),
        ("Streamed (auto)", "3 of 4 fit in 16 GB, 4 in 128 GB"),
    ]
    assert texts(figure.axes[0]).count(DASH) == 2
    assert legend_labels(figure) == [
        *(f"up to {budget:g} GB" for budget in BUDGETS),
        "more than 128 GB",
        "left out: impossible",
    ]
    assert "32,768 x 16,384 px" in figure.get_supxlabel()


@given(st.floats(0.05, 5000), st.sampled_from(BUDGETS), st.floats(-0.2, 0.2))
def test_a_written_number_is_on_its_side_of_every_budget(value, budget, near):
    for peak in (value, budget + near):
        text = write_gb(peak, BUDGETS)
        if all(abs(peak - limit) > 0.001 for limit in BUDGETS):
            assert [float(text) <= limit for limit in BUDGETS] == [peak <= limit for limit in BUDGETS]
        assert float(text) == pytest.approx(peak, abs=0.5)


def test_feasibility_without_a_peak_or_a_budget():
    for empty in ({}, {"whole image": {}}):
        assert "No pair" in words(_feasibility_figure(empty, BUDGETS, EXTENT))
    with pytest.raises(ValueError, match="needs a budget"):
        pictures.feasibility(PEAKS, (), EXTENT)
    assert len(_feasibility_figure({"whole image": {(3, 2): 9.0}, "streamed": {}}, (16,), EXTENT).axes) == 2


# All of them


@pytest.mark.parametrize(
    "draw",
    [
        lambda: heat_maps.heat_maps(ROWS, recommended=3),
        lambda: heat_maps.heat_maps(LARGE),
        lambda: pictures.pareto(ROWS, recommended=3),
        lambda: pictures.importances({"validation Dice": {"stride": 1.0}}),
        lambda: pictures.feasibility(PEAKS, BUDGETS, EXTENT),
    ],
)
def test_the_same_input_gives_the_same_bytes(draw):
    png = draw()
    assert png == draw()
    assert Image.open(io.BytesIO(png)).width >= 7 * 160
