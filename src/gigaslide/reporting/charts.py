"""Charts of the training and of the test split, as PNG.

Colours are from Okabe and Ito, "Color Universal Design" (2008): told apart with every kind of colour
vision, and in grey.
"""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

NETWORK_COLOUR = "#00735C"
CLASSICAL_COLOUR = "#E69F00"
_RAW_COLOUR = "#9CC9BE"
TEXT_COLOUR = "#333333"
DPI = 160
_SMOOTHED_POINTS = 40  # the running median spans a 40th of the steps


@dataclass(frozen=True)
class Bar:
    """One line of a chart that compares the methods; None is drawn as a remark."""

    name: str
    network: float | None
    classical: float | None


def png(figure: Figure) -> bytes:
    """Return the figure as PNG; same figure, same bytes."""
    stream = io.BytesIO()
    FigureCanvasAgg(figure).print_png(stream, metadata={"Software": None})
    return stream.getvalue()


def style_axes(ax: Axes, title: str, x_label: str = "") -> None:
    """Give a chart its title, the label of its x axis, and the look that all of them share."""
    ax.set_title(title, loc="left", fontsize=10, color=TEXT_COLOUR, fontweight="bold")
    ax.set_xlabel(x_label, fontsize=9, color=TEXT_COLOUR)
    ax.tick_params(labelsize=8, colors=TEXT_COLOUR, length=3)
    ax.grid(color="#E5E5E5", linewidth=0.8)
    ax.set_axisbelow(True)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#BBBBBB")


def _running_median(values: Sequence[float]) -> list[float]:
    half = max(0, len(values) // _SMOOTHED_POINTS // 2)
    return [float(np.median(values[max(0, i - half) : i + half + 1])) for i in range(len(values))]


def _per_step(ax: Axes, steps: Sequence[Mapping[str, Any]], column: str, title: str) -> None:
    x, y = [row["step"] for row in steps], [row[column] for row in steps]
    ax.plot(x, y, color=_RAW_COLOUR, linewidth=0.9)
    ax.plot(x, _running_median(y), color=NETWORK_COLOUR, linewidth=1.7)
    style_axes(ax, title, "step")


def training(steps: Sequence[Mapping[str, Any]], epochs: Sequence[Mapping[str, Any]]) -> bytes:
    """Draw loss, soft Dice, time, throughput and memory of every step, validation Dice of every epoch.

    Args:
        steps: rows of `results/train/steps.csv`, numbers as numbers.
        epochs: rows of `results/train/epochs.csv`; the last one with `is_best` is the best.
            Epochs are drawn counting from 1.
    """
    figure = Figure(figsize=(11, 5.6), dpi=DPI, layout="constrained")
    axes = figure.subplots(2, 3)
    _per_step(axes[0, 0], steps, "loss", "Training loss")
    _per_step(axes[0, 1], steps, "soft_dice", "Training soft Dice")
    _per_step(axes[1, 0], steps, "step_time_s", "Step time (s)")
    _per_step(axes[1, 1], steps, "megapixels_per_s", "Throughput (megapixels per s)")
    _per_step(axes[1, 2], steps, "memory_gb", "Peak memory of the step (GB)")
    for ax in axes[1]:
        ax.set_ylim(bottom=0)
    ax = axes[0, 2]
    x, y = [row["epoch"] + 1 for row in epochs], [row["validation_dice"] for row in epochs]
    ax.plot(x, y, color=NETWORK_COLOUR, linewidth=1.7, marker="o", markersize=2.5)
    style_axes(ax, "Validation Dice (mean over slides)", "epoch")
    best = [row for row in epochs if row["is_best"]]
    if best:
        epoch, dice = best[-1]["epoch"] + 1, best[-1]["validation_dice"]
        ax.plot([epoch], [dice], "o", markersize=9, markerfacecolor="none", color="#D55E00", markeredgewidth=1.8)
        remark = f"best: {dice:.4f} in epoch {epoch}"
        ax.text(0.97, 0.06, remark, transform=ax.transAxes, ha="right", fontsize=9, color="#B04A00")
    return png(figure)


def _pairs(ax: Axes, bars: Sequence[Bar], missing: str) -> None:
    for y, bar in enumerate(bars):
        for offset, value, colour in (
            (-0.19, bar.network, NETWORK_COLOUR),
            (0.19, bar.classical, CLASSICAL_COLOUR),
        ):
            if value is not None:
                ax.barh(y + offset, value, 0.36, color=colour)
        if bar.network is None and bar.classical is None:
            ax.text(0, y, f" {missing}", va="center", fontsize=8, color="#777777", style="italic")
    ax.set_yticks(range(len(bars)), [bar.name.replace("_", " ") for bar in bars])
    ax.set_ylim(len(bars) - 0.4, -0.6)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _legend(figure: Figure) -> None:
    handles = [
        figure.axes[0].barh(0, 0, color=colour, label=label)
        for colour, label in ((NETWORK_COLOUR, "network"), (CLASSICAL_COLOUR, "classical method (auto)"))
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False, fontsize=9)


def slides(bars: Sequence[Bar]) -> bytes:
    """Draw the Dice of each slide: a dot per method, joined by a line; in this order."""
    figure = Figure(figsize=(11, 1.3 + 0.32 * len(bars)), dpi=DPI, layout="constrained")
    ax = figure.subplots()
    # NaN is not drawn.
    network = [math.nan if bar.network is None else bar.network for bar in bars]
    classical = [math.nan if bar.classical is None else bar.classical for bar in bars]
    ax.hlines(range(len(bars)), classical, network, color="#CCCCCC", linewidth=2, zorder=1)
    ax.scatter(classical, range(len(bars)), s=42, color=CLASSICAL_COLOUR, zorder=2)
    ax.scatter(network, range(len(bars)), s=62, color=NETWORK_COLOUR, zorder=2)
    ax.set_yticks(range(len(bars)), [bar.name for bar in bars])
    ax.set_ylim(len(bars) - 0.4, -0.6)
    ax.set_xlim(right=1.002)
    style_axes(ax, "Dice of each test slide", "Dice")
    _legend(figure)
    return png(figure)


def artefacts(errors: Sequence[Bar], dice: Sequence[Bar]) -> bytes:
    """Draw, per artefact, the share of wrong pixels (as per cent) and the Dice, pooled over slides."""
    figure = Figure(figsize=(11, 1.4 + 0.42 * len(errors)), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _pairs(left, [Bar(bar.name, _percent(bar.network), _percent(bar.classical)) for bar in errors], "no pixel")
    style_axes(left, "Wrong pixels (% of the artefact; shorter is better)", "%")
    _pairs(right, dice, "no tissue there")
    right.set_xlim(0, 1)
    style_axes(right, "Dice (longer is better)", "Dice")
    for ax in (left, right):
        ax.grid(axis="y", visible=False)
    _legend(figure)
    return png(figure)
