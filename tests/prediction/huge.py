"""A slide of any size that there is no file of: unscanned, but for one block of glass with a disc of tissue on it.

`python -m tests.prediction.huge 100000` predicts one of that side, and says time, memory and area.
"""

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gigaslide.geometry import Window
from gigaslide.slides.reader import SlideReader
from gigaslide.slides.resolution import Resolution
from gigaslide.slides.source import Level

GLASS, TISSUE = (244, 243, 242), (200, 110, 160)
BLOCK_PX, RADIUS_PX = 3000, 700


@dataclass(frozen=True)
class HugeSlide(SlideReader):
    """`block` is the corner (y, x) of what was scanned. Arrays of one value take no memory."""

    block: tuple[int, int] = (0, 0)

    def read(self, window):
        scanned = Window.of(*self.block, BLOCK_PX, BLOCK_PX)
        part = window.clip(scanned)
        if self.shape != self.level0_shape or not (part.y.size and part.x.size):
            return np.broadcast_to(np.uint8(255), (*window.shape, 3)), np.broadcast_to(np.False_, window.shape)
        rgb, valid = np.full((*window.shape, 3), 255, np.uint8), np.zeros(window.shape, bool)
        here = part.shift(-window.y.start, -window.x.start).slices
        y, x = np.ogrid[part.y.slice, part.x.slice]
        middle = [corner + BLOCK_PX // 2 for corner in self.block]
        inside = (y - middle[0]) ** 2 + (x - middle[1]) ** 2 < RADIUS_PX**2
        rgb[here], valid[here] = np.where(inside[..., None], TISSUE, GLASS), True
        return rgb, valid


def huge_slide(path, shape, block):
    levels, resolution = (Level(shape, (256, 256)),), Resolution((0.5, 0.5), "table")
    return HugeSlide(path, shape, levels, resolution, (255, 255, 255), "double", block=block)


def predict_huge(shape, folder, budget_gb):
    """Predict it with the network of the package; return the summary."""
    from gigaslide import quiet

    quiet.import_tensorflow()
    from gigaslide.network import model_file
    from gigaslide.prediction.request import Request
    from gigaslide.prediction.slide import Network, predict_slide

    network = Network(model_file.load(model_file.DEFAULT), model_file.read_about(model_file.DEFAULT), "default", "0")
    block = shape[0] * 4 // 10, shape[1] * 7 // 10
    slide = huge_slide(Path("nowhere/huge.svs"), shape, block)
    return predict_slide(slide, network, Request(), folder, 2, budget_gb * 1e9, lambda done: None)


if __name__ == "__main__":
    side = int(sys.argv[1])
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        told = predict_huge((side, side), Path(scratch), 2 * 2**30 / 1e9)
    kept = ("shape_px", "tissue_mm2", "plan", "predicted_peak_gb", "peak_memory_gb", "time_s")
    sys.stdout.write(json.dumps({key: told[key] for key in kept}) + f" {time.perf_counter() - started:.1f} s in all\n")
