"""Pictures of a slide with its truth and its prediction, as PNG.

Overviews are area averages made window by window; only the picture itself is in memory. Two colours mean
the same in all of them: blue is the truth alone (outline of the annotation, tissue that was missed),
vermilion the prediction alone (its outline, glass taken for tissue); both are from Okabe and Ito (2008),
told apart with every kind of colour vision.
"""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import uniform_filter
from skimage.measure import find_contours

from gigaslide.classes import GLASS, INVALID, TISSUE
from gigaslide.evaluation.overview import area_average, factor_for
from gigaslide.evaluation.slide import LabelledSlide
from gigaslide.geometry import Interval, Window

TRUTH_COLOUR = "#0072B2"
PREDICTION_COLOUR = "#D55E00"
_INVALID_COLOUR = "#8C8C8C"

_DPI = 100
_LEGEND_PX = 34
_LEAST_WIDTH_PX = 420
_BAR_SHARE = 0.22  # a scale bar is at most this share of the picture's width

ReadLabels = Callable[[Window], NDArray[np.uint8]]


@dataclass(frozen=True)
class Overview:
    """A slide, its truth and its prediction at one whole down-scale; shares are float32 (y, x), 0 to 1."""

    factor: int
    image: NDArray[np.uint8]  # (y, x, 3)
    truth: NDArray[np.float32]
    prediction: NDArray[np.float32]
    false_positive: NDArray[np.float32]
    false_negative: NDArray[np.float32]
    invalid: NDArray[np.float32]


def overview(slide: LabelledSlide, predicted: ReadLabels, longest_px: int) -> Overview:
    """Average a slide down until its longer side has at most `longest_px`.

    Args:
        slide: its image and mask are read once, window by window.
        predicted: labels of the prediction, uint8 (y, x).
        longest_px: of the result.
    """
    factor = factor_for(slide.shape, longest_px)

    def shares(window: Window) -> NDArray[np.bool_]:
        mask, labels = slide.read_mask(window), predicted(window)
        tissue = labels == TISSUE
        return np.stack(
            [
                mask == TISSUE,
                tissue,
                tissue & (mask == GLASS),
                ~tissue & (mask == TISSUE),
                mask == INVALID,
            ],
            axis=-1,
        )

    image = area_average(slide.read_image, slide.shape, factor, np.uint8)
    return Overview(factor, image, *np.moveaxis(area_average(shares, slide.shape, factor), -1, 0))


def worst_place(view: Overview, shape: tuple[int, int], side_px: int) -> Window:
    """Return the window of `side_px` (or the slide, if smaller) with the most wrong pixels.

    In the slide's pixels, found at the overview's resolution. Where nothing is wrong, it is the window with the
    most outline.
    """
    wrong = view.false_positive + view.false_negative
    if not wrong.any():
        wrong = view.truth * (1 - view.truth) + np.float32(1e-6)
    # Two boxes make a hill: among windows that hold the same pixels it prefers those with them in the middle.
    half = max(1, round(side_px / view.factor / 2))
    around = uniform_filter(uniform_filter(wrong.astype(np.float64), half, mode="constant"), half, mode="constant")
    centre = np.unravel_index(int(np.argmax(around)), around.shape)

    def interval(middle: int, size: int) -> Interval:
        length = min(side_px, size)
        start = min(max(0, round((middle + 0.5) * view.factor) - length // 2), size - length)
        return Interval(start, start + length)

    return Window(interval(int(centre[0]), shape[0]), interval(int(centre[1]), shape[1]))


def _rgb(colour: str) -> NDArray[np.float32]:
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], np.float32)


def _blend(base: NDArray[np.float32], colour: str, share: NDArray[np.float32]) -> NDArray[np.float32]:
    alpha = share[..., None]
    blended: NDArray[np.float32] = base * (1 - alpha) + _rgb(colour) * alpha
    return blended


def _stripes(shape: tuple[int, ...]) -> NDArray[np.float32]:
    y, x = np.ogrid[: shape[0], : shape[1]]
    stripes: NDArray[np.float32] = ((y + x) % 12 < 5).astype(np.float32)
    return stripes


def _disagreement(view: Overview) -> NDArray[np.uint8]:
    grey = view.image.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    # Pale, so that the two colours are all there is to see.
    base = np.repeat(255 - 0.55 * (255 - grey)[..., None], 3, axis=-1)
    base = _blend(base, _INVALID_COLOUR, view.invalid * _stripes(view.invalid.shape))
    # Roots of the shares: one wrong pixel in a block of many is still seen.
    base = _blend(base, TRUTH_COLOUR, np.sqrt(view.false_negative))
    base = _blend(base, PREDICTION_COLOUR, np.sqrt(view.false_positive))
    return np.rint(np.clip(base, 0, 255)).astype(np.uint8)


def nice_length(longest: float) -> float:
    """Return the largest of 1, 2, 5, 10, 20, 50, ... (or 0.5, 0.2, ...) that is at most `longest`."""
    power = 10.0 ** math.floor(math.log10(longest))
    return max(step * power for step in (1, 2, 5) if step * power <= longest * (1 + 1e-9))


def scale_bar(um_per_px: float | None, factor: float, width_px: int) -> tuple[float, str]:
    """Return length in picture pixels and label of a scale bar; in slide pixels without an mpp."""
    unit_per_px = factor * (um_per_px or 1.0)
    length = nice_length(_BAR_SHARE * width_px * unit_per_px)
    if um_per_px is None:
        return length / unit_per_px, f"{length:g} px"
    label = f"{length / 1000:g} mm" if length >= 1000 else f"{length:g} µm"
    return length / unit_per_px, label


def _draw_scale_bar(ax: Axes, shape: tuple[int, int], um_per_px: float | None, factor: int) -> None:
    height, width = shape
    length, label = scale_bar(um_per_px, factor, width)
    left, bottom = width - 16 - length, height - 14
    ax.add_patch(
        Rectangle((left - 8, bottom - 30), length + 16, 38, facecolor="white", alpha=0.85, linewidth=0, zorder=5)
    )
    ax.add_patch(Rectangle((left, bottom - 4), length, 4, facecolor="black", linewidth=0, zorder=6))
    ax.text(left + length / 2, bottom - 8, label, ha="center", va="bottom", fontsize=11, color="black", zorder=6)


def _draw_outline(ax: Axes, share: NDArray[np.float32], valid: NDArray[np.bool_], colour: str, width: float) -> None:
    if min(share.shape) < 2:
        return
    lines = [contour[:, ::-1] for contour in find_contours(share, 0.5, mask=valid)]
    ax.add_collection(LineCollection(lines, colors=colour, linewidths=width))


def _quantised_png(figure: Figure) -> bytes:
    """Return the figure as PNG of 256 colours, a third of the size; same figure, same bytes."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
    stream = io.BytesIO()
    picture.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.FLOYDSTEINBERG).save(stream, "PNG")
    return stream.getvalue()


_OUTLINES = (
    Line2D([], [], color=TRUTH_COLOUR, linewidth=3, label="truth"),
    Line2D([], [], color=PREDICTION_COLOUR, linewidth=1.5, label="prediction"),
)
_AREAS = (
    Patch(color=TRUTH_COLOUR, label="missed tissue"),
    Patch(color=PREDICTION_COLOUR, label="glass taken for tissue"),
    Patch(facecolor="white", edgecolor=_INVALID_COLOUR, hatch="////", label="not counted"),
)


class _Sheet:
    """Panels side by side at one picture pixel per image pixel, a legend below."""

    def __init__(self, shape: tuple[int, int], panels: int = 1, gap_px: int = 8) -> None:
        height, width = shape
        self._shape = shape
        self._stride = width + gap_px
        self._width = max(_LEAST_WIDTH_PX, panels * self._stride - gap_px)
        self._height = height + _LEGEND_PX
        self.figure = Figure(figsize=(self._width / _DPI, self._height / _DPI), dpi=_DPI, facecolor="white")

    def panel(self, index: int, image: NDArray[np.uint8]) -> Axes:
        height, width = self._shape
        ax = self.figure.add_axes(
            (
                index * self._stride / self._width,
                _LEGEND_PX / self._height,
                width / self._width,
                height / self._height,
            )
        )
        ax.imshow(image, interpolation="nearest", aspect="auto")
        ax.set_axis_off()
        return ax

    def legend(self, handles: tuple[Line2D, ...] | tuple[Patch, ...]) -> None:
        self.figure.legend(
            handles=list(handles), loc="lower left", ncols=3, frameon=False, fontsize=11, borderaxespad=0.3
        )


def outlines_png(view: Overview, mpp_um_per_px: float | None) -> bytes:
    """Draw the slide with the outlines of truth and prediction; where they agree, one lies on the other."""
    shape = view.truth.shape
    sheet = _Sheet(shape)
    ax = sheet.panel(0, view.image)
    valid = view.invalid < 0.5
    _draw_outline(ax, view.truth, valid, TRUTH_COLOUR, 3.6)
    _draw_outline(ax, view.prediction, valid, PREDICTION_COLOUR, 1.5)
    _draw_scale_bar(ax, shape, mpp_um_per_px, view.factor)
    sheet.legend(_OUTLINES)
    return _quantised_png(sheet.figure)


def disagreement_png(view: Overview, mpp_um_per_px: float | None) -> bytes:
    """Draw where truth and prediction differ, over the slide in pale grey."""
    shape = view.truth.shape
    sheet = _Sheet(shape)
    ax = sheet.panel(0, _disagreement(view))
    _draw_scale_bar(ax, shape, mpp_um_per_px, view.factor)
    sheet.legend(_AREAS if view.invalid.any() else _AREAS[:2])
    return _quantised_png(sheet.figure)


def detail_png(slide: LabelledSlide, predicted: ReadLabels, window: Window) -> bytes:
    """Draw a window at full resolution twice: as it is, and with both outlines."""
    image, mask, labels = slide.read_image(window), slide.read_mask(window), predicted(window)
    sheet = _Sheet(window.shape, panels=2)
    plain, drawn = sheet.panel(0, image), sheet.panel(1, image)
    valid = mask != INVALID
    _draw_outline(drawn, (mask == TISSUE).astype(np.float32), valid, TRUTH_COLOUR, 2.6)
    _draw_outline(drawn, (labels == TISSUE).astype(np.float32), valid, PREDICTION_COLOUR, 1.1)
    _draw_scale_bar(plain, window.shape, slide.mpp_um_per_px, 1)
    sheet.legend(_OUTLINES)
    return _quantised_png(sheet.figure)
