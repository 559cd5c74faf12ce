"""The whole-image step: one area, one tensor, every activation held for the backward pass, as in the paper.

Its memory grows with the area (about 50 bytes per pixel with the default network), which is what the paper needed
128 GB for. It is the reference that every other plan has to agree with.
"""

import time
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gigaslide.classes import INVALID
from gigaslide.errors import GigaslideError
from gigaslide.geometry import Window, round_up
from gigaslide.network import losses
from gigaslide.network.pixels import write_network_input
from gigaslide.streaming.buffers import BufferPool, in_place
from gigaslide.streaming.engine import Area, StepResult

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
        planes = tf.TensorSpec((1, None, None, 3), model.inputs[0].dtype)
        mask = tf.TensorSpec((None, None), tf.uint8)

        # Fixed signatures: slides of different sizes share one trace.
        @tf.function(input_signature=[planes, mask])  # type: ignore[untyped-decorator]
        def step(planes: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
            with tf.GradientTape() as tape:
                totals = losses.statistics(model(planes, training=True)[0, :, :, 0], mask)
                loss = losses.loss(totals, dice_weight, cross_entropy_weight)
            return loss, losses.soft_dice(totals), tape.gradient(loss, model.trainable_variables)

        @tf.function(input_signature=[planes])  # type: ignore[untyped-decorator]
        def probability(planes: tf.Tensor) -> tf.Tensor:
            return tf.sigmoid(model(planes, training=False)[0, :, :, 0])

        self._step = step
        self._probability = probability

    def step(self, area: Area) -> StepResult:
        """Return loss and gradient of the whole area in one pass.

        Raises:
            GigaslideError: a tensor of the step would have 2^31 elements or more.
        """
        started = time.perf_counter()
        window = self._window(area)
        planes = self._read(area, window)
        # What was padded is invalid: in no sum of the loss.
        below, right = self._beyond(area)
        mask = np.pad(area.read_mask(window), [(0, below), (0, right)], constant_values=INVALID)
        data_wait_s = time.perf_counter() - started
        loss, soft_dice, gradients = self._step(planes, mask)
        return StepResult(float(loss), float(soft_dice), [g.numpy() for g in gradients], data_wait_s)

    def predict(
        self, area: Area, wanted: Callable[[Window], bool] | None = None
    ) -> Iterator[tuple[Window, NDArray[np.float32]]]:
        """Yield the one window of the whole area with its probabilities, (y, x) float32; all of it is computed."""
        window = self._window(area)
        height, width = area.shape
        probability = self._probability(self._read(area, window))
        yield window, probability.numpy()[:height, :width]

    def _window(self, area: Area) -> Window:
        height, width = (round_up(size, self._total_stride) for size in area.shape)
        channels = max(self.model.input.shape[-1], self.model.layers[-1].input.shape[-1])
        if height * width * channels > _MAX_TENSOR_ELEMENTS:
            raise GigaslideError(
                f"memory.plan: whole holds tensors of at most {_MAX_TENSOR_ELEMENTS} values, and {area.name} of "
                f"{area.shape[0]} x {area.shape[1]} px needs {height * width * channels}: set prepare.region_px to a "
                "smaller area"
            )
        return Window.of(0, 0, *area.shape)

    def _read(self, area: Area, window: Window) -> tf.Tensor:
        """Return the network's input, with glass beyond the edge: (1, y, x, 3)."""
        below, right = self._beyond(area)
        height, width = area.shape
        # From a pool that is dropped at once: for its aligned memory, of which TensorFlow needs no copy.
        planes = BufferPool().take((1, height + below, width + right, 3), np.dtype(self.model.inputs[0].dtype))
        write_network_input(area.read_image(window), area.density_table, planes)
        return in_place(planes)

    def _beyond(self, area: Area) -> tuple[int, int]:
        """Rows and columns that are missing to a multiple of the stride."""
        below, right = (round_up(size, self._total_stride) - size for size in area.shape)
        return below, right
