"""The whole-image step: one area, one tensor, every activation held for the backward pass, as in the paper.

Its memory grows with the area (about 50 bytes per pixel with the default network), which is what the paper needed
128 GB for. It is the reference that every other plan has to agree with.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gigaslide.classes import INVALID
from gigaslide.errors import GigaslideError
from gigaslide.geometry import Window, round_up
from gigaslide.network import losses
from gigaslide.network.pixels import network_input
from gigaslide.streaming.engine import Area, StepResult

if TYPE_CHECKING:
    from gigaslide.config import Network, Train

# TensorFlow indexes several CPU and GPU kernels with int32.
_MAX_TENSOR_ELEMENTS = 2**31 - 1


class WholeImage:
    """Engine with the plan `whole`."""

    plan = "whole"

    def __init__(self, model: keras.Model, total_stride: int, dice_weight: float, cross_entropy_weight: float) -> None:
        self.model = model
        # TensorFlow 2.19 cannot fuse a leaky ReLU that has a gradient: it tries, fails, and says so on standard error.
        tf.config.optimizer.set_experimental_options({"remapping": False})
        self._total_stride = total_stride
        image = tf.TensorSpec((None, None, 3), tf.uint8)
        mask = tf.TensorSpec((None, None), tf.uint8)
        glass = tf.TensorSpec((3,), tf.uint8)

        # Fixed signatures: slides of different sizes share one trace.
        @tf.function(input_signature=[image, glass, mask])  # type: ignore[untyped-decorator]
        def step(image: tf.Tensor, glass: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
            with tf.GradientTape() as tape:
                totals = losses.statistics(_logits(model, image, glass), mask)
                loss = losses.loss(totals, dice_weight, cross_entropy_weight)
            return loss, losses.soft_dice(totals), tape.gradient(loss, model.trainable_variables)

        @tf.function(input_signature=[image, glass])  # type: ignore[untyped-decorator]
        def probability(image: tf.Tensor, glass: tf.Tensor) -> tf.Tensor:
            return tf.sigmoid(_logits(model, image, glass))

        self._step = step
        self._probability = probability

    def step(self, area: Area) -> StepResult:
        """Return loss and gradient of the whole area in one pass.

        Raises:
            GigaslideError: a tensor of the step would have 2^31 elements or more.
        """
        started = time.perf_counter()
        window = self._window(area)
        image, glass = self._read(area, window)
        # What was padded is invalid: in no sum of the loss.
        below, right = self._beyond(area)
        mask = np.pad(area.read_mask(window), [(0, below), (0, right)], constant_values=INVALID)
        data_wait_s = time.perf_counter() - started
        loss, soft_dice, gradients = self._step(image, glass, mask)
        return StepResult(float(loss), float(soft_dice), [g.numpy() for g in gradients], data_wait_s)

    def predict(self, area: Area) -> Iterator[tuple[Window, NDArray[np.float32]]]:
        """Yield the one window of the whole area with its probabilities, (y, x) float32."""
        window = self._window(area)
        height, width = area.shape
        probability = self._probability(*self._read(area, window))
        yield window, probability.numpy()[:height, :width]

    def _window(self, area: Area) -> Window:
        height, width = (round_up(size, self._total_stride) for size in area.shape)
        channels = max(self.model.input.shape[-1], self.model.get_layer("head").input.shape[-1])
        if height * width * channels > _MAX_TENSOR_ELEMENTS:
            raise GigaslideError(
                f"memory.plan: whole holds tensors of at most {_MAX_TENSOR_ELEMENTS} values, and {area.name} of "
                f"{area.shape[0]} x {area.shape[1]} px needs {height * width * channels}: set prepare.region_px to a "
                "smaller area"
            )
        return Window.of(0, 0, *area.shape)

    def _read(self, area: Area, window: Window) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return the pixels, with glass beyond the edge, and the colour of the glass."""
        glass = np.array(area.glass_rgb, np.uint8)
        image = area.read_image(window)
        below, right = self._beyond(area)
        if below or right:
            padded = np.empty((image.shape[0] + below, image.shape[1] + right, 3), np.uint8)
            padded[...] = glass
            padded[: image.shape[0], : image.shape[1]] = image
            image = padded
        return image, glass

    def _beyond(self, area: Area) -> tuple[int, int]:
        """Rows and columns that are missing to a multiple of the stride."""
        below, right = (round_up(size, self._total_stride) - size for size in area.shape)
        return below, right


def _logits(model: keras.Model, image: tf.Tensor, glass: tf.Tensor) -> tf.Tensor:
    """(y, x, 3) uint8 -> (y, x) logits."""
    return model(network_input(image, glass, model.compute_dtype), training=True)[0, :, :, 0]


def build_engine(model: keras.Model, network: "Network", train: "Train") -> WholeImage:
    """Return the engine around `model` with the loss that `train` asks for."""
    return WholeImage(model, network.total_stride, train.dice_weight, train.cross_entropy_weight)
