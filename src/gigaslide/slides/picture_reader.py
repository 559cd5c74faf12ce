"""Plain PNG and JPEG pictures as slides, through Pillow, which decodes them only whole.

A picture of more than 268 million pixels is refused: 1 GiB at 4 bytes a pixel, for each slide that is
prepared at the same time. 16-bit grey is scaled as in samples.py; of 16-bit colour Pillow keeps the upper 8 bits.
"""

import warnings
from pathlib import Path

import numpy as np
import PIL
from PIL import Image

from gigaslide.errors import SlideError
from gigaslide.geometry import Window
from gigaslide.slides.arrays import Bytes, Flags, all_true
from gigaslide.slides.resolution import Resolution, stated_resolution
from gigaslide.slides.samples import scale_table
from gigaslide.slides.source import WHITE, About, Level, composite

SUFFIXES = (".png", ".jpg", ".jpeg")
LIMIT_PX = (1 << 30) // 4
_UM_PER_INCH = 25400.0
_RGB_MODES = ("RGB", "1", "L")
_ALPHA_MODES = ("RGBA", "LA", "PA", "La", "RGBa")


def _decode(image: Image.Image, path: Path) -> tuple[Bytes, Flags]:
    if image.mode in ("I", "I;16", "I;16B", "I;16L"):
        grey = scale_table(16)[np.asarray(image).astype(np.uint16)]
        return np.repeat(grey[..., None], 3, axis=2), all_true(grey.shape)
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        rgba = np.asarray(image.convert("RGBA"))
        return composite(rgba[..., :3], rgba[..., 3], WHITE)
    if image.mode not in (*_RGB_MODES, "P"):
        raise SlideError(
            f"the picture {path} should be grey or RGB; its colours are stored as {image.mode}: save it as RGB"
        )
    rgb = np.asarray(image.convert("RGB"))
    return rgb, all_true(rgb.shape[:2])


def _stated(image: Image.Image) -> tuple[Resolution, ...]:
    dpi = image.info.get("dpi")
    try:
        x, y = (_UM_PER_INCH / float(value) for value in dpi or ())
    except (TypeError, ValueError, ZeroDivisionError):
        return ()
    return stated_resolution(y, x, "picture")


class PictureSource:
    """A PNG or JPEG, decoded whole when it is first read."""

    def __init__(self, path: Path) -> None:
        """Open the picture and look at its size.

        Raises:
            SlideError: it is damaged, or too large to be decoded whole.
        """
        self._path = path
        self._pixels: tuple[Bytes, Flags] | None = None
        with self._opened() as image:
            width, height = image.size
            stated = _stated(image)
        if width * height > LIMIT_PX:
            raise SlideError(
                f"the picture {path} has {height} x {width} px, and a {image.format} can only be decoded whole: at "
                f"most {LIMIT_PX} px are; convert it to a tiled TIFF"
            )
        shape = (height, width)
        self.about = About(f"pillow {PIL.__version__}", (Level(shape, shape),), stated=stated)

    def _opened(self) -> Image.Image:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit here is another
                limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
                try:
                    return Image.open(self._path, formats=("PNG", "JPEG"))
                finally:
                    Image.MAX_IMAGE_PIXELS = limit
        except (OSError, ValueError, SyntaxError) as error:
            raise SlideError(
                f"the picture {self._path} cannot be opened: {error}; copy or save it again as PNG or JPEG"
            ) from None

    def read(self, number: int, window: Window) -> tuple[Bytes, Flags]:
        """Read a window, see `Source`; a picture that cannot be decoded is lost whole."""
        if self._pixels is None:
            with self._opened() as image:
                try:
                    self._pixels = _decode(image, self._path)
                except (OSError, ValueError, SyntaxError) as error:
                    raise SlideError(
                        f"the picture {self._path} cannot be decoded: {error}; copy or save it again"
                    ) from None
        rgb, valid = self._pixels
        return rgb[window.slices], valid[window.slices]

    def close(self) -> None:
        """Let go of the pixels."""
        self._pixels = None
