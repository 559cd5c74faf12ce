"""Why a file cannot be opened as a slide, in words. OpenSlide says only "unsupported or missing"."""

import struct
from pathlib import Path

import tifffile

_HEAD_BYTES = 512
_PICTURES = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"%PDF": "a PDF document",
    b"PK": "a ZIP",
}


def _first_directory(head: bytes) -> int | None:
    """Return the byte at which the first directory of a TIFF starts; None when this is no TIFF."""
    order = {b"II": "<", b"MM": ">"}.get(head[:2])
    if order is None or len(head) < 16:
        return None
    version = struct.unpack(order + "H", head[2:4])[0]
    if version == 42:
        return int(struct.unpack(order + "I", head[4:8])[0])
    return int(struct.unpack(order + "Q", head[8:16])[0]) if version == 43 else None


def is_tiff(path: Path) -> bool:
    """Tell whether a file begins as a TIFF or BigTIFF does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _first_directory(file.read(_HEAD_BYTES)) is not None


def cut_short(path: Path) -> str | None:
    """Return how a TIFF is cut short, as the second half of a sentence; None when it is not, or is no TIFF."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        directory = _first_directory(file.read(_HEAD_BYTES))
    if directory is None:
        return None
    what, end = "its first directory starts at", directory
    if directory < size_bytes:
        try:
            with tifffile.TiffFile(path) as tiff:
                page = tiff.pages.first
                ends = [int(o) + int(n) for o, n in zip(page.dataoffsets, page.databytecounts, strict=False)]
        except Exception as error:  # a broken file may fail in any way; the reason is what is wanted
            return f"it is a broken TIFF, or one cut short ({error}); copy the slide again"
        what, end = "its pixels reach to", max(ends, default=0)
        if end <= size_bytes:
            return None
    return f"it is cut short: {what} byte {end}, the file ends at byte {size_bytes}; copy the slide again"


def why_unreadable(path: Path) -> str:
    """Return, as the second half of a sentence, why `path` cannot be opened as a slide and what to do."""
    if not path.exists():
        return "there is no such file"
    if path.is_dir():
        return "it is a folder; name the slide file in it"
    if path.stat().st_size == 0:
        return "the file is empty (0 bytes); copy the slide again"
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if _first_directory(head) is not None:
        return cut_short(path) or "it is a TIFF of a kind that is not known; convert it to a tiled TIFF"
    for magic, kind in _PICTURES.items():
        if head.startswith(magic):
            return f"it is {kind}, not a slide; convert it to a tiled TIFF"
    if all(byte in b"\t\n\r\f\b" or 32 <= byte < 127 for byte in head):
        return "it is a text file, not a slide"
    return "it is no slide format that OpenSlide knows, or its beginning is damaged"
