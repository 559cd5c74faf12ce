"""A slide file as the engine sees it: `SlideArea`, read window by window, never prepared."""

from dataclasses import dataclass
from functools import cached_property

from gigaslide.geometry import Window
from gigaslide.slides.arrays import Bytes, Doubles
from gigaslide.slides.density import density_table
from gigaslide.slides.reader import SlideReader


@dataclass(frozen=True, eq=False)
class SlideArea:
    """The whole of a slide on its reader's grid, over glass of the colour `glass_rgb`; it has no labels."""

    reader: SlideReader
    glass_rgb: tuple[int, int, int]

    @property
    def name(self) -> str:
        """The file, for messages."""
        return str(self.reader.path)

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) in pixels of the grid."""
        return self.reader.shape

    @cached_property
    def density_table(self) -> Doubles:
        """The optical density of every grey value over the slide's glass, (3, 256) float64."""
        return density_table(self.glass_rgb)

    def read_image(self, window: Window) -> Bytes:
        """Return the pixels of a window inside the slide: uint8 (y, x, 3)."""
        return self.reader.read(window)[0]

    def read_mask(self, window: Window) -> Bytes:
        """There are no labels: a slide is predicted, not learned from."""
        raise NotImplementedError(f"{self.name} is predicted and has no labels; received a request for {window}")
