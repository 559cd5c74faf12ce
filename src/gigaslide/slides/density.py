"""The optical density of a pixel: how much stain, or ink, or dirt, the light went through.

Per channel `d = log((glass + 1) / (rgb + 1))`, the sum of the densities of all that lies on the glass (Beer and
Lambert; Ruifrok and Johnston 2001). It is a function of one grey value, so it is a table of 256 entries per channel,
and a change of stain or light is another table that costs nothing.
"""

import numpy as np

from gigaslide.slides.arrays import Bytes, Doubles


def density_table(glass_rgb: tuple[int, int, int], tone: Bytes | None = None) -> Doubles:
    """Return the optical density of every grey value over `glass_rgb`, (3, 256) float64; 0 for glass itself.

    Args:
        glass_rgb: the colour of the slide's empty glass.
        tone: (3, 256) uint8, a change of grey values that glass and pixels go through first; None: no change.
    """
    tone = np.tile(np.arange(256, dtype=np.uint8), (3, 1)) if tone is None else tone
    transmitted = tone.astype(np.float64) + 1
    return np.log(transmitted[np.arange(3), list(glass_rgb)][:, np.newaxis] / transmitted)
