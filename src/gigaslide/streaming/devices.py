"""Which device computes and with how many threads, and whether an accelerator computes what the CPU does.

An accelerator that returns wrong gradients trains a bad network without a sign (Metal has done so). So loss and
gradient of a small tile are computed on both before training, by the engine that trains.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tensorflow as tf

from gigaslide.errors import GigaslideError, UsageError
from gigaslide.network import unet
from gigaslide.network.graph import IMAGE, Graph
from gigaslide.network.keras_graph import from_model
from gigaslide.streaming.check_area import SIDE_PX, CheckArea
from gigaslide.streaming.engine import StepResult
from gigaslide.streaming.plan import Plan
from gigaslide.streaming.segment import SegmentFunctions
from gigaslide.streaming.streamed import Streamed

if TYPE_CHECKING:
    import keras

    from gigaslide.config import Network

DEVICE_VARIABLE = "GIGASLIDE_DEVICE"
CPU = "CPU:0"
StepOn = Callable[[str], StepResult]

# Tiles of the check; 4 x 4 of them, so that some touch the edge of the image and some do not.
_TILE_PX = SIDE_PX // 4
# The area has n = 2^16 pixels, and a gradient is a float32 sum over them, with unit roundoff u = 2^-24. Whatever its
# order, a sum rounds by at most (n - 1) u of the sum of its terms' sizes (Higham, Accuracy and Stability of Numerical
# Algorithms, 4.2); in practice by about sqrt(n) u. The tolerance is n u = 2^-8 = 0.4 %: the bound where nothing
# cancels, and what is usual where terms cancel to 1 / sqrt(n) of their sizes. Measured with six networks, 35 seeds in
# all: CPU with oneDNN against without, 2e-7 to 2e-5; tiles against the whole image, 1e-6 to 5e-5.
TOLERANCE = SIDE_PX**2 * 2.0**-24
ADVICE = (
    f"compute on the CPU, with {DEVICE_VARIABLE}=cpu in the environment (for NVIDIA, CUDA_VISIBLE_DEVICES=-1 does it, "
    "too), or try another version of the GPU's driver (on a Mac, of macOS and tensorflow-metal)"
)


@dataclass(frozen=True)
class Agreement:
    """How far an accelerator and the CPU are apart on the check's area."""

    device: str
    loss_difference: float  # relative to the CPU's loss
    gradient_difference: float  # norm of the difference over norm of the CPU's gradient, of the worst weight
    tolerance: float  # the most that rounding explains, for both

    @property
    def holds(self) -> bool:
        """Whether both differences are within the tolerance; a NaN is not."""
        return self.loss_difference <= self.tolerance and self.gradient_difference <= self.tolerance


def set_threads(workers: int, threads: int | None = None) -> None:
    """Choose device, threads and precision of this process; to be called before TensorFlow computes anything.

    On a CPU, `workers` > 1 tiles are computed at once, each by operations of one thread: that wastes less than many
    threads on one small operation. One worker uses all threads for one operation after the other. On an accelerator
    TensorFlow's own choice stands. `threads` sets how many an operation has, whatever `workers` is.
    GIGASLIDE_DEVICE=cpu hides the accelerators. Products in TF32, which keep 10 bits, are switched off: NVIDIA's
    convolutions would use them by default, and their gradients would be a thousand times coarser than float32.

    Raises:
        UsageError: GIGASLIDE_DEVICE is something else.
        GigaslideError: TensorFlow has begun to compute, with other settings.
    """
    wanted = os.environ.get(DEVICE_VARIABLE, "").strip().lower()
    if wanted not in ("", "cpu"):
        raise UsageError(f"{DEVICE_VARIABLE} is cpu or not set; received {wanted!r}")
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        if wanted:
            tf.config.set_visible_devices([], "GPU")
        # 0 is TensorFlow's choice. One operation at a time, or two that happen to meet would decide the peak of memory.
        intra_op, inter_op = (1 if workers > 1 else 0, workers) if accelerator() is None else (0, 0)
        intra_op = intra_op if threads is None else threads
        tf.config.threading.set_intra_op_parallelism_threads(intra_op)
        tf.config.threading.set_inter_op_parallelism_threads(inter_op)
    except RuntimeError:
        # TensorFlow says so only if a value would change.
        raise GigaslideError(
            f"devices and threads (here for {workers} tiles at once) are chosen before TensorFlow computes anything, "
            "and this process has begun with others: start a new process"
        ) from None


def accelerator() -> str | None:
    """Return the accelerator that TensorFlow computes on, as `tf.device` takes it; None on a CPU."""
    return "GPU:0" if tf.config.get_visible_devices("GPU") else None


def device_name() -> str:
    """Return the name of the device that computes ("NVIDIA H200"), or "CPU"."""
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        return "CPU"
    return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU"))


def step_on(network: "Network", seed: int, dice_weight: float, cross_entropy_weight: float) -> StepOn:
    """Return a function that computes the check's step on the device it is given, with a network of its own."""
    # Drawn once: another device may draw other weights from the same seed.
    with tf.device(CPU):
        weights = unet.build(network, seed).get_weights()

    def step(device: str) -> StepResult:
        with tf.device(device):
            model = unet.build(network, seed)
            model.set_weights(weights)
        return _StreamedOn(device, model, dice_weight, cross_entropy_weight).step(CheckArea())

    return step


def check_accelerator(step_on: StepOn, device: str | None = None) -> Agreement | None:
    """Compare loss and gradient of a small tile between the accelerator and the CPU; None where there is none.

    Args:
        step_on: computes the step on a device; from `step_on`.
        device: the accelerator; None: the one that TensorFlow would use.

    Raises:
        GigaslideError: they differ by more than rounding explains, or the accelerator cannot compute the step.
    """
    device = device or accelerator()
    if device is None:
        return None
    name = device_name() if accelerator() else device
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        result = step_on(device)
    except tf.errors.OpError as error:
        raise GigaslideError(f"{name} cannot compute the network ({_first_line(error)}): {ADVICE}") from error
    agreement = compare(name, result, step_on(CPU))
    if not agreement.holds:
        raise GigaslideError(
            f"{name} is refused, because it computes something else than the CPU: on a test tile the gradient differs "
            f"by {agreement.gradient_difference:.2g} of its size and the loss by {agreement.loss_difference:.2g}, "
            f"where rounding explains at most {agreement.tolerance:.2g}: {ADVICE}"
        )
    return agreement


def compare(device: str, result: StepResult, reference: StepResult) -> Agreement:
    """Return how far `result`, of `device`, is from the CPU's `reference`."""
    differences = [
        _relative(found, expected) for found, expected in zip(result.gradients, reference.gradients, strict=True)
    ]
    return Agreement(
        device,
        _relative(np.array(result.loss), np.array(reference.loss)),
        float(np.max(differences)),  # NaN if one is
        TOLERANCE,
    )


def _relative(found: "np.ndarray[Any, Any]", expected: "np.ndarray[Any, Any]") -> float:
    with np.errstate(all="ignore"):
        difference = float(np.linalg.norm(np.asarray(found, np.float64) - expected))
        size = float(np.linalg.norm(np.asarray(expected, np.float64)))
        return 0.0 if difference == 0 else float(np.divide(difference, size))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class _StreamedOn(Streamed):
    """The streaming engine with all that it computes on one device, in tiles that show every kind of operation."""

    def __init__(self, device: str, model: "keras.Model", dice_weight: float, cross_entropy_weight: float) -> None:
        graph, _ = from_model(model)
        cuts = _cuts(graph)
        plan = Plan("check", cuts, dict.fromkeys((*cuts, graph.output.name), (_TILE_PX, _TILE_PX)))
        super().__init__(model, plan, dice_weight, cross_entropy_weight)
        self._functions = {
            segment: cast("SegmentFunctions", _FunctionsOn(device, functions))
            for segment, functions in self._functions.items()
        }


class _FunctionsOn:
    """A segment's functions on one device.

    TensorFlow keeps `tf.device` per thread, and the engine has threads of its own: around the engine it does nothing,
    and the accelerator would be compared with itself.
    """

    def __init__(self, device: str, functions: SegmentFunctions) -> None:
        self._device, self._functions = device, functions

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._functions, name)
        if not callable(value):
            return value

        def on_device(*arguments: Any) -> Any:
            with tf.device(self._device):
                return value(*arguments)

        return on_device


def _cuts(graph: Graph) -> tuple[str, ...]:
    """Return the operations after which a map changes its size."""
    return tuple(
        op.name
        for op in graph.ops[:-1]
        if op.name != IMAGE
        and any(graph.scales[reader] != graph.scales[op.name] for reader in graph.consumers[op.name])
    )
