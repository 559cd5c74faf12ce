"""Time and memory of a step against the size of the area, as a picture for the README."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from gigaslide.reporting.charts import CLASSICAL_COLOUR, DPI, NETWORK_COLOUR, TEXT_COLOUR, png, style_axes

# arXiv 2304.12149, on a Mac Studio with an M1 Ultra: its own figures, not measured here. Memory: "over 100 GB".
PAPER = {"megapixels": 1024.0, "step_s": 81.0, "memory_gb_over": 100.0}
_OTHER_BUDGETS = "v^Dp"  # a marker each
_BYTES_PER_GB = 1e9

Row = Mapping[str, Any]
Point = tuple[float, float]  # megapixels, and seconds or GB


def draw(runs: Sequence[Row], machine: Row, budget_gb: float) -> bytes:
    """Return the picture as PNG.

    Args:
        runs: rows of benchmarks/results.json; those without `step_s` are left out. Whole images have no `budget_gb`.
        machine: where they were measured.
        budget_gb: of the streamed runs that make a curve; those in other budgets are single points.
    """
    figure = Figure(figsize=(9.6, 4.8), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    measured = [run for run in runs if "step_s" in run]
    _panel(left, measured, budget_gb, "s", lambda run: float(run["step_s"]))
    _paper(left, PAPER["step_s"], f"{PAPER['step_s']:.0f} s")
    _panel(right, measured, budget_gb, "GB", lambda run: float(run["peak_bytes"]) / _BYTES_PER_GB)
    _paper(right, PAPER["memory_gb_over"], f"over {PAPER['memory_gb_over']:.0f} GB")
    style_axes(left, "Time of a training step (s)", "megapixels")
    style_axes(right, "Peak memory of the process (GB)", "megapixels")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    figure.supxlabel(
        f"Measured on {machine['cores']} core(s) of {machine['cpu']}, {machine['memory_gb']:g} GB; every point in a "
        "process of its own.\nThe star is the paper's own figure on its machine (arXiv 2304.12149), not measured here.",
        fontsize=8,
        color="#555555",
    )
    return png(figure)


def _panel(ax: Axes, runs: Sequence[Row], budget_gb: float, unit: str, value: Callable[[Row], float]) -> None:
    def points(budget_gb: float | None) -> list[Point]:
        return sorted((run["megapixels"], value(run)) for run in runs if run["budget_gb"] == budget_gb)

    ax.set_xscale("log")
    ax.set_yscale("log")
    whole = points(None)
    _curve(ax, whole, "whole image, as in the paper", color=CLASSICAL_COLOUR, marker="s")
    _curve(ax, _beyond(whole), "whole image, extrapolated", color=CLASSICAL_COLOUR, linestyle=(0, (4, 3)))
    streamed = points(budget_gb)
    _curve(ax, streamed, f"streamed, budget {budget_gb:g} GB", color=NETWORK_COLOUR, marker="o")
    others = sorted({run["budget_gb"] for run in runs} - {None, budget_gb})
    for marker, other in zip(_OTHER_BUDGETS, others, strict=False):
        hollow = {"linestyle": "none", "marker": marker, "markerfacecolor": "white", "markersize": 8}
        _curve(ax, points(other), f"streamed, budget {other:g} GB", color=NETWORK_COLOUR, **hollow)
    if streamed:
        size, found = streamed[-1]
        remark = f"{found:.2g} {unit}" if found < 10 else f"{found:.0f} {unit}"
        style: dict[str, Any] = {"fontsize": 9, "color": NETWORK_COLOUR, "weight": "bold"}
        ax.annotate(remark, (size, found), (9, -4), textcoords="offset points", **style)
    sizes = sorted({run["megapixels"] for run in runs} | {PAPER["megapixels"]})
    ax.set_xticks(sizes, [f"{size:.0f}" if size >= 1 else f"{size:.2g}" for size in sizes])
    ax.set_xlim(sizes[0] / 1.4, sizes[-1] * 3)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))


def _curve(ax: Axes, points: Sequence[Point], label: str, **style: Any) -> None:
    if points:
        ax.plot(*zip(*points, strict=True), label=label, **{"linewidth": 2, "markersize": 6} | style)


def _beyond(points: Sequence[Point]) -> list[Point]:
    """Return the straight line through the last two points, from there to the paper's size."""
    if len(points) < 2:
        return []
    (x1, y1), (x2, y2) = points[-2:]
    per_megapixel = (y2 - y1) / (x2 - x1)
    sizes = [x2 * (PAPER["megapixels"] / x2) ** (part / 20) for part in range(21)]
    return [(size, y2 + (size - x2) * per_megapixel) for size in sizes]


def _paper(ax: Axes, value: float, remark: str) -> None:
    at = PAPER["megapixels"], value
    label = "paper's own figure, M1 Ultra"
    ax.plot(*at, "*", color=TEXT_COLOUR, markersize=14, linestyle="none", label=label, zorder=3)
    ax.annotate(remark, at, (0, 11), textcoords="offset points", ha="center", fontsize=9, color=TEXT_COLOUR)
    ax.set_ylim(top=2 * max(value, ax.get_ylim()[1] / 2))  # room for the remark
