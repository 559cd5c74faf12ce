"""A small slide with a prediction and a truth, opened as the viewer opens them."""

import json
from pathlib import Path

import numpy as np
import tifffile

from gigaslide.viewer.command import Options, open_session
from gigaslide.viewer.session import Session
from tests.slides.files import write_slide

SHAPE = (300, 420)
MPP = 0.5  # of `write_slide`


def disc(top: float, left: float, radius: float, shape: tuple[int, int] = SHAPE) -> np.ndarray:
    y, x = np.ogrid[: shape[0], : shape[1]]
    return (y + 0.5 - top) ** 2 + (x + 0.5 - left) ** 2 < radius**2


def masks(shape: tuple[int, int] = SHAPE) -> tuple[np.ndarray, np.ndarray]:
    """Prediction and truth: they share a disc; each has a piece that the other lacks; a corner is invalid."""
    prediction = (disc(140, 160, 90, shape) | disc(60, 300, 30, shape)).astype(np.uint8)
    truth = (disc(140, 160, 90, shape) | disc(230, 330, 40, shape)).astype(np.uint8)
    truth[:40, :50] = 255
    return prediction, truth


def write_mask(path: Path, values: np.ndarray) -> Path:
    tifffile.imwrite(path, values, tile=(64, 64), compression="zlib")
    return path


def write_files(folder: Path, shape: tuple[int, int] = SHAPE) -> Options:
    """Write slide.tiff, mask/slide.tif and truth/slide.tif."""
    for name in ("mask", "truth"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    prediction, truth = masks(shape)
    rgb = np.full((*shape, 3), 243, np.uint8)
    rgb[truth == 1] = (214, 140, 182)
    return Options(
        write_slide(folder / "slide.tiff", rgb),
        write_mask(folder / "mask/slide.tif", prediction),
        write_mask(folder / "truth/slide.tif", truth),
        browser=False,
    )


def opened(options: Options) -> Session:
    """Open a session whose masks are read."""
    session = open_session(options)
    session.start()
    session.sampled.wait()
    for thread in session._threads:
        thread.join()
    return session


def features(path: Path) -> list[dict]:
    return json.loads(path.read_text())["features"]
