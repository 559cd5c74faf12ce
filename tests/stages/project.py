"""A project in a folder of its own with small prepared slides, for tests that run whole stages."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from gigaslide import files
from gigaslide.geometry import Window
from gigaslide.slides.store import SCHEMA_VERSION, StoreWriter
from tests import warm
from tests.streaming.areas import ArrayArea, easy_area

PARAMS = Path(__file__).parents[2] / "params.yaml"
SPLITS = {"train": 3, "validation": 2, "test": 2}


def make_project(folder: Path, **changes: dict[str, Any]) -> Path:
    """Write params.yaml (with `changes` by block) and stores of discs on glass."""
    values = yaml.safe_load(PARAMS.read_text())
    values["network"].update(kernel_size=5, stride=2)
    values["train"].update(epochs=3, warmup_steps=2, patience_epochs=100)
    values["evaluate"].update(bootstrap_samples=100)
    for block, change in changes.items():
        values[block].update(change)
    (folder / "params.yaml").write_text(yaml.safe_dump(values))
    stores = folder / "data" / "stores"
    files.remove(stores)
    index = []
    for split, count in SPLITS.items():
        for number in range(count):
            name = f"{split}{number}"
            write_store(stores / f"{name}.zarr", easy_area(100 * len(split) + number, 96, 128), name)
            index.append({"name": name, "split": split, "store": f"{name}.zarr"})
    (stores / "index.json").write_text(json.dumps({"slides": index}))
    return folder


def write_store(path: Path, area: ArrayArea, name: str, mpp_um_per_px: float = 0.5) -> None:
    writer = StoreWriter(path, area.shape, 1024, with_regions=False)
    writer.write(Window.of(0, 0, *area.shape), image=area.image, mask=area.mask)
    attributes = {"schema_version": SCHEMA_VERSION, "name": name, "shape_px": list(area.shape), "region_names": []}
    writer.finish(
        {
            **attributes,
            "mpp_um_per_px": [mpp_um_per_px] * 2,
            "mpp_source": "openslide",
            "glass_rgb": list(area.glass_rgb),
        }
    )


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-u", "-m", "gigaslide", *arguments]


def warm_gigaslide(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that works with TensorFlow or MLflow, as `gigaslide` does, and sooner (tests/warm.py)."""
    if not warm.IS_POSSIBLE:
        return gigaslide(folder, *arguments)
    return warm.waiting().run(folder, arguments, {**os.environ, "COLUMNS": "120"}, 600)


def gigaslide(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
