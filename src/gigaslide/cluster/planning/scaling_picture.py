"""Speed-up over the workers of a cluster, a curve for each size of the area, as a picture."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from gigaslide.reporting.charts import DPI, TEXT_COLOUR, png, style_axes

# Okabe and Ito, as everywhere; light to dark with the size of the area.
_COLOURS = ("#E69F00", "#56B4E9", "#D55E00", "#00735C")
_MARKERS = "so^D"
_BOUNDS = {
    "compute": "#00735C",
    "last round": "#9CC9BE",
    "storage": "#E69F00",
    "network": "#56B4E9",
    "driver": "#D55E00",
}
_DARK = ("compute", "driver")
Area = Mapping[str, Any]


def draw(areas: Sequence[Area], worth_it: float, remark: str) -> bytes:
    """Return the picture as PNG: speed-up against one worker, and what the largest cluster's step is spent on.

    Args:
        areas: as of `scaling.run`.
        worth_it: how many times as fast twice as many workers have to be, before the end of a curve.
        remark: what it holds for.
    """
    figure = Figure(figsize=(11, 5.2), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _speed_up(left, areas, worth_it)
    _spent(right, areas)
    figure.supxlabel(remark, fontsize=8, color="#555555")
    return png(figure)


def _speed_up(ax: Axes, areas: Sequence[Area], worth_it: float) -> None:
    counts = sorted({row["workers"] for area in areas for row in area["rows"]})
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.plot(counts, counts, color="#999999", linestyle=(0, (4, 3)), linewidth=1.4, label="ideal")
    for area, colour, marker in zip(areas, _COLOURS, _MARKERS, strict=False):
        points = [(row["workers"], row["speed_up"]) for row in area["rows"] if "step_s" in row]
        if not points:
            continue
        end = area["end"]
        label = _size(area) + ("" if end is None else f": ends at {end['workers']} workers ({end['reason']})")
        ax.plot(*zip(*points, strict=True), color=colour, marker=marker, linewidth=2, markersize=6, label=label)
        if end is not None and end["workers"] <= counts[-1]:
            at = end["workers"], end["speed_up"]
            ax.plot(*at, "o", markersize=14, markerfacecolor="none", markeredgecolor=colour, markeredgewidth=1.8)
    style_axes(ax, "Speed-up of a training step against one worker", "workers")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
        axis.set_minor_locator(NullLocator())
    ax.set_xticks(counts)
    ring = f"ends (ring): beyond it, twice as many\nworkers are less than {worth_it:g} times as fast"
    ax.text(0.98, 0.03, ring, transform=ax.transAxes, ha="right", fontsize=8, color=TEXT_COLOUR)
    ax.legend(frameon=False, fontsize=8.5, loc="upper left")


def _spent(ax: Axes, areas: Sequence[Area]) -> None:
    most = [(area, [row for row in area["rows"] if "step_s" in row][-1:]) for area in areas]
    shown = [(area, rows[0]) for area, rows in most if rows]
    for number, (_, row) in enumerate(shown):
        start = 0.0
        for name, colour in _BOUNDS.items():
            part = 100 * row["spent_s"][name] / row["step_s"]
            ax.barh(number, part, 0.55, left=start, color=colour, label=name if number == 0 else None)
            if part >= 8:
                style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
                style["color"] = "white" if name in _DARK else "black"
                ax.text(start + part / 2, number, f"{part:.0f} %", **style)
            start += part
    labels = [f"{_size(area)}\n{row['workers']} workers\n{_seconds(row)}" for area, row in shown]
    ax.set_yticks(range(len(shown)), labels)
    ax.set_ylim(len(shown) - 0.5, -0.9)
    ax.set_xlim(0, 100)
    style_axes(ax, "What the largest cluster's step is spent on (%)")
    if shown:
        ax.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.06))


def _size(area: Area) -> str:
    return f"{area['gigapixels']:.0f} gigapixel" + ("s" if area["gigapixels"] >= 1.5 else "")


def _seconds(row: Mapping[str, Any]) -> str:
    return f"{row['step_s']:.2f} s" if row["step_s"] < 10 else f"{row['step_s']:.0f} s"
