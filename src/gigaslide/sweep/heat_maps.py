"""Maps over two parameters: how their cells look, and the heat maps of Dice and step time, as PNG.

A cell is a pair of values; what became of it is told by a pattern as well as by its colour. The colours are viridis:
it rises evenly in lightness, so it reads with every kind of colour vision and in grey. Brighter is better in each map.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke

from gigaslide.reporting.charts import DPI, TEXT_COLOUR, png, style_axes

RECOMMENDED_COLOUR = "#D55E00"
CAPTION_COLOUR = "#555555"
LEGEND_FONT_PT, CAPTION_FONT_PT = 8.5, 8
WIDTH_IN = 9.6
PRUNED_MARK: dict[str, Any] = {"marker": "o", "color": TEXT_COLOUR, "markerfacecolor": "white", "markersize": 5}
NONE_COMPLETE = "No trial is complete yet."
# The kinds of cells. Where trials share one, the first of these kinds is shown.
CELL_LEGEND = {
    "complete": "",
    "pruned": "pruned: best Dice so far",
    "infeasible": "infeasible: predicted GB",
    "failed": "failed",
    "pending": "no result",
    "left out": "left out: impossible",
}
_WITH_NUMBERS = ("complete", "pruned")
_PENDING = ("running", "waiting")  # states
_FAILED_MARK: dict[str, Any] = {"marker": "x", "color": "#8A3800", "markersize": 8, "markeredgewidth": 2}
_HATCH: dict[str, Any] = {"hatch": "/////", "edgecolor": "#ABABAB"}
_BLANK_COLOUR, _LINE_COLOUR = "#FFFFFF", "#CCCCCC"
_FACES = {"infeasible": "#F7F7F7", "left out": "#E3E3E3"}
_PRUNED_SIZE = 0.8  # of a cell: smaller, in a colour that stays true to the scale
_NARROWEST_IN, _WIDEST_CELL_IN, _LOWEST_CELL_IN, _HIGHEST_CELL_IN, _CELLS_HIGH_IN = 7.4, 1.25, 0.38, 0.6, 3.2
_BESIDE_CELLS_IN, _ABOVE_CELLS_IN = 0.6, 1.95  # labels of the axes; legend, title, colour bar
_FONT_PT, _SMALLEST_FONT_PT = 9.0, 5.0
_EM_PER_CHARACTER = 0.64  # DejaVu Sans, digits
_PT_PER_IN = 72

Row = Mapping[str, Any]
Pair = tuple[Any, Any]  # a value of either parameter


@dataclass(frozen=True)
class Cell:
    """What is drawn for one pair; its kind is a key of CELL_LEGEND."""

    kind: str
    text: str = ""
    colour: str = _BLANK_COLOUR


LEFT_OUT = Cell("left out", "\N{EN DASH}")


@dataclass(frozen=True)
class Grid:
    """The values along x and y, increasing, and what their number means for the size of everything."""

    x: Sequence[Any]
    y: Sequence[Any]
    parameters: tuple[str, str]

    @classmethod
    def of(cls, pairs: Collection[Pair], parameters: tuple[str, str]) -> "Grid":
        """Return the grid of all values that occur in pairs, of which there is at least one."""
        values = ({pair[axis] for pair in pairs} for axis in (0, 1))
        x, y = (sorted(found, key=lambda value: (isinstance(value, str), value)) for found in values)
        return cls(x, y, parameters)

    @property
    def size_in(self) -> tuple[float, float]:
        """Width and height of a figure with two maps side by side."""
        width = 2 * (len(self.x) * _WIDEST_CELL_IN + _BESIDE_CELLS_IN)
        cell_height = max(_LOWEST_CELL_IN, min(_HIGHEST_CELL_IN, _CELLS_HIGH_IN / len(self.y)))
        return max(_NARROWEST_IN, min(WIDTH_IN, width)), len(self.y) * cell_height + _ABOVE_CELLS_IN

    @property
    def cell_width_pt(self) -> float:
        """Width of a cell in such a figure."""
        return (self.size_in[0] / 2 - _BESIDE_CELLS_IN) / len(self.x) * _PT_PER_IN

    @property
    def is_narrow(self) -> bool:
        """Whether 0.912 is written as .912, and a unit below its number."""
        return self.cell_width_pt < 7 * _EM_PER_CHARACTER * _FONT_PT

    @property
    def font_pt(self) -> float:
        """Size of the text in cells: four characters fill most of a narrow one."""
        return max(_SMALLEST_FONT_PT, min(_FONT_PT, 0.88 * self.cell_width_pt / (4 * _EM_PER_CHARACTER)))


def text_colour(background: str) -> str:
    """Return black or white, whichever has the higher contrast (WCAG 2.1, from relative luminance) on `background`."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(background)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def write_gb(value: float, budgets_gb: Sequence[float] = ()) -> str:
    """Return as few decimals as leave the number on its side of every budget."""
    text = ""
    for decimals in range(0 if value >= 100 else 1, 4):
        text = f"{value:.{decimals}f}"
        if all((float(text) <= budget) == (value <= budget) for budget in budgets_gb):
            break
    return text


def sentence(text: str) -> Figure:
    """Return a figure that says why there is nothing to draw."""
    figure = Figure(figsize=(WIDTH_IN, 1.2), dpi=DPI)
    figure.text(0.5, 0.5, text, ha="center", va="center", fontsize=10, color=CAPTION_COLOUR, style="italic")
    return figure


def handle(kind: str, label: str) -> Any:
    """Return how the legend shows a kind of cell."""
    if kind in ("pruned", "failed"):
        mark = PRUNED_MARK if kind == "pruned" else _FAILED_MARK
        return Line2D([], [], linestyle="none", label=label, **mark)
    style = _HATCH if kind == "infeasible" else {"edgecolor": _LINE_COLOUR}
    return Patch(facecolor=_FACES.get(kind, _BLANK_COLOUR), linewidth=0.8, label=label, **style)


def legend(figure: Figure, handles: Sequence[Any], columns: int, loc: str = "outside upper center") -> None:
    """Draw a legend above the axes; none without handles."""
    style = {"ncols": columns, "frameon": False, "fontsize": LEGEND_FONT_PT, "labelcolor": TEXT_COLOUR}
    if handles:
        figure.legend(handles=handles, loc=loc, handlelength=1.6, columnspacing=1.6, **style)


def draw_map(ax: Axes, cells: Mapping[Pair, Cell], grid: Grid, title: str) -> None:
    """Draw a map; pairs without a cell stay blank."""
    for x, x_value in enumerate(grid.x):
        for y, y_value in enumerate(grid.y):
            _draw_cell(ax, x, y, cells.get((x_value, y_value), Cell("pending")), grid.font_pt)
    style_axes(ax, title, grid.parameters[0].replace("_", " "))
    ax.set_ylabel(grid.parameters[1].replace("_", " "), fontsize=9, color=TEXT_COLOUR)
    ax.set_xticks(range(len(grid.x)), grid.x)
    ax.set_yticks(range(len(grid.y)), grid.y)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    right, top = len(grid.x) - 0.5, len(grid.y) - 0.5
    ax.set_xlim(-0.5, right)
    ax.set_ylim(-0.5, top)
    lines: dict[str, Any] = {"color": _LINE_COLOUR, "linewidth": 0.8, "clip_on": False, "zorder": 3}
    ax.hlines([y - 0.5 for y in range(len(grid.y) + 1)], -0.5, right, **lines)
    ax.vlines([x - 0.5 for x in range(len(grid.x) + 1)], -0.5, top, **lines)


def outline(ax: Axes, grid: Grid, pair: Pair) -> None:
    """Draw the frame of the recommended cell; white on both sides, so that it is seen on every colour."""
    corner = grid.x.index(pair[0]) - 0.5, grid.y.index(pair[1]) - 0.5
    halo = [withStroke(linewidth=4.6, foreground="white")]
    style: dict[str, Any] = {"linewidth": 2.4, "clip_on": False, "zorder": 5, "path_effects": halo}
    ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=RECOMMENDED_COLOUR, **style))


def _draw_cell(ax: Axes, x: int, y: int, cell: Cell, font_pt: float) -> None:
    hatched = cell.kind == "infeasible"
    face = _FACES.get(cell.kind, cell.colour)
    size = _PRUNED_SIZE if cell.kind == "pruned" else 1
    hatch = _HATCH if hatched else {}
    ax.add_patch(Rectangle((x - size / 2, y - size / 2), size, size, facecolor=face, linewidth=0, **hatch))
    if cell.kind == "pruned":
        ax.plot(x + 0.4, y + 0.4, zorder=4, clip_on=False, **PRUNED_MARK)
    if cell.kind == "failed":
        ax.plot(x, y, **_FAILED_MARK)
    if cell.text:
        # The hatch must not run through the number.
        box = {"facecolor": face, "edgecolor": "none", "boxstyle": "square,pad=0.12"} if hatched else None
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": font_pt, "linespacing": 1.05}
        ax.text(x, y, cell.text, color=text_colour(face), bbox=box, **style)


@dataclass(frozen=True)
class _Measure:
    """What a heat map shows."""

    title: str
    column: str
    is_log: bool
    write: Callable[[float], str]


def number(value: Any) -> float | None:
    """Return a measured number, None where there is none; NaN and infinity are none."""
    return float(value) if value is not None and math.isfinite(value) else None


def write_seconds(value: float) -> str:
    """Return three digits, two below 1 s."""
    if value < 0.1:
        return f"{value:.2g}"
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


_MEASURES = (
    _Measure("Validation Dice (brighter is better)", "dice", False, "{:.3f}".format),
    _Measure("Step time (s; brighter is faster)", "step_time_s", True, write_seconds),
)


def kind_of(row: Row) -> str:
    """Return how a trial is drawn; one that ran but broke the constraint is infeasible."""
    kind = "pending" if row["state"] in _PENDING else row["state"]
    if kind not in CELL_LEGEND or row["state"] == "pending":
        raise ValueError(f"expected a state of {', '.join([*CELL_LEGEND, *_PENDING])}; received {row['state']!r}")
    return "infeasible" if kind in _WITH_NUMBERS and row.get("feasible") is False else kind


def _pair(row: Row, parameters: tuple[str, str]) -> Pair:
    x, y = (row.get(parameter) for parameter in parameters)
    return str(x) if isinstance(x, list) else x, str(y) if isinstance(y, list) else y


def _order_in_cell(row: Row) -> tuple[int, float]:
    """Sort the trial to show first: by kind, then the highest Dice or, infeasible, the least memory."""
    kind, dice, memory = kind_of(row), number(row.get("dice")), number(row.get("predicted_peak_gb"))
    value = memory if kind == "infeasible" else None if dice is None else -dice
    return list(CELL_LEGEND).index(kind), math.inf if value is None else value


def _measured_map(ax: Axes, shown: Mapping[Pair, Row], grid: Grid, measure: _Measure) -> None:
    """Draw a map of one measure with its colour bar, which has its ticks at both ends and in the middle."""
    values = {}
    for pair, row in shown.items():
        value = number(row.get(measure.column))
        if kind_of(row) in _WITH_NUMBERS and value is not None and (value > 0 or not measure.is_log):
            values[pair] = value
    found = list(values.values()) or [1.0]
    room = 1.1 if min(found) == max(found) else 1.0  # a scale needs two ends
    scale = (LogNorm if measure.is_log else Normalize)(min(found) / room, max(found) * room)
    colours = ScalarMappable(scale, "viridis_r" if measure.is_log else "viridis")
    cells, between = {}, "\n" if grid.is_narrow else " "
    for pair, row in shown.items():
        kind = kind_of(row)
        memory = number(row.get("predicted_peak_gb")) or number(row.get("peak_memory_gb"))
        if pair in values:
            colour = to_hex(colours.cmap(float(scale(values[pair]))))
            text = measure.write(values[pair])
            cells[pair] = Cell(kind, text.removeprefix("0") if grid.is_narrow else text, colour)
        elif kind == "infeasible" and memory is not None:
            cells[pair] = Cell(kind, f"{write_gb(memory)}{between}GB")
        else:
            cells[pair] = LEFT_OUT if kind == "left out" else Cell(kind)
    draw_map(ax, cells, grid, measure.title)
    if len(set(found)) > 1:
        bar = ax.figure.colorbar(colours, ax=ax, location="bottom", aspect=45, pad=0.03, shrink=0.9)
        ticks = [float(scale.inverse(share)) for share in (0, 0.5, 1)]
        bar.set_ticks(ticks, labels=[measure.write(tick) for tick in ticks])
        bar.minorticks_off()
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8, colors=TEXT_COLOUR, length=2)


def _heat_maps_figure(rows: Sequence[Row], parameters: tuple[str, str], recommended: int | None) -> Figure:
    placed = [row for row in rows if None not in _pair(row, parameters)]
    if not placed:
        return sentence(NONE_COMPLETE)
    # Of what is written twice, the last one stays.
    shown = {_pair(row, parameters): row for row in sorted(placed, key=_order_in_cell, reverse=True)}
    grid = Grid.of(shown, parameters)
    figure = Figure(figsize=grid.size_in, dpi=DPI, layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, measure in zip(axes, _MEASURES, strict=True):
        _measured_map(ax, shown, grid, measure)
    kinds = {kind_of(row) for row in shown.values()}
    if len(shown) < len(grid.x) * len(grid.y):
        kinds.add("pending")
    handles = [handle(kind, label) for kind, label in CELL_LEGEND.items() if label and kind in kinds]
    for row in placed:
        if kind_of(row) != "complete" or row["number"] != recommended:
            continue
        for ax in axes:
            outline(ax, grid, _pair(row, parameters))
        # With its own numbers: of trials that share a cell, another may be the one shown.
        label = f"recommended: trial {recommended}, Dice {row['dice']:.3f} in {write_seconds(row['step_time_s'])} s"
        handles.insert(0, Patch(fill=False, edgecolor=RECOMMENDED_COLOUR, linewidth=2, label=label))
    legend(figure, handles, len(handles) if grid.size_in[0] == WIDTH_IN and len(handles) < 6 else 3)
    remark = "Where trials share a cell, the one with the best Dice is shown." if len(shown) < len(placed) else ""
    remark = remark if "complete" in kinds else NONE_COMPLETE
    if remark:
        figure.supxlabel(remark, fontsize=CAPTION_FONT_PT, color=CAPTION_COLOUR)
    return figure


def heat_maps(
    rows: Sequence[Row], parameters: tuple[str, str] = ("kernel_size", "stride"), recommended: int | None = None
) -> bytes:
    """Draw validation Dice and step time over two parameters, the first along x.

    Args:
        rows: a trial each. Of those that share a cell, the complete one with the best Dice is shown.
        parameters: columns of the rows; a row without a value for both is not drawn.
        recommended: number of the trial whose cell is outlined; a complete one.

    Raises:
        ValueError: a trial's state is unknown.
    """
    return png(_heat_maps_figure(rows, parameters, recommended))
