import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from gigaslide import config
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.geometry import Window
from gigaslide.network import unet
from gigaslide.streaming import devices
from gigaslide.streaming.check_area import CheckArea
from gigaslide.streaming.devices import TOLERANCE, StepOn, check_accelerator, compare, set_threads
from gigaslide.streaming.engine import StepResult
from gigaslide.streaming.whole import WholeImage

NETWORK = config.load(Path(__file__).parents[2] / "params.yaml").network


@pytest.fixture(scope="module")
def step() -> StepResult:
    return devices.step_on(NETWORK, 0, 1.0, 1.0)("CPU:0")


def test_the_step_of_the_check_is_that_of_the_whole_image(step: StepResult) -> None:
    weights = unet.build(NETWORK, 0).get_weights()
    model = unet.build(NETWORK, 0, "float64")
    model.set_weights(weights)
    exact = WholeImage(model, NETWORK.total_stride, 1.0, 1.0).step(CheckArea())
    found = compare("CPU:0", step, exact)
    assert found.loss_difference < TOLERANCE / 100
    assert found.gradient_difference < TOLERANCE / 100


def test_the_area_is_always_the_same_and_has_every_label() -> None:
    whole = Window.of(0, 0, *CheckArea.shape)
    assert np.array_equal(CheckArea().read_image(whole), CheckArea().read_image(whole))
    mask = CheckArea().read_mask(whole)
    share = np.bincount(mask.ravel(), minlength=256) / mask.size
    assert share[0] > 0.3
    assert share[1] > 0.3
    assert share[255] > 0.01
    assert share[[0, 1, 255]].sum() == 1


def test_tiles_of_the_check_lie_inside_and_at_the_edge() -> None:
    engine = devices._StreamedOn("CPU:0", unet.build(NETWORK, 0), 1.0, 1.0)
    tiles = engine.layout(CheckArea.shape).tiles
    assert list(tiles) == ["down1_activation", "core_activation", "skip1", "head"]
    for name in ("down1_activation", "head"):
        assert {tile.touches_edge for tile in tiles[name]} == {False, True}


def double(step: StepResult, change: StepResult) -> StepOn:
    """Return a device double: the CPU is right, the accelerator gives `change`."""
    return lambda device: step if device == devices.CPU else change


def scaled(step: StepResult, weight: int, factor: float) -> StepResult:
    gradients = list(step.gradients)
    gradients[weight] = gradients[weight] * np.float32(factor)
    return step._replace(gradients=gradients)


def test_rounding_passes(step: StepResult) -> None:
    found = check_accelerator(double(step, scaled(step, 3, 1 + 2e-5)), "GPU:0")
    assert found is not None
    assert found.holds
    assert found.device == "GPU:0"
    assert found.loss_difference == 0
    assert found.gradient_difference == pytest.approx(2e-5, rel=0.05)
    assert found.tolerance == TOLERANCE


@pytest.mark.parametrize("factor", [1.01, 0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("weight", [0, 5, -1])
def test_one_wrong_weight_is_refused(step: StepResult, weight: int, factor: float) -> None:
    with pytest.raises(GigaslideError, match=r"GPU:0 is refused.*GIGASLIDE_DEVICE=cpu"):
        check_accelerator(double(step, scaled(step, weight, factor)), "GPU:0")


@pytest.mark.parametrize("loss", [np.nan, np.inf, 0.0])
def test_a_wrong_loss_is_refused(step: StepResult, loss: float) -> None:
    with pytest.raises(GigaslideError, match="refused"):
        check_accelerator(double(step, step._replace(loss=loss)), "GPU:0")


def test_nan_on_both_is_no_agreement(step: StepResult) -> None:
    wrong = scaled(step, 2, np.nan)
    assert not compare("GPU:0", wrong, wrong).holds


def test_a_gradient_out_of_nothing_is_refused(step: StepResult) -> None:
    assert compare("GPU:0", step, scaled(step, 2, 0.0)).gradient_difference == np.inf
    assert compare("GPU:0", scaled(step, 2, 0.0), scaled(step, 2, 0.0)).gradient_difference == 0


def test_an_accelerator_that_fails_is_refused() -> None:
    def failing(device: str) -> StepResult:
        raise tf.errors.UnimplementedError(None, None, "no kernel\nmany lines more")

    with pytest.raises(GigaslideError, match=r"GPU:0 cannot compute the network \(no kernel\): .*GIGASLIDE_DEVICE"):
        check_accelerator(failing, "GPU:0")


def test_without_an_accelerator_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [])

    def never(device: str) -> StepResult:
        raise AssertionError

    assert check_accelerator(never) is None
    assert devices.device_name() == "CPU"


class Configuration:
    """Stands for TensorFlow's, which this process may have begun to use."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
        self.gpus = ["GPU"] * gpus
        self.threads: dict[str, int] = {}
        monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: self.gpus)
        monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: self.gpus.clear())
        for name in ("intra", "inter"):
            monkeypatch.setattr(
                tf.config.threading,
                f"set_{name}_op_parallelism_threads",
                lambda count, name=name: self.threads.update({name: count}),
            )


@pytest.mark.parametrize(
    ("gpus", "variable", "workers", "threads"),
    [(0, "", 4, (1, 4)), (0, "", 1, (0, 1)), (1, "", 4, (0, 0)), (1, "cpu", 4, (1, 4)), (0, "CPU", 2, (1, 2))],
)
def test_threads(
    monkeypatch: pytest.MonkeyPatch, gpus: int, variable: str, workers: int, threads: tuple[int, int]
) -> None:
    monkeypatch.setenv("GIGASLIDE_DEVICE", variable)
    configuration = Configuration(monkeypatch, gpus)
    set_threads(workers)
    assert (configuration.threads["intra"], configuration.threads["inter"]) == threads
    assert bool(configuration.gpus) == (gpus == 1 and not variable)
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def test_an_unknown_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIGASLIDE_DEVICE", "tpu")
    with pytest.raises(UsageError, match="GIGASLIDE_DEVICE is cpu or not set; received 'tpu'"):
        set_threads(1)


# Two devices that are both the CPU: what is not told to go to the second one goes to the first.
FRESH_PROCESS = """
import json, os, sys
import tensorflow as tf
from gigaslide import config
from gigaslide.errors import GigaslideError
from gigaslide.streaming import devices

threads = []
for workers in (4, 1, 2):
    devices.set_threads(workers)
    threading = tf.config.threading
    threads.append([threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads()])
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.debugging.set_log_device_placement(True)
step_on = devices.step_on(config.load().network, 0, 1.0, 1.0)
sys.stderr.write("the step begins\\n")
step_on("CPU:1")
devices.set_threads(2)
try:
    devices.set_threads(3)
except GigaslideError as error:
    print(json.dumps({"threads": threads, "error": str(error)}))
"""


@pytest.mark.slow  # another process imports TensorFlow
def test_in_a_process_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "GIGASLIDE_DEVICE": "cpu", "TF_CPP_MIN_LOG_LEVEL": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["threads"] == [[1, 4], [0, 1], [1, 2]]
    assert "start a new process" in found["error"]
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "device:CPU:" in line]
    convolutions = [line for line in lines if "Conv2D" in line]
    steps = [line for line in lines if "__inference" in line]
    assert convolutions
    assert steps
    assert all("device:CPU:1" in line for line in convolutions + steps)
