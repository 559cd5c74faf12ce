"""The whole-image step: one area, one tensor, every activation held for the backward pass, as in the paper.

Its memory grows with the area (about 50 bytes per pixel with the default network), which is what the paper needed
128 GB for. It is the reference that every other plan has to agree with.
"""

import time
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gigaslide.errors import GigaslideError
from gigaslide.geometry import Window, round_up
from gigaslide.network import losses
from gigaslide.streaming.engine import Area, StepResult

# TensorFlow indexes several CPU and GPU kernels with int32.
_MAX_TENSOR_ELEMENTS = 2**31 - 1
_GLASS_RGB = 255


class WholeImage:
    """Engine with the plan `whole`."""

    plan = "whole"

    def __init__(
        self, model: keras.Model, total_stride: int, dice_weight: float, cross_entropy_weight: float
    ) -> None:
        self.model = model
        self._total_stride = total_stride
        image = tf.TensorSpec((None, None, 3), tf.uint8)
        mask = tf.TensorSpec((None, None), tf.uint8)

        # Fixed signatures: slides of different sizes share one trace.
        @tf.function(input_signature=[image, mask])  # type: ignore[untyped-decorator]
        def step(image: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
            with tf.GradientTape() as tape:
                totals = losses.statistics(_logits(model, image), mask)
                loss = losses.loss(totals, dice_weight, cross_entropy_weight)
            return loss, losses.soft_dice(totals), tape.gradient(loss, model.trainable_variables)

        @tf.function(input_signature=[image])  # type: ignore[untyped-decorator]
        def probability(image: tf.Tensor) -> tf.Tensor:
            return tf.sigmoid(_logits(model, image))

        self._step = step
        self._probability = probability

    def step(self, area: Area) -> StepResult:
        """Return loss and gradient of the whole area in one pass.

        Raises:
            GigaslideError: a tensor of the step would have 2^31 elements or more.
        """
        started = time.perf_counter()
        window = self._window(area)
        image = self._pad(area.read_image(window), _GLASS_RGB)
        # What was padded is invalid: in no sum of the loss.
        mask = self._pad(area.read_mask(window), losses.INVALID)
        data_wait_s = time.perf_counter() - started
        loss, soft_dice, gradients = self._step(image, mask)
        return StepResult(float(loss), float(soft_dice), [g.numpy() for g in gradients], data_wait_s)

    def predict(self, area: Area) -> Iterator[tuple[Window, NDArray[np.float32]]]:
        """Yield the one window of the whole area with its probabilities, (y, x) float32."""
        window = self._window(area)
        height, width = area.shape
        probability = self._probability(self._pad(area.read_image(window), _GLASS_RGB))
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

    def _pad(self, pixels: NDArray[np.uint8], value: int) -> NDArray[np.uint8]:
        below, right = (round_up(size, self._total_stride) - size for size in pixels.shape[:2])
        if not below and not right:
            return pixels
        widths = [(0, below), (0, right)] + [(0, 0)] * (pixels.ndim - 2)
        return np.pad(pixels, widths, constant_values=value)


def _logits(model: keras.Model, image: tf.Tensor) -> tf.Tensor:
    """(y, x, 3) uint8 -> (y, x) logits."""
    pixels = 1 - tf.cast(image, model.compute_dtype)[tf.newaxis] / 255
    return model(pixels, training=True)[0, :, :, 0]
