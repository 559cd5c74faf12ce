"""Which image of a TIFF is the slide, and which are its reduced levels.

The slide is the largest image that is RGB; without one, the largest that is grey. Its reduced levels are its
sub-IFDs, and later pages of the same kind and shape that are marked as reduced.

Refused, for a label or a thumbnail must not be taken for the slide: an image marked as reduced or as a mask
(NewSubfileType), or named label, macro or thumbnail (as by Aperio, Philips and Bio-Formats), and one beside
which lies a much larger image that is no level of it.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from gigaslide.errors import SlideError
from gigaslide.slides.resolution import Resolution, page_resolution, stated_resolution
from gigaslide.slides.samples import PALETTE, Samples, samples_of

_MUCH_LARGER = 4.0  # times its pixels
_ASPECT_TOLERANCE = 0.01
_MOST_PAGES = 10_000
_REDUCED, _MASK = 1, 4  # bits of NewSubfileType
_OTHER_PICTURES = re.compile(
    r"\AAperio[^\r\n]*[\r\n]+\s*(label|macro)\b"  # its third kind, the thumbnail, says how it was shrunk
    r"|\AAperio[^\r\n]*[\r\n]+[^|;\r\n]*->\s*\d+x\d+\s+-\s"
    r"|\A\W*(label|macro|thumbnail|overview)([ _-]?(image|picture))?\W*\Z",
    re.IGNORECASE,
)
_UM = {"nm": 1e-3, "µm": 1.0, "μm": 1.0, "um": 1.0, "mm": 1e3, "cm": 1e4, "m": 1e6}


class WrongPageError(SlideError):
    """The image that would be taken for the slide is something else; the message is the reason."""


@dataclass(frozen=True, eq=False)
class SlideImage:
    """The slide in a TIFF: the pages of each level (several when each holds one channel), and their samples."""

    levels: tuple[tuple[Any, ...], ...]
    samples: Samples
    stated: tuple[Resolution, ...]
    warnings: tuple[str, ...]

    @property
    def page(self) -> Any:
        """The key frame of full resolution."""
        return self.levels[0][0].keyframe


def other_picture(description: str) -> str | None:
    """Return what a page is instead of the slide, by its description or name; None if that does not tell."""
    match = _OTHER_PICTURES.search(description)
    if match is None:
        return None
    return next((word.lower() for word in match.groups() if word and word.isalpha()), "thumbnail")


def _pixels(page: Any) -> int:
    return int(page.keyframe.imagelength) * int(page.keyframe.imagewidth)


def _size(page: Any) -> str:
    return f"{page.keyframe.imagelength} x {page.keyframe.imagewidth} px"


def _pages(series: Any) -> tuple[Any, ...] | str:
    """Return the pages of a series that are one image: one, or one for each channel; or why it is none."""
    axes = "".join(axis for axis, size in zip(series.axes, series.shape, strict=True) if size > 1 or axis in "YX")
    if axes in ("YX", "YXS", "SYX"):
        pages = tuple(series.pages[:1])
    elif axes == "CYX":
        pages = tuple(series.pages)
    else:
        sizes = " x ".join(map(str, series.shape))
        return f"it is {sizes} along {series.axes}, expected one image of rows, columns and channels"
    if not pages or any(page is None for page in pages):
        return "some of its pages are missing"
    return pages


def _ome(tiff: Any, series: Any, page: Any) -> tuple[tuple[Resolution, ...], int | None]:
    """Return the pixel size and SignificantBits that OME-XML has for a series."""
    if not tiff.is_ome:
        return (), None
    try:
        images = [node for node in ElementTree.fromstring(tiff.ome_metadata).iter() if node.tag.endswith("}Image")]
    except (ElementTree.ParseError, TypeError, ValueError):
        return (), None
    fitting = [
        (image.get("Name") != series.name, pixels)
        for image in images
        for pixels in image
        if pixels.tag.endswith("}Pixels")
        and (pixels.get("SizeY"), pixels.get("SizeX")) == (str(page.imagelength), str(page.imagewidth))
    ]
    if not fitting:
        return (), None
    pixels = min(fitting, key=lambda item: item[0])[1]
    bits = pixels.get("SignificantBits", "")
    try:
        y, x = (
            float(pixels.get(f"PhysicalSize{axis}", "")) * _UM[pixels.get(f"PhysicalSize{axis}Unit", "µm")]
            for axis in "YX"
        )
    except (ValueError, KeyError):
        y, x = math.nan, math.nan
    return stated_resolution(y, x, "ome"), int(bits) if bits.isascii() and bits.isdigit() else None


def _is_level(page: Any, full: Any) -> bool:
    """Tell whether a page has what it takes to be a reduced level of `full`."""
    same = all(
        getattr(page, name) == getattr(full, name) for name in ("dtype", "samplesperpixel", "bitspersample")
    ) and (page.photometric == PALETTE) == (full.photometric == PALETTE)
    y, x = page.imagelength / full.imagelength, page.imagewidth / full.imagewidth
    slack = _ASPECT_TOLERANCE + 1 / max(1, min(page.imagelength, page.imagewidth))
    return bool(same and max(y, x) < 1 and abs(y / x - 1) <= slack)


def _levels(tiff: Any, series: Any, pages: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the pages of each level, full resolution first."""
    full, levels = pages[0].keyframe, [pages]
    for level in series.levels[1:]:
        found = _pages(level)
        if not isinstance(found, str) and len(found) == len(pages) and _is_level(found[0].keyframe, full):
            levels.append(found)
    if len(pages) == 1 and len(levels) == 1:
        levels += [
            (page,)
            for page in tiff.pages
            if page.keyframe.subfiletype == _REDUCED
            and _is_level(page.keyframe, full)
            and other_picture(str(page.keyframe.description)) is None
        ]
    return sorted(levels, key=lambda held: -_pixels(held[0]))


def _candidates(tiff: Any) -> Iterator[tuple[Any, tuple[Any, ...], Samples, tuple[Resolution, ...]] | str]:
    for series in tiff.series:
        pages = _pages(series)
        if isinstance(pages, str):
            yield pages
            continue
        page = pages[0].keyframe
        ome, significant_bits = _ome(tiff, series, page)
        samples = samples_of(page, len(pages), significant_bits)
        yield samples if isinstance(samples, str) else (series, pages, samples, ome)


def wrong_page(page: Any, name: str, levels: list[Any], all_pages: Any) -> str | None:
    """Return why a page is not the slide, as the second half of a sentence.

    Args:
        page: the key frame that would be taken.
        name: what its series is called.
        levels: its reduced levels.
        all_pages: every page of the file.
    """
    taken = f"the image that would be taken for the slide ({_size(page)})"
    what = other_picture(str(page.description)) or other_picture(name)
    if what is not None:
        return f"{taken} says that it is a {what}; name the file that holds the slide"
    subfile_type = int(page.subfiletype)
    if subfile_type & (_REDUCED | _MASK):
        what = "a mask" if subfile_type & _MASK else "a reduced copy of another image"
        return f"{taken} is marked as {what} (NewSubfileType {subfile_type}); name the file that holds the slide"
    own = {(level.imagelength, level.imagewidth) for level in levels}
    for other in all_pages:
        size = other.keyframe.imagelength, other.keyframe.imagewidth
        if size not in own and _pixels(other) > _MUCH_LARGER * _pixels(page):
            return (
                f"beside {taken} lies one of {_size(other)}, which cannot be read as a slide; save that one as an "
                "RGB TIFF of 8 or 16 bits"
            )
    return None


def find_slide(tiff: Any) -> SlideImage:
    """Find the slide in an open tifffile.TiffFile.

    Raises:
        WrongPageError: what would be taken for it is something else.
        SlideError: there is none. Either message is the second half of a sentence.
    """
    if len(tiff.pages) > _MOST_PAGES:
        raise SlideError(f"it has {len(tiff.pages)} pages, at most {_MOST_PAGES} are looked at; save the slide alone")
    found = list(_candidates(tiff))
    usable = [candidate for candidate in found if not isinstance(candidate, str)]
    if not usable:
        for page in tiff.pages:
            reason = wrong_page(page.keyframe, "", [page.keyframe], ())
            if reason is not None:
                raise WrongPageError(reason)
        reasons = "; ".join(dict.fromkeys(reason for reason in found if isinstance(reason, str)))
        raise SlideError(f"it holds no image that can be read as a slide ({reasons or 'no page'}); save it as RGB TIFF")

    def rank(candidate: tuple[Any, tuple[Any, ...], Samples, tuple[Resolution, ...]]) -> tuple[bool, int]:
        _, pages, samples, _ = candidate
        return samples.channels == 3 or samples.colour.ndim > 1, _pixels(pages[0])

    series, pages, samples, ome = max(usable, key=rank)
    page = pages[0].keyframe
    levels = _levels(tiff, series, pages)
    reason = wrong_page(page, str(series.name), [held[0].keyframe for held in levels], tiff.pages)
    if reason is not None:
        raise WrongPageError(reason)
    said = []
    if len(pages) > 1:
        said.append("its channels are separate images of no stated colour; they are taken as red, green and blue")
    if samples.alpha is None and (page.samplesperpixel if len(pages) == 1 else len(pages)) > samples.channels:
        said.append("its last channel has no stated meaning (ExtraSamples) and is left out")
    return SlideImage(tuple(levels), samples, (*ome, *page_resolution(page)), tuple(said))
