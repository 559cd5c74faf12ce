"""One training step, measured: time, memory of the process, and what the planner had predicted of both.

In the process that calls: memory is not given back inside one, so every measurement has a process of its own. The step
is that of `gigaslide train`, with its settings, threads and determinism, without the optimiser.
"""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from gigaslide import machine, provenance
from gigaslide.benchmarks.areas import Middle, Repeated
from gigaslide.benchmarks.operations import step_operations
from gigaslide.config import Settings
from gigaslide.memory import plan_file
from gigaslide.memory.counters import device_counter
from gigaslide.memory.meter import MemoryMeter
from gigaslide.network import unet
from gigaslide.network.describe import describe
from gigaslide.slides.store import Store
from gigaslide.stages import engines
from gigaslide.stages.engines import Choice
from gigaslide.stages.paths import SCRATCH
from gigaslide.streaming import devices
from gigaslide.streaming.engine import Area, Engine, StepResult
from gigaslide.streaming.plan import WHOLE

# The first step traces the functions, and touches memory for the first time.
_WARM_UP_STEPS = 1
_PRODUCT_SIDE = 4096


def measure(
    settings: Settings, shape: tuple[int, int] | None, store: Store | None, steps: int, with_product: bool
) -> dict[str, Any]:
    """Return the figures of a step, as plain values.

    To be called before TensorFlow computes anything.

    Args:
        settings: network, memory and train say what is measured.
        shape: of the area in pixels, (y, x); None: the whole store.
        store: where the pixels are from, from its middle; None: made up.
        steps: that are timed, after one that is not.
        with_product: also time a matrix product, as a measure of the machine.

    Raises:
        DoesNotFit: no plan, or not the one that is asked for, keeps to the budget.
        UsageError: the store is smaller than `shape`.
    """
    area = _area(shape, store)
    choice = engines.choose(settings, [area.shape], from_stores=store is not None)
    workers = choice.candidate.plan.workers
    devices.set_threads(workers)
    keras.utils.set_random_seed(settings.train.seed)
    tf.config.experimental.enable_op_determinism()
    with tf.device(devices.CPU):
        network = unet.build(settings.network, settings.train.seed)
    engine = engines.build(settings, choice, network, SCRATCH)
    meter = MemoryMeter(device=device_counter())
    idle_bytes = meter.current_bytes()
    with meter.interval() as interval:
        results, seconds = timed(engine, area, steps)
    figures: dict[str, Any] = {
        "height": area.shape[0],
        "width": area.shape[1],
        "megapixels": area.shape[0] * area.shape[1] / 1e6,
        "source": area.name,
        "kernel_size": settings.network.kernel_size,
        "stride": settings.network.stride,
        "parameters": network.count_params(),
        # The whole-image engine knows no other.
        "precision": "float32" if choice.candidate.plan.name == WHOLE else settings.train.precision,
        **_plan(choice),
        **_speed(settings, area.shape, seconds),
        "data_wait_s": statistics.median(result.data_wait_s for result in results),
        "idle_bytes": idle_bytes,
        "peak_bytes": interval.peak_bytes,
        "device_peak_bytes": interval.device_peak_bytes,
        "loss": results[-1].loss,
        # After the steps: its matrices are not theirs.
        "matmul_gflops": _product_gflops(workers) if with_product else None,
    }
    return figures | {"git_commit": provenance.git_commit(), "machine": machine.describe_machine()}


def describe_figures(figures: dict[str, Any]) -> str:
    """Return the figures in a line for people."""
    return (
        "{megapixels:.1f} megapixels ({height} x {width}), {plan}: {step_s:.2f} s a step (predicted "
        "{predicted_step_s:.2f}), {ms_per_megapixel:.0f} ms per megapixel; peak {peak:.2f} GB (predicted "
        "{predicted:.2f})"
    ).format(**figures, peak=figures["peak_bytes"] / 1e9, predicted=figures["predicted_peak_bytes"] / 1e9)


def _area(shape: tuple[int, int] | None, store: Store | None) -> Area:
    if store is not None:
        return Middle(store, shape or store.shape)
    if shape is None:
        raise ValueError("an area has a shape, or is a whole store")
    return Repeated(shape)


def timed(engine: Engine, area: Area, steps: int) -> tuple[list[StepResult], list[float]]:
    """Return the results of `steps` steps after one that is not timed, and the seconds of each."""
    for _ in range(_WARM_UP_STEPS):
        engine.step(area)
    results, seconds = [], []
    for _ in range(steps):
        started = time.perf_counter()
        results.append(engine.step(area))
        seconds.append(time.perf_counter() - started)
    return results, seconds


def _plan(choice: Choice) -> dict[str, Any]:
    """Return the plan with its predictions; `plan` is its name."""
    values = plan_file.as_json(choice.candidate, choice.shape, choice.budget_bytes)
    kept = ("cuts", "tiles_px", "storage", "workers", "budget_bytes", "predicted_peak_bytes", "predicted_step_s")
    terms = {"predicted_bytes": asdict(choice.candidate.prediction)}
    return {"plan": values["name"]} | {key: values[key] for key in kept} | terms


def _speed(settings: Settings, shape: tuple[int, int], seconds: list[float]) -> dict[str, Any]:
    median_s, megapixels = statistics.median(seconds), shape[0] * shape[1] / 1e6
    return {
        "step_s": median_s,
        "step_s_all": seconds,
        "ms_per_megapixel": 1000 * median_s / megapixels,
        "megapixels_per_s": megapixels / median_s,
        "gflops": step_operations(describe(settings.network), shape) / median_s / 1e9,
    }


def _product_gflops(workers: int) -> float:
    """Return the speed of a float32 product of two 4096 x 4096 matrices, by as many threads as computed the step."""
    random = np.random.default_rng(0)
    left, right = (tf.constant(random.normal(size=(_PRODUCT_SIDE,) * 2), tf.float32) for _ in range(2))
    rows = np.array_split(np.arange(_PRODUCT_SIDE), workers)
    parts = [left[part[0] : part[-1] + 1] for part in rows]
    fastest_s = float("inf")
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(2):
            started = time.perf_counter()
            # Reading a value waits for a device that works on its own.
            for done in pool.map(lambda part: tf.linalg.matmul(part, right), parts):
                float(done[0, 0])
            fastest_s = min(fastest_s, time.perf_counter() - started)
    return 2 * float(_PRODUCT_SIDE) ** 3 / fastest_s / 1e9
