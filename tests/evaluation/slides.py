"""Slides in memory with the prepared store's interface, and engines that predict from their masks."""

from dataclasses import dataclass

import numpy as np

from gigaslide.geometry import Window, grid
from gigaslide.slides.density import density_table


@dataclass(frozen=True)
class MemorySlide:
    name: str
    image: np.ndarray
    mask: np.ndarray
    mpp_um_per_px: float | None = 0.5
    regions: np.ndarray | None = None
    region_names: tuple[str, ...] = ()
    glass_rgb: tuple[int, int, int] = (243, 242, 240)

    @property
    def density_table(self):
        return density_table(self.glass_rgb)

    @property
    def shape(self):
        return self.mask.shape

    def read_image(self, window):
        return self.image[window.slices]

    def read_mask(self, window):
        return self.mask[window.slices]

    def read_regions(self, window):
        return None if self.regions is None else self.regions[window.slices]


def blobs(name="blobs", shape=(600, 900), seed=0, mpp_um_per_px=0.5, regions=True):
    """Pink discs on pale glass, an invalid corner, and two artefacts."""
    random = np.random.default_rng(seed)
    y, x = np.ogrid[: shape[0], : shape[1]]
    mask = np.zeros(shape, np.uint8)
    for _ in range(5):
        top, left = random.integers(0, shape[0]), random.integers(0, shape[1])
        mask[(y - top) ** 2 + (x - left) ** 2 < random.integers(60, 160) ** 2] = 1
    image = np.where(mask[..., None] == 1, np.array([214, 140, 182]), np.array([243, 243, 241]))
    image = np.clip(image + random.integers(-8, 9, image.shape), 0, 255).astype(np.uint8)
    mask[:40, :50] = 255
    labels = np.zeros(shape, np.uint8)
    labels[100:200, 100:400] = 1
    labels[300:320] = 2
    image[300:320] = [40, 60, 40]
    return MemorySlide(
        name,
        image,
        mask,
        mpp_um_per_px,
        labels if regions else None,
        ("fold", "pen_black") if regions else (),
    )


class MaskEngine:
    """Predicts the mask shifted down; `value` for tissue, 1 - `value` for glass, in bands of rows."""

    def __init__(self, shift_px=0, value=0.9, rows=256):
        self.shift_px, self.value, self.rows = shift_px, value, rows

    def predict(self, area):
        whole = Window.of(0, 0, *area.shape)
        tissue = np.roll(area.read_mask(whole) == 1, self.shift_px, axis=0)
        for window in grid(area.shape, (self.rows, area.shape[1])):
            yield window, np.where(tissue[window.slices], self.value, 1 - self.value).astype(np.float32)


class RunDouble:
    """Remembers what was logged."""

    def __init__(self):
        self.metrics, self.artifacts = {}, []

    def log_metrics(self, metrics, step=0):
        self.metrics |= metrics

    def log_artifact(self, path, folder=""):
        self.artifacts.append((path.name, folder))
