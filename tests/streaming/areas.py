"""Small areas held in arrays, for tests of everything that sees a slide only as an area."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gigaslide.geometry import Window
from gigaslide.slides.density import density_table


@dataclass(frozen=True)
class ArrayArea:
    image: NDArray[np.uint8]
    mask: NDArray[np.uint8]
    name: str = "array"
    glass_rgb: tuple[int, int, int] = (243, 242, 240)

    @property
    def shape(self) -> tuple[int, int]:
        return self.mask.shape[0], self.mask.shape[1]

    @property
    def density_table(self) -> NDArray[np.float64]:
        return density_table(self.glass_rgb)

    def read_image(self, window: Window) -> NDArray[np.uint8]:
        return self.image[window.slices]

    def read_mask(self, window: Window) -> NDArray[np.uint8]:
        return self.mask[window.slices]


def random_area(seed: int, height: int, width: int, invalid: bool = True) -> ArrayArea:
    random = np.random.default_rng(seed)
    labels = np.array([0, 1, 255] if invalid else [0, 1], np.uint8)
    return ArrayArea(
        random.integers(0, 256, (height, width, 3), dtype=np.uint8), random.choice(labels, (height, width))
    )


def easy_area(seed: int, height: int, width: int) -> ArrayArea:
    """Purple discs on white: something a network can learn in a few steps."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    mask = np.zeros((height, width), np.uint8)
    for _ in range(4):
        centre = random.uniform(0, 1, 2) * (height, width)
        mask |= (np.hypot(y - centre[0], x - centre[1]) < random.uniform(0.15, 0.3) * min(height, width)).astype(
            np.uint8
        )
    image = np.where(mask[..., np.newaxis] == 1, (150, 80, 160), 243) + random.normal(0, 6, (height, width, 3))
    return ArrayArea(np.clip(image, 0, 255).astype(np.uint8), mask, f"discs{seed}")
