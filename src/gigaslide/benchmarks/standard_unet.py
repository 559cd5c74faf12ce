"""A step of the standard U-Net, which nobody designed for streaming: its memory, and that it is exact.

Ronneberger, Fischer and Brox 2015 (arXiv 1505.04597) with `same` padding: two 3x3 convolutions a level, max pooling,
2x2 up-convolutions, filters doubled at every level.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from gigaslide import machine, provenance
from gigaslide.benchmarks.areas import Repeated
from gigaslide.benchmarks.step import timed
from gigaslide.machine import usable_threads
from gigaslide.memory import planner
from gigaslide.memory.meter import MemoryMeter
from gigaslide.network.keras_graph import from_model
from gigaslide.stages.engines import start_bytes
from gigaslide.streaming import devices
from gigaslide.streaming.plan import Plan
from gigaslide.streaming.streamed import Streamed
from gigaslide.streaming.whole import WholeImage

_CHECK_SHAPE = (500, 700)
_CHECK_TILE = 128


def build(filters: int, levels: int, seed: int, dtype: str = "float32") -> keras.Model:
    """Return the network: image (1, y, x, 3) to logits (1, y, x, 1)."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers

    def double(x: Any, count: int, name: str) -> Any:
        for number in (1, 2):
            layer = layers.Conv2D(
                count,
                3,
                padding="same",
                activation="relu",
                kernel_initializer="he_normal",
                dtype=dtype,
                name=f"{name}_conv{number}",
            )
            x = layer(x)
        return x

    image = keras.Input((None, None, 3), batch_size=1, dtype=dtype)
    x, skips = image, []
    for level in range(levels):
        skips.append(double(x, filters << level, f"down{level}"))
        x = layers.MaxPooling2D(2, dtype=dtype, name=f"pool{level}")(skips[-1])
    x = double(x, filters << levels, "core")
    for level in reversed(range(levels)):
        x = layers.Conv2DTranspose(filters << level, 2, 2, dtype=dtype, name=f"up{level}")(x)
        x = layers.Concatenate(dtype=dtype, name=f"join{level}")([skips[level], x])
        x = double(x, filters << level, f"up{level}")
    return keras.Model(image, layers.Conv2D(1, 1, dtype=dtype, name="head")(x), name="standard_unet")


def measure(shape: tuple[int, int], filters: int, levels: int, budget_gb: float, steps: int) -> dict[str, Any]:
    """Return time and memory of a step, and how far loss and gradient of a smaller one are from the whole image's.

    To be called before TensorFlow computes anything.

    Raises:
        DoesNotFit: no plan keeps to the budget.
    """
    workers = usable_threads()
    devices.set_threads(workers)
    model = build(filters, levels, 0)
    graph, _ = from_model(model)
    found = planner.candidates(graph, shape, workers, runtime_bytes=start_bytes())
    chosen = planner.choose(found, shape, budget_gb * 1e9)
    engine, meter = Streamed(model, chosen.plan, 1.0, 1.0), MemoryMeter()
    with meter.interval() as interval:
        results, seconds = timed(engine, Repeated(shape), steps)
    return {
        "height": shape[0],
        "width": shape[1],
        "parameters": model.count_params(),
        "plan": chosen.plan.name,
        "step_s": float(np.median(seconds)),
        "peak_bytes": interval.peak_bytes,
        "predicted_peak_bytes": chosen.peak_bytes,
        "predicted_step_s": chosen.step_s,
        "loss": results[-1].loss,
        **_check(filters, levels, chosen.plan),
        "git_commit": provenance.git_commit(),
        "machine": machine.describe_machine(),
    }


def _check(filters: int, levels: int, plan: Plan) -> dict[str, float]:
    """Compare a step in float64 by the same cuts, in small tiles, with the whole image's."""
    model = build(filters, levels, 0, "float64")
    graph, _ = from_model(model)
    small = Plan(plan.name, plan.cuts, dict.fromkeys(plan.tiles, (_CHECK_TILE, _CHECK_TILE)), workers=plan.workers)
    area = Repeated(_CHECK_SHAPE)
    ours = Streamed(model, small, 1.0, 1.0).step(area)
    theirs = WholeImage(model, max(graph.total_stride), 1.0, 1.0).step(area)
    differences = [
        float(tf.norm(a - b) / tf.norm(b)) for a, b in zip(ours.gradients, theirs.gradients, strict=True) if np.any(b)
    ]
    return {
        "check_loss_difference": abs(ours.loss / theirs.loss - 1),
        "check_gradient_difference": max(differences),
    }
