"""What a tile reads of an area: the network's input, and labels; beyond the area there is glass, in no sum."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gigaslide.classes import INVALID
from gigaslide.geometry import Window
from gigaslide.network.pixels import write_network_input
from gigaslide.streaming.buffers import BufferPool
from gigaslide.streaming.engine import Area


def read_planes(
    area: Area, window: Window, table: NDArray[np.float64], dtype: np.dtype[Any], buffers: BufferPool
) -> NDArray[Any]:
    """Return the network's input, (1, y, x, 3); what was padded to a multiple of the stride is glass.

    Args:
        area: what is read.
        window: which of its pixels; it may go beyond the area.
        table: the area's `density_table`, asked for once.
        dtype: of the network's input.
        buffers: where the array is from.
    """
    inside = window.clip(Window.of(0, 0, *area.shape))
    planes = buffers.take((1, *window.shape, 3), dtype)
    write_network_input(area.read_image(inside), table, planes)
    return planes


def read_labels(area: Area, window: Window, buffers: BufferPool) -> NDArray[np.uint8]:
    """Return the labels of a window, (y, x); padded ones are invalid, in no sum of the loss."""
    inside = window.clip(Window.of(0, 0, *area.shape))
    labels = buffers.take(window.shape, np.dtype(np.uint8))
    labels[inside.y.size :] = INVALID
    labels[: inside.y.size, inside.x.size :] = INVALID
    labels[: inside.y.size, : inside.x.size] = area.read_mask(inside)
    return labels
