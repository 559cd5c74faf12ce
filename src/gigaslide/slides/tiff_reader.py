"""TIFFs that OpenSlide does not open, or not rightly, through tifffile: `TiffSource`.

OpenSlide refuses TIFFs without tiles and some compressions. Of tiled TIFFs it takes for generic ones it reads
wrongly, without a word: channels in separate pages (only the first, as grey), alpha, the range of 16-bit samples, and
it sees neither sub-IFDs nor an image larger than the first tiled one; uncompressed grey it opens and cannot read.
`openslide_suffices` tells these apart.

Known shortfalls: the Orientation tag is not applied (nor is it by OpenSlide); strips wider than the window are decoded
once for every window beside each other, unless the cache (tiff_pages.py) holds all strips of its height.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import tifffile

from gigaslide.errors import SlideError
from gigaslide.geometry import Window
from gigaslide.slides.arrays import Bytes, Flags
from gigaslide.slides.diagnosis import cut_short
from gigaslide.slides.samples import RGB, YCBCR
from gigaslide.slides.source import WHITE, About, Level
from gigaslide.slides.tiff_pages import SegmentCache, TiffLevel
from gigaslide.slides.tiff_series import SlideImage, WrongPageError, find_slide, wrong_page


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong into a SlideError: a damaged file makes tifffile fail in any way."""
    tifffile.logger().setLevel(logging.CRITICAL)  # what it says of a damaged file, tag by tag, is in our sentence
    try:
        yield
    except WrongPageError as error:
        raise WrongPageError(f"{path} is not taken as a slide: {error}") from None
    except SlideError as error:
        raise SlideError(f"{path} cannot be opened as a slide: {cut_short(path) or error}") from None
    except Exception as error:
        reason = cut_short(path) or f"it is a broken TIFF ({error or type(error).__name__}); copy the slide again"
        raise SlideError(f"{path} cannot be opened as a slide: {reason}") from None


def _opened(path: Path, closing: ExitStack) -> tuple[Any, SlideImage]:
    """Open a file and find the slide in it."""
    # One file: OME-XML may name others, anywhere.
    tiff = closing.enter_context(tifffile.TiffFile(path, _multifile=False))
    return tiff, find_slide(tiff)


def openslide_suffices(path: Path, level0_shape: tuple[int, int], levels: int) -> bool:
    """Tell whether what OpenSlide sees in a generic TIFF is the slide and all of its levels.

    Raises:
        SlideError: the slide is not in the file; OpenSlide would show something else.
    """
    with _in_words(path), ExitStack() as closing:
        try:
            _, slide = _opened(path, closing)
        except SlideError:
            raise
        except Exception:  # tifffile makes nothing of it: OpenSlide may
            return True
        page = slide.page
        return bool(
            page.is_tiled
            and page.bitspersample == 8
            and page.planarconfig == 1
            and page.photometric in (RGB, YCBCR)
            and len(slide.levels[0]) == 1
            and page.samplesperpixel == slide.samples.channels
            and (page.imagelength, page.imagewidth) == level0_shape
            and len(slide.levels) <= levels
        )


def refuse_other_picture(path: Path) -> None:
    """Refuse a TIFF of a scanner whose first page says that it is something else than the slide.

    Raises:
        WrongPageError: it does.
    """
    with _in_words(path), tifffile.TiffFile(path) as tiff:
        page = tiff.pages.first
        reason = wrong_page(page, "", [page], list(tiff.pages))
        if reason is not None:
            raise WrongPageError(reason)


class TiffSource:
    """A slide in a TIFF that is read through tifffile."""

    def __init__(self, path: Path) -> None:
        """Open a TIFF.

        Raises:
            SlideError: it is damaged, or holds no slide.
        """
        with _in_words(path), ExitStack() as closing:
            self._tiff, slide = _opened(path, closing)
            self._samples = slide.samples
            cache = SegmentCache()
            levels = [TiffLevel(pages, number, cache) for number, pages in enumerate(slide.levels)]
            trouble = levels[0].trouble
            if trouble is not None:
                raise SlideError(f"{trouble}; convert it to a tiled TIFF")
            self._levels = [level for level in levels if level.trouble is None]
            closing.pop_all()  # it stays open
        self.about = About(
            f"tifffile {tifffile.__version__}",
            tuple(Level(level.shape, level.step) for level in self._levels),
            stated=slide.stated,
            warnings=slide.warnings,
        )

    def read(self, number: int, window: Window) -> tuple[Bytes, Flags]:
        """Read a window inside a level, see `Source`."""
        stored, held = self._levels[number].read(window)
        rgb, valid = self._samples.to_rgb(stored)
        if not held.all():
            rgb[~held] = WHITE
        return rgb, valid & held

    def close(self) -> None:
        """Close the file."""
        self._tiff.close()
