"""From the engine's tiles to rows of the whole slide: `bands`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gigaslide.errors import GigaslideError
from gigaslide.geometry import Interval, Window
from gigaslide.masks.heatmap import quantise
from gigaslide.slides.arrays import Bytes, Flags
from gigaslide.streaming.engine import Area, Engine


@dataclass(frozen=True)
class Band:
    """Whole rows of a slide: where the network sees tissue, bool (y, x), and how sure it is, uint8 (y, x)."""

    rows: Interval
    tissue: Flags
    probability: Bytes | None


def bands(
    engine: Engine,
    area: Area,
    threshold: float,
    with_probability: bool,
    wanted: Callable[[Window], bool] | None = None,
) -> Iterator[Band]:
    """Predict an area, and yield its rows from top to bottom; every row is in exactly one band.

    Args:
        engine: with the network.
        area: the slide.
        threshold: a pixel of at least this probability is tissue.
        with_probability: whether the probabilities are wanted too.
        wanted: told a window, whether anything in it is of interest; the others need not be computed.

    Raises:
        GigaslideError: the network gives what is no number.
    """
    width = area.shape[1]
    tissue: NDArray[np.bool_] = np.zeros((0, width), bool)
    probability: Bytes | None = None
    rows = Interval(0, 0)
    filled = 0
    for window, values in engine.predict(area, wanted):
        if not np.isfinite(values.sum()):  # one pass: probabilities add up to a number, unless one is none
            raise GigaslideError(
                f"the network should predict probabilities; on {area.name}, rows {window.y.start} to {window.y.stop}, "
                "some are not numbers: train it again with a lower train.learning_rate"
            )
        if window.y != rows:
            rows, filled = window.y, 0
            tissue = np.empty((rows.size, width), bool)
            probability = np.empty((rows.size, width), np.uint8) if with_probability else None
        np.greater_equal(values, np.float32(threshold), out=tissue[:, window.x.slice])
        if probability is not None:
            probability[:, window.x.slice] = quantise(values)
        filled += window.x.size
        if filled == width:
            yield Band(rows, tissue, probability)
