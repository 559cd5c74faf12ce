"""Which files are one slide, and which slides are in a folder.

Most slides are one file. An MRXS is a file and the folder of its name; a VMS or VMU is an index beside the pictures it
names; DICOM is a folder of .dcm files of one series, of which OpenSlide is given any, here the largest.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gigaslide import files
from gigaslide.errors import SlideError, UsageError

# What a file in a folder ends in if it is taken for a slide; a file that is named is one, whatever its ending.
SLIDE_SUFFIXES = (
    *(".svs", ".tif", ".tiff", ".btf", ".ndpi", ".mrxs", ".scn", ".bif", ".svslide", ".czi"),
    *(".vms", ".vmu", ".dcm"),
)
_INDEX_SUFFIXES = (".vms", ".vmu")
# Tag 0020,000E, SeriesInstanceUID, as DICOM files of compressed pixels write it: explicit, little endian.
_SERIES_TAG = b"\x20\x00\x0e\x00UI"
_HEAD_BYTES = 1 << 16
_LONGEST_INDEX_BYTES = 1 << 20


@dataclass(frozen=True)
class SlideFiles:
    """A slide's files: `main` is what is opened; `parts`, it included, are all below `root`."""

    main: Path
    parts: tuple[Path, ...]
    root: Path

    @property
    def name(self) -> str:
        """What the slide is called."""
        return slide_name(self.main)

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(part.stat().st_size for part in self.parts)

    @property
    def has_own_folder(self) -> bool:
        """Whether its files lie in a folder with nothing else, which moves with them."""
        return self.main.suffix.lower() in (*_INDEX_SUFFIXES, ".dcm")


def slide_name(path: Path) -> str:
    """Return the name of the slide that is opened at `path`."""
    return path.parent.name if path.suffix.lower() == ".dcm" and path.parent.name else path.stem


def slide_files(main: Path) -> SlideFiles:
    """Return all files of the slide that is opened at `main`.

    Raises:
        SlideError: the folder of a DICOM slide holds several series.
    """
    suffix = main.suffix.lower()
    parts = [main]
    if suffix == ".dcm":
        parts = sorted(path for path in main.parent.iterdir() if path.suffix.lower() == ".dcm")
        series = {found for found in map(_series, parts) if found}
        if len(series) > 1:
            raise SlideError(
                f"{main.parent} holds {len(series)} DICOM series; a slide is a folder with the files of one: put each "
                "into a folder of its own"
            )
    elif suffix == ".mrxs":
        folder = main.with_suffix("")
        parts += sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    elif suffix in _INDEX_SUFFIXES:
        parts += _named_in(main)
    return SlideFiles(main, tuple(parts), main.parent)


def slide_sha256(main: Path) -> str:
    """Hash all files of the slide that is opened at `main`; its own name plays no part."""
    suffix = main.suffix.lower()
    if suffix == ".dcm":
        return files.sha256(main.parent, [path for path in main.parent.iterdir() if path.suffix.lower() == ".dcm"])
    if suffix == ".mrxs" and main.with_suffix("").is_dir():
        return f"{files.sha256(main)}+{files.sha256(main.with_suffix(''))}"
    if suffix in _INDEX_SUFFIXES:
        return "+".join(map(files.sha256, slide_files(main).parts))
    return files.sha256(main)


def find_slides(paths: Iterable[Path], leave_out: Iterable[Path] = ()) -> list[Path]:
    """Return what to open for each slide that `paths` name, or that is below a folder among them, once each.

    Args:
        paths: files, and folders of slides.
        leave_out: files and folders in which none is looked for.

    Raises:
        UsageError: there is no such path, or no slide in a folder.
    """
    left_out = {path.absolute() for path in leave_out}
    found: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            slides = list(_in_folder(path, left_out))
            if not slides:
                raise UsageError(
                    f"{path} holds no slide; expected files that end in one of {', '.join(SLIDE_SUFFIXES)} in it or "
                    "below it"
                )
        elif path.is_file():
            slides = [_largest_dicom(path.parent) if path.suffix.lower() == ".dcm" else path]
        else:
            raise UsageError(f"there is no file or folder {path}; name slides, or folders of slides")
        for slide in slides:
            found.setdefault(slide.resolve(), slide)
    return list(found.values())


def _in_folder(folder: Path, left_out: set[Path]) -> Iterator[Path]:
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    slides = [path for path in entries if path.suffix.lower() in SLIDE_SUFFIXES and path.is_file()]
    slides = [path for path in slides if path.absolute() not in left_out]
    if any(path.suffix.lower() == ".dcm" for path in slides):
        yield _largest_dicom(folder)
    yield from (path for path in slides if path.suffix.lower() != ".dcm")
    of_slides = {path.with_suffix("") for path in slides if path.suffix.lower() == ".mrxs"}
    for path in entries:
        if path.is_dir() and path not in of_slides and path.absolute() not in left_out:
            yield from _in_folder(path, left_out)


def _largest_dicom(folder: Path) -> Path:
    """Return the file with the most pixels, most likely; labels and small levels are not always opened."""
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".dcm" and path.is_file())
    return max(found, key=lambda path: path.stat().st_size)


def _series(path: Path) -> bytes | None:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    start = head.find(_SERIES_TAG) + len(_SERIES_TAG)
    if start < len(_SERIES_TAG):
        return None
    length = int.from_bytes(head[start : start + 2], "little")
    return head[start + 2 : start + 2 + length].strip(b"\0 ")


def _named_in(index: Path) -> list[Path]:
    """Return the files beside `index` that it names: lines `ImageFile=name`."""
    with index.open("rb") as file:
        lines = file.read(_LONGEST_INDEX_BYTES).decode("utf-8", errors="replace").splitlines()
    named = {value.strip() for _, separator, value in (line.partition("=") for line in lines) if separator}
    return sorted(path for path in index.parent.iterdir() if path.name in named and path.is_file() and path != index)
