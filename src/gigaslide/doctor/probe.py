"""What TensorFlow says of this machine: run as `python -m gigaslide.doctor.probe`, by compute.py.

A process of its own: a library that does not fit the processor, or a driver, may end the process that asks.
Reads the network's settings as JSON from standard input; the last line that it writes is the answer as JSON.
"""

import dataclasses
import json
import os
import sys
from typing import Any

from gigaslide import quiet
from gigaslide.config import Network
from gigaslide.errors import GigaslideError


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Return device, oneDNN and the comparison of the accelerator with the CPU."""
    # A training may be using the GPU: take no more of its memory than is needed.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    quiet.import_tensorflow()
    from gigaslide.streaming import devices

    devices.set_threads(1)
    found: dict[str, Any] = {"device": devices.device_name(), "onednn": _onednn(), "agreement": None, "refusal": ""}
    network = Network.model_validate(asked["network"])
    step_on = devices.step_on(network, asked["seed"], asked["dice_weight"], asked["cross_entropy_weight"])
    step_on(devices.CPU)
    try:
        agreement = devices.check_accelerator(step_on)
    except GigaslideError as error:
        found["refusal"] = str(error).removesuffix(f": {devices.ADVICE}")
        found["advice"] = devices.ADVICE
    else:
        found["agreement"] = agreement and dataclasses.asdict(agreement)
    return found


def _onednn() -> bool:
    # The function that TensorFlow's own tests ask; it knows the build, the processor and TF_ENABLE_ONEDNN_OPTS.
    from tensorflow.python.util import _pywrap_util_port

    return bool(_pywrap_util_port.IsMklEnabled())


def main() -> None:
    """Answer one question."""
    try:
        found = answer(json.load(sys.stdin))
    except Exception as error:
        is_known = isinstance(error, GigaslideError)
        found = {
            "error": str(error) if is_known else f"{type(error).__name__}: {error}",
            "says_what_to_do": is_known,
        }
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
