"""What the training loop and the evaluation see of the engine, and what the engine sees of a slide.

The loop hands over an area and gets loss and gradient back; how the area is visited is the engine's business.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gigaslide.geometry import Window

if TYPE_CHECKING:
    import keras


class Area(Protocol):
    """Pixels and labels that can be read window by window: a prepared store, or something that wraps one."""

    @property
    def name(self) -> str:
        """The slide's name."""

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) in pixels."""

    @property
    def glass_rgb(self) -> tuple[int, int, int]:
        """The colour of the slide's empty glass."""

    @property
    def density_table(self) -> NDArray[np.float64]:
        """The optical density of every grey value of `read_image`, (3, 256) float64 (slides/density.py)."""

    def read_image(self, window: Window) -> NDArray[np.uint8]:
        """Return RGB pixels, (y, x, 3) uint8."""

    def read_mask(self, window: Window) -> NDArray[np.uint8]:
        """Return labels, (y, x) uint8: 0 glass, 1 tissue, 255 invalid."""


class StepResult(NamedTuple):
    """One step on one area."""

    loss: float
    soft_dice: float
    gradients: list[NDArray[np.float32]]  # one per trainable weight of the model, in its order
    data_wait_s: float  # seconds in which nothing was computed because pixels were being read


class Engine(Protocol):
    """Loss, gradient and prediction of one network on areas of any size."""

    @property
    def model(self) -> "keras.Model":
        """The network; its weights are used as they are at the time of a call."""

    @property
    def plan(self) -> str:
        """The name of the way an area is visited."""

    def step(self, area: Area) -> StepResult:
        """Return the loss on the whole area and its gradient."""

    def predict(
        self, area: Area, wanted: Callable[[Window], bool] | None = None
    ) -> Iterator[tuple[Window, NDArray[np.float32]]]:
        """Yield windows that tile the area, row by row, with the probability of tissue, (y, x) float32.

        Where `wanted` says that nothing in a window is of interest, the engine may give 0 instead.
        """
