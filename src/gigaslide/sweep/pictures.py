"""What a sweep found, as PNG: the Pareto front, importances, and the memory that every pair would need."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator

from gigaslide.reporting.charts import DPI, NETWORK_COLOUR, TEXT_COLOUR, png, style_axes
from gigaslide.sweep import heat_maps as maps
from gigaslide.sweep.heat_maps import CAPTION_FONT_PT, LEGEND_FONT_PT, WIDTH_IN, Cell, Grid, Pair, Row, kind_of, number

_DOMINATED_COLOUR, _FAINT_TEXT_COLOUR, _RECOMMENDED_TEXT_COLOUR = "#8FA8A2", "#6E6E6E", "#B04A00"
_LEAST_BUDGET_SHADE = 0.9  # of viridis; its last yellow glares when nearly all cells have it
# Fixed margins, as shares of the figure, so that labels are placed before they are drawn.
_PARETO_IN, _MARGINS = (WIDTH_IN, 4.8), {"left": 0.065, "right": 0.987, "bottom": 0.15, "top": 0.865}
_LABEL_FONT_PT, _LABEL_HIGH_PT, _EM_PER_CHARACTER, _MARK_RADIUS_PT = 8.0, 9.2, 0.57, 4.0
_FAR_PT = 11.0  # a label farther from its point gets a line to it
# Where a label may be: its gaps to the point, and directions to its centre; the corners reach a little farther.
_GAPS_PT = (4.0, 9.0, 15.0, 22.0, 30.0, 40.0, 52.0)
_DIRECTIONS = [(-0.9, 0.8), (0, 1), (-1, 0), (0.9, 0.8), (-0.9, -0.8), (1, 0), (0, -1), (0.9, -0.8)]
_DIRECTIONS += [(right, above) for right in (-0.4, 0.4) for above in (1, -1)]
_RING: dict[str, Any] = {"markersize": 11, "markerfacecolor": "none", "markeredgewidth": 1.8}
_PT_PER_IN = 72
_NAMING = ("kernel_size", "stride")
_COUNTED = {"infeasible": "infeasible (not drawn)", "pending": "without a result yet"}

Point = tuple[float, float]  # step time in s, Dice; or x, y in points
Box = tuple[float, float, float, float]  # left, bottom, right, top in points


@dataclass(frozen=True)
class _Trial:
    """A point of the Pareto picture."""

    number: int
    kind: str
    label: str
    point: Point
    dice_standard_error: float


def pareto_front(points: Sequence[Point]) -> list[int]:
    """Return the indices of the points that no other dominates, from the fastest to the slowest.

    A point (step time, Dice) dominates another if it is no slower and no worse, and differs. Equal points are on the
    front together.
    """
    front: list[int] = []
    best = -math.inf
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if points[i][1] > best or (front and points[i] == points[front[-1]]):
            front.append(i)
            best = points[i][1]
    return front


def _trials(rows: Sequence[Row]) -> list[_Trial]:
    """Return the complete and pruned trials that have both numbers.

    They are called "k11 s4"; by their number where they have neither, and by both if another has the same name.
    """
    rows = [row for row in rows if kind_of(row) in ("complete", "pruned")]
    names = [" ".join(f"{key[0]}{row[key]}" for key in _NAMING if row.get(key) is not None) for row in rows]
    found = []
    for row, name in zip(rows, names, strict=True):
        seconds, dice = number(row.get("step_time_s")), number(row.get("dice"))
        label = name if name and names.count(name) == 1 else f"{name} #{row['number']}".strip()
        if seconds and seconds > 0 and dice is not None:
            error = number(row.get("dice_standard_error")) or 0.0
            found.append(_Trial(row["number"], kind_of(row), label, (seconds, dice), error))
    return found


def _square(point: Point, radius: float) -> Box:
    return point[0] - radius, point[1] - radius, point[0] + radius, point[1] + radius


def _is_free(boxes: Sequence[Box], taken: Sequence[Box]) -> bool:
    return not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for a in boxes for b in taken)


def _line(point: Point, place: Box) -> list[Box]:
    """Return small squares along the line from the edge of a mark to a label; none if they are close."""
    (x, y), (left, bottom, right, top) = point, place
    across, up = min(max(x, left), right) - x, min(max(y, bottom), top) - y
    length = math.hypot(across, up)
    steps = range(round(2 * _MARK_RADIUS_PT), int(length)) if length > _FAR_PT else range(0)
    return [_square((x + across * step / length, y + up * step / length), 1) for step in steps]


def _around(point: Point, width: float, sign: int) -> Iterator[Box]:
    """Yield places for a label near a point, the nearest first; the upper left first, or with -1 the lower right."""
    for gap in _GAPS_PT:
        for right, above in _DIRECTIONS:
            x = point[0] + sign * right * (width / 2 + gap)
            y = point[1] + sign * above * (_LABEL_HIGH_PT / 2 + gap)
            yield x - width / 2, y - _LABEL_HIGH_PT / 2, x + width / 2, y + _LABEL_HIGH_PT / 2


def _place(
    points: Sequence[Point], widths: Sequence[float], first: int, size: Point, avoid: Sequence[Box]
) -> list[Box | None]:
    """Return where the labels of points go, the earlier ones at their best; None where there is no room.

    No label leaves the area, or covers a mark, another label or anything to avoid; nor do the lines to labels far from
    their points, except those of the first points: better a line across something than no label. All lengths in pt.
    """
    taken: list[Box] = [*(_square(point, _MARK_RADIUS_PT) for point in points), *avoid]
    found: list[Box | None] = []
    for i, (point, width) in enumerate(zip(points, widths, strict=True)):
        around = _around(point, width, 1 if i < first else -1)
        inside = [p for p in around if min(p) >= 0 and p[2] <= size[0] and p[3] <= size[1]]
        place = next((p for p in inside if _is_free([p, *_line(point, p)], taken)), None)
        if place is None and i < first:
            place = next((p for p in inside if _is_free([p], taken)), None)
        found.append(place)
        taken += [] if place is None else [place, *_line(point, place)]
    return found


def _limits(values: Sequence[float], least: float) -> tuple[float, float]:
    """Return limits that leave room on both sides, a twelfth of the range but no less than the least."""
    room = max((max(values) - min(values)) / 12, least)
    return min(values) - room, max(values) + room


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten for a logarithmic axis; evenly spaced numbers where those are too few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    found = [step * 10.0**power for power in powers for step in (1, 2, 5) if low <= step * 10.0**power <= high]
    return found if len(found) > 2 else [float(tick) for tick in MaxNLocator(5).tick_values(low, high)]


def _draw_labels(
    ax: Axes, trials: Sequence[_Trial], front: Sequence[_Trial], exact: Sequence[_Trial], chosen: Sequence[_Trial]
) -> int:
    """Label the trials, the first ones at their best; return how many found no room."""
    scale = _PT_PER_IN / DPI
    (left, bottom), (right, top) = ax.transAxes.transform([(0, 0), (1, 1)]) * scale

    def in_points(seconds: float, dice: float) -> Point:
        x, y = ax.transData.transform((seconds, dice)) * scale
        return float(x - left), float(y - bottom)

    stairs = [in_points(*trial.point) for trial in front]
    avoid = [(x, y, x_next, y) for (x, y), (x_next, _) in zip(stairs, [*stairs[1:], (right, 0.0)], strict=True)]
    avoid += [(x, y_last, x, y) for (x, y), (_, y_last) in zip(stairs, [(0.0, 0.0), *stairs[:-1]], strict=True)]
    bars = [(trial.point, trial.dice_standard_error) for trial in exact]
    avoid += [(*in_points(x, y - error), *in_points(x, y + error)) for (x, y), error in bars]
    avoid = [(x - 2, y - 1, x_end + 2, y_end + 1) for x, y, x_end, y_end in avoid]
    avoid += [_square(in_points(*trial.point), _RING["markersize"] / 2 + 1) for trial in chosen]
    points = [in_points(*trial.point) for trial in trials]
    widths = [len(trial.label) * _EM_PER_CHARACTER * _LABEL_FONT_PT for trial in trials]
    places = _place(points, widths, len({*chosen, *front}), (right - left, top - bottom), avoid)
    for trial, (x, y), place in zip(trials, points, places, strict=True):
        if place is None:
            continue
        style: dict[str, Any] = {"color": TEXT_COLOUR if trial in front else _FAINT_TEXT_COLOUR}
        if trial in chosen:
            style = {"color": _RECOMMENDED_TEXT_COLOUR, "weight": "bold"}
        if _line((x, y), place):
            style["arrowprops"] = {"arrowstyle": "-", "color": "#AAAAAA", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4}
        offset = (place[0] + place[2]) / 2 - x, (place[1] + place[3]) / 2 - y
        style |= {"textcoords": "offset points", "ha": "center", "va": "center", "fontsize": _LABEL_FONT_PT}
        ax.annotate(trial.label, trial.point, offset, **style)
    return places.count(None)


def _pareto_axes(figure: Figure, trials: Sequence[_Trial], exact: Sequence[_Trial]) -> Axes:
    """Return axes that hold all trials, and the error bars of some."""
    figure.subplots_adjust(**_MARGINS)
    ax = figure.subplots()
    style_axes(ax, "Validation Dice against step time (up and to the left is better)", "step time (s, logarithmic)")
    ax.set_ylabel("validation Dice", fontsize=9, color=TEXT_COLOUR)
    low, high = (math.exp(end) for end in _limits([math.log(trial.point[0]) for trial in trials], 0.1))
    ticks = _ticks(low, high)
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(low, high)
    bars = [trial.point[1] + sign * trial.dice_standard_error for trial in exact for sign in (-1, 1)]
    ax.set_ylim(_limits([trial.point[1] for trial in trials] + bars, 0.004))
    return ax


def _pareto_figure(rows: Sequence[Row], recommended: int | None) -> Figure:
    counts = Counter(kind_of(row) for row in rows)
    tally = ", ".join(f"{counts[kind]} {_COUNTED.get(kind, kind)}" for kind in maps.CELL_LEGEND if counts[kind])
    trials = _trials(rows)
    complete, pruned = ([trial for trial in trials if trial.kind == kind] for kind in ("complete", "pruned"))
    if not complete:
        return maps.sentence(f"{maps.NONE_COMPLETE} Trials: {tally}." if tally else maps.NONE_COMPLETE)
    front = [complete[i] for i in pareto_front([trial.point for trial in complete])]
    others = [trial for trial in complete if trial not in front]
    chosen = [trial for trial in complete if trial.number == recommended]
    exact = list(dict.fromkeys([*chosen, max(complete, key=lambda trial: trial.point[1])]))
    figure = Figure(figsize=_PARETO_IN, dpi=DPI)
    ax = _pareto_axes(figure, trials, exact)
    (x, y), right, bottom = zip(*(trial.point for trial in front), strict=True), ax.get_xlim()[1], ax.get_ylim()[0]
    ax.plot([x[0], *x, right], [bottom, *y, y[-1]], color=NETWORK_COLOUR, linewidth=1.7, drawstyle="steps-post")
    kinds: list[tuple[Sequence[_Trial], str, dict[str, Any]]] = [
        (front, "Pareto front", {"color": NETWORK_COLOUR}),
        (others, "complete", {"color": _DOMINATED_COLOUR}),
        (pruned, maps.CELL_LEGEND["pruned"], {"color": _DOMINATED_COLOUR, "markerfacecolor": "white"}),
        (chosen, "recommended", {"color": maps.RECOMMENDED_COLOUR, **_RING}),
    ]
    handles = []
    for drawn, label, style in kinds:
        style = {"linestyle": "none", "marker": "o", "markersize": 6.5, "zorder": 4, **style}
        ax.plot([trial.point[0] for trial in drawn], [trial.point[1] for trial in drawn], **style)
        handles += [Line2D([], [], label=label, **style)] if drawn else []
    for trial in exact:
        if trial.dice_standard_error > 0:
            colour = maps.RECOMMENDED_COLOUR if trial in chosen else NETWORK_COLOUR
            ax.errorbar(*trial.point, trial.dice_standard_error, color=colour, capsize=3, linewidth=1.2, zorder=3)
    unlabelled = _draw_labels(ax, list(dict.fromkeys([*chosen, *front, *others, *pruned])), front, exact, chosen)
    maps.legend(figure, handles, len(handles), loc="upper center")
    caption = f"Trials: {tally}." + (" Bars: one standard error." if any(t.dice_standard_error for t in exact) else "")
    caption += f" Labels without room: {unlabelled}." if unlabelled else ""
    figure.text(0.5, 0.02, caption, ha="center", fontsize=CAPTION_FONT_PT, color=maps.CAPTION_COLOUR)
    return figure


def pareto(rows: Sequence[Row], recommended: int | None = None) -> bytes:
    """Draw Dice against step time, and the Pareto front of the complete trials that keep the constraint.

    Pruned trials are hollow, with their best Dice so far; the rest is counted in the caption. The recommended trial and
    the one with the best Dice have error bars of one standard error.

    Args:
        rows: a trial each.
        recommended: number of the trial that gets a ring.

    Raises:
        ValueError: a trial's state is unknown.
    """
    return png(_pareto_figure(rows, recommended))


def _importances_figure(importances: Mapping[str, Mapping[str, float]]) -> Figure:
    tables = importances.values()
    names = sorted({name for shares in tables for name in shares})
    names.sort(key=lambda name: -sum(shares.get(name, 0) for shares in tables))
    if not names:
        return maps.sentence("There are too few complete trials to say which parameter matters.")
    figure = Figure(figsize=(WIDTH_IN, 1.0 + 0.34 * len(names)), dpi=DPI, layout="constrained")
    axes = figure.subplots(1, len(importances), sharey=True, squeeze=False)[0]
    for ax, (objective, shares) in zip(axes, importances.items(), strict=True):
        for y, name in enumerate(names):
            share = number(shares.get(name))
            ax.barh(y, share or 0, 0.62, color=NETWORK_COLOUR)
            text = {"va": "center", "fontsize": 8.5, "color": TEXT_COLOUR if share is not None else _FAINT_TEXT_COLOUR}
            ax.text((share or 0) + 0.015, y, "not known" if share is None else f"{share:.2f}", **text)
        style_axes(ax, f"Importance for the {objective}", "share of the variance")
        ax.grid(axis="y", visible=False)
        ax.set_xlim(0, 1.12)
    axes[0].set_yticks(range(len(names)), [name if "." in name else name.replace("_", " ") for name in names])
    axes[0].set_ylim(len(names) - 0.4, -0.6)
    return figure


def importances(importances: Mapping[str, Mapping[str, float]]) -> bytes:
    """Draw, by objective, each parameter's share of the variance (0 to 1); the most important one on top."""
    return png(_importances_figure(importances))


def _feasibility_figure(
    peaks: Mapping[str, Mapping[tuple[int, int], float]], budgets_gb: Sequence[float], extent_px: tuple[int, int]
) -> Figure:
    pairs = {pair for predicted in peaks.values() for pair in predicted}
    if not pairs:
        return maps.sentence("No pair of kernel size and stride has a predicted memory.")
    grid, budgets = Grid.of(pairs, ("kernel_size", "stride")), sorted(budgets_gb)
    shades = [_LEAST_BUDGET_SHADE * (1 - i / max(1, len(budgets) - 1)) for i in range(len(budgets))]
    colours = {budget: to_hex(colormaps["viridis"](shade)) for budget, shade in zip(budgets, shades, strict=True)}
    figure = Figure(figsize=grid.size_in, dpi=DPI, layout="constrained")
    for ax, (plan, predicted) in zip(figure.subplots(1, len(peaks), squeeze=False)[0], peaks.items(), strict=True):
        cells: dict[Pair, Cell] = {(x, y): maps.LEFT_OUT for x in grid.x for y in grid.y}
        for pair, peak in predicted.items():
            fitting = [budget for budget in budgets if peak <= budget]
            text = maps.write_gb(peak, budgets)
            cells[pair] = Cell("complete", text, colours[fitting[0]]) if fitting else Cell("infeasible", text)
        maps.draw_map(ax, cells, grid, plan[:1].upper() + plan[1:])
        least, most = (sum(peak <= budget for peak in predicted.values()) for budget in (budgets[0], budgets[-1]))
        remark = f"{least} of {len(predicted)} fit in {budgets[0]:g} GB, {most} in {budgets[-1]:g} GB"
        ax.set_title(remark, loc="right", fontsize=LEGEND_FONT_PT, color=TEXT_COLOUR)
    handles = [Patch(facecolor=colour, label=f"up to {budget:g} GB") for budget, colour in colours.items()]
    others = {"infeasible": f"more than {budgets[-1]:g} GB", "left out": maps.CELL_LEGEND["left out"]}
    handles += [maps.handle(kind, label) for kind, label in others.items()]
    maps.legend(figure, handles, len(handles) if grid.size_in[0] == WIDTH_IN else 4)
    text = f"Predicted peak memory (GB) of a training step on {extent_px[0]:,} x {extent_px[1]:,} px."
    figure.supxlabel(text, fontsize=CAPTION_FONT_PT, color=maps.CAPTION_COLOUR)
    return figure


def feasibility(
    peaks: Mapping[str, Mapping[tuple[int, int], float]], budgets_gb: Sequence[float], extent_px: tuple[int, int]
) -> bytes:
    """Draw, per plan, the predicted peak memory over kernel size (x) and stride (y).

    Args:
        peaks: by name of the plan, GB by (kernel_size, stride); pairs without a number are drawn as left out.
        budgets_gb: a cell has the colour of the smallest that it fits in; it is hatched if it fits in none.
        extent_px: (height, width) of the training area.

    Raises:
        ValueError: there is no budget.
    """
    if not budgets_gb:
        raise ValueError(f"the map of feasibility needs a budget; received budgets_gb={budgets_gb!r}")
    return png(_feasibility_figure(peaks, budgets_gb, extent_px))
