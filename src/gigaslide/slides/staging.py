"""A local copy of a slide while it is read, for slides on a slow or network disk: `staged`.

A copy lies in a folder of the cache named after the slide's path, sizes and times, is written under another name and
checked before it is renamed, and is removed after use. Its lock is held meanwhile: the kernel frees that of a dead
process, whose copy the next run takes over, once its hashes are those that were read from the original. Where the disk
has no room, after copies that nobody uses are gone, or another process uses the copy, the original is read.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from gigaslide import files
from gigaslide.errors import SlideError
from gigaslide.slides.slide_files import slide_files

_KEY_DIGITS = 32
_BLOCK_BYTES = 1 << 22
# Left free, for what else writes to that disk meanwhile.
_SPARE_BYTES = 1 << 30
_LIST = "copied.json"  # of the files of a copy, with their hashes; a copy without it is none
_FILES = "slide"  # beside it: the folder of a DICOM slide is hashed as a whole


def _key(slide: Path, root: Path, parts: tuple[Path, ...]) -> str:
    """Return the name of a slide's copy; another one once the slide changes."""
    about = [[part.relative_to(root).as_posix(), part.stat().st_size, part.stat().st_mtime_ns] for part in parts]
    text = json.dumps([str(slide.absolute()), about])
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


def _copy(source: Path, target: Path) -> str:
    """Copy a file; return the SHA-256 of what was read.

    Raises:
        SlideError: what was written is something else, or of another size.
    """
    digest, size_bytes = hashlib.sha256(), source.stat().st_size
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as reading, target.open("wb") as writing:
        while block := reading.read(_BLOCK_BYTES):
            digest.update(block)
            writing.write(block)
    if target.stat().st_size != size_bytes or files.sha256(target) != digest.hexdigest():
        raise SlideError(f"the copy of {source} is not the same: check slides.cache_dir's disk, or set it to null")
    return digest.hexdigest()


def _is_whole(folder: Path) -> bool:
    try:
        hashes: dict[str, str] = json.loads((folder / _LIST).read_text(encoding="utf-8"))
        return all(files.sha256(folder / _FILES / name) == found for name, found in hashes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _unused(cache: Path) -> Iterator[Path]:
    """Yield the copies that no process uses, each locked for as long as it is looked at; the oldest first."""
    found = [path for path in cache.iterdir() if path.is_dir()]
    for folder in sorted(found, key=lambda path: path.stat().st_mtime_ns):
        with contextlib.suppress(Timeout), FileLock(_lock(cache, folder.name.strip(".").split(".")[0]), timeout=0):
            yield folder


def _lock(cache: Path, key: str) -> Path:
    return cache / f"{key}.lock"


def _make_room(cache: Path, needed_bytes: int) -> bool:
    """Remove copies that nobody uses until there is room; tell whether there is."""

    def fits() -> bool:
        return shutil.disk_usage(cache).free >= needed_bytes + _SPARE_BYTES

    for folder in _unused(cache):
        if fits():
            break
        files.remove(folder)
    return fits()


@contextlib.contextmanager
def staged(slide: Path, cache: Path | None) -> Iterator[Path]:
    """Yield where to read the slide from: its copy in `cache`, or the slide itself.

    Raises:
        SlideError: the copy is not what was read.
    """
    if cache is None:
        yield slide
        return
    cache.mkdir(parents=True, exist_ok=True)
    found = slide_files(slide)
    key = _key(slide, found.root, found.parts)
    folder = cache / key
    with contextlib.ExitStack() as using:
        try:
            using.enter_context(FileLock(_lock(cache, key), timeout=0))
        except Timeout:
            yield slide
            return
        if not _is_whole(folder):
            files.remove(folder)
            if not _make_room(cache, found.size_bytes):
                yield slide
                return
            with files.atomic_path(folder) as temporary:
                names = [part.relative_to(found.root) for part in found.parts]
                hashes = {name.as_posix(): _copy(found.root / name, temporary / _FILES / name) for name in names}
                files.write_text(temporary / _LIST, json.dumps(hashes))
        try:
            yield folder / _FILES / slide.relative_to(found.root)
        finally:
            files.remove(folder)
