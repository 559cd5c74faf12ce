"""Stands in for a training: does what FAKE_TRIALS says for its kernel size and stride, and notes it in FAKE_LOG.

FAKE_TRIALS is JSON, or a file of it. As a training it goes on after its last epoch. After the first one it waits until
so many have begun as `others` says.
"""

import json
import os
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

import yaml


def note(word):
    # One short write in append mode is whole, whoever else writes.
    with Path(os.environ["FAKE_LOG"]).open("a") as log:
        log.write(f"{word} {name} {time.time()} {os.getpid()}\n")


def end_with_parent():
    os.read(0, 1)
    os._exit(1)


threading.Thread(target=end_with_parent, daemon=True).start()
settings = yaml.safe_load(Path("params.yaml").read_text())
name = f"k{settings['network']['kernel_size']}-s{settings['network']['stride']}"
trials = os.environ["FAKE_TRIALS"]
trials = json.loads(trials if trials.startswith("{") else Path(trials).read_text())
what = {"dice": 0.9, "step_time_s": 1.0, "epoch_s": 0.0} | trials.get(name, {})
note("start")
if what.get("dies") == "signal":
    os.kill(os.getpid(), signal.SIGKILL)
if what.get("dies") == "error":
    raise ValueError("the loss is purple")
if what.get("dies") == "memory" and settings["memory"]["budget_gb"] < what.get("above_gb", float("inf")):
    Path("error.json").write_text(json.dumps({"message": "9.00 GB of a budget of 1.00 GB"}))
    sys.exit(3)
checkpoint = Path("checkpoint.json")
curve = json.loads(checkpoint.read_text()) if checkpoint.exists() else []
for epoch in range(len(curve), settings["train"]["epochs"]):
    time.sleep(what["epoch_s"])
    curve.append(what["dice"] * (epoch + 1) / settings["train"]["epochs"])
    for file, content in ((checkpoint, curve), ("progress.json", {"curve": curve, "step_time_s": what["step_time_s"]})):
        Path("partial.json").write_text(json.dumps(content))
        Path("partial.json").replace(file)
    note(f"epoch{epoch}")
    while epoch == 0 and Path(os.environ["FAKE_LOG"]).read_text().count("start ") < what.get("others", 0):
        time.sleep(0.02)
summary = {
    "validation_dice": max(curve),
    "validation_dice_se": statistics.pstdev(curve) / 10,
    "step_time_s": what["step_time_s"],
    "peak_memory_gb": what.get("peak_memory_gb", 0.8),
}
Path("results/train").mkdir(parents=True, exist_ok=True)
Path("results/train/summary.json").write_text(json.dumps(summary))
checkpoint.unlink(missing_ok=True)
note("end")
