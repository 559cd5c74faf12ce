"""What computes, and whether it computes right; asked of TensorFlow in another process (probe.py)."""

import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gigaslide.config import Settings
from gigaslide.doctor.finding import Check, Found
from gigaslide.errors import GigaslideError, UsageError

Ask = Callable[[], dict[str, Any]]

# The network and loss that params.yaml comes with, for where there is none.
DEFAULT_NETWORK = {
    "kernel_size": 11,
    "stride": 4,
    "depth": 2,
    "filters": [3, 2],
    "head_filters": 2,
    "activation": "leaky_relu",
    "negative_slope": 0.1,
}
_DEFAULT_TRAIN = {"seed": 0, "dice_weight": 1.0, "cross_entropy_weight": 1.0}
# A GPU that is new to its driver may compile for minutes at first use.
_TIMEOUT_S = 600
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
_NOT_KNOWN = Found("warning", "not known, because TensorFlow does not start", "see the line TensorFlow starts")


def checks(ask: Ask) -> list[Check]:
    """Return the checks of what TensorFlow said; `ask` returns its answer, or raises, each time the same."""
    return [
        Check("TensorFlow starts", lambda: _starts(ask)),
        Check("device", lambda: _device(ask)),
        Check("GPU agrees with CPU", lambda: _agreement(ask)),
        Check("oneDNN", lambda: _onednn(ask)),
    ]


def ask_tensorflow(settings: Settings | None) -> dict[str, Any]:
    """Return what `probe.answer` returns, for the network of `settings`.

    Raises:
        GigaslideError: TensorFlow does not start, cannot compute the network, or the process died.
    """
    train = settings.train.model_dump() if settings else _DEFAULT_TRAIN
    asked = {key: train[key] for key in _DEFAULT_TRAIN}
    asked["network"] = settings.network.model_dump() if settings else DEFAULT_NETWORK
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gigaslide.doctor.probe"],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise GigaslideError(f"no answer from TensorFlow within {_TIMEOUT_S} s") from None
    if done.returncode < 0:
        raise GigaslideError(f"the process that used TensorFlow was ended by {signal.Signals(-done.returncode).name}")
    if done.returncode or not done.stdout.strip():
        raise GigaslideError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if "error" in found:
        raise UsageError(found["error"]) if found["says_what_to_do"] else GigaslideError(found["error"])
    return found


def _starts(ask: Ask) -> Found:
    try:
        ask()
    except UsageError as error:
        return Found("fails", str(error))
    except GigaslideError as error:
        return Found(
            "fails",
            str(error),
            "try `GIGASLIDE_DEVICE=cpu gigaslide doctor`: if that works, it is the GPU's driver; if not, `make setup`",
        )
    return Found("ok", "and computes a training step of the network on the CPU")


def _device(ask: Ask) -> Found:
    try:
        device = ask()["device"]
    except GigaslideError:
        return _NOT_KNOWN
    if device != "CPU":
        return Found("ok", device)
    if os.environ.get("GIGASLIDE_DEVICE"):
        return Found("ok", "CPU, as GIGASLIDE_DEVICE says")
    if _NVIDIA_DRIVER.exists() and "CUDA_VISIBLE_DEVICES" not in os.environ:
        return Found(
            "warning",
            "CPU, although there is an NVIDIA driver: TensorFlow does not find the CUDA libraries",
            "for the GPU: `.venv/bin/pip install 'tensorflow[and-cuda]==2.19.*'`",
        )
    if sys.platform == "darwin" and platform.machine() == "arm64" and not _is_installed("tensorflow-metal"):
        return Found("warning", "CPU: tensorflow-metal is not installed", "for the GPU: `make setup`")
    return Found("ok", "CPU")


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _agreement(ask: Ask) -> Found:
    try:
        found = ask()
    except GigaslideError:
        return _NOT_KNOWN
    if found["refusal"]:
        return Found("fails", found["refusal"], found["advice"])
    if found["agreement"] is None:
        return Found("ok", "nothing to compare: the CPU computes")
    return Found(
        "ok",
        "the gradient of a test tile differs by {gradient_difference:.1e} of its size, the loss by "
        "{loss_difference:.1e}; allowed is {tolerance:.1e}".format(**found["agreement"]),
    )


def _onednn(ask: Ask) -> Found:
    try:
        is_on = ask()["onednn"]
    except GigaslideError:
        return _NOT_KNOWN
    if is_on:
        return Found("ok", "on: the CPU's filter gradients need no copy of every kernel window")
    if platform.machine() in ("x86_64", "AMD64"):
        return Found(
            "warning",
            "off: on the CPU, gradients of large kernels take several times the memory and the time",
            "remove TF_ENABLE_ONEDNN_OPTS from the environment",
        )
    return Found("ok", f"off, as always on {platform.machine()}: gradients of large kernels take more memory")
