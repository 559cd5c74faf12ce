"""Writing so that a reader never meets half a file: temporary name beside the target, then rename."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_HASH_BLOCK_BYTES = 1 << 20


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it onto `target` if the block ends without an error.

    The block may create a file or a folder at that path. After an error, or a kill, `target` is what it was before;
    what a killed process left behind is removed by the next writer of the same target.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last: many writers choose their format by it.
    temporary = target.with_name(f".{target.stem}.partial{target.suffix}")
    remove(temporary)
    try:
        yield temporary
        put_in_place(temporary, target)
    finally:
        remove(temporary)


def put_in_place(temporary: Path, target: Path) -> None:
    """Rename a file or folder onto `target`, beside which it lies."""
    if target.is_dir():
        # A folder cannot be renamed onto a full one: move the old one aside first.
        old = target.with_name(f".{target.name}.old")
        remove(old)
        target.rename(old)
        temporary.rename(target)
        remove(old)
    else:
        temporary.replace(target)


def write_text(target: Path, text: str) -> None:
    """Write `text` (UTF-8) to `target` atomically, flushed to the disk."""
    write_bytes(target, text.encode())


def write_bytes(target: Path, content: bytes) -> None:
    """Write `content` to `target` atomically, flushed to the disk."""
    with atomic_path(target) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder; nothing happens if it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sha256(path: Path, some: Iterable[Path] | None = None) -> str:
    """Return the SHA-256 of a file, or of a folder's files with their relative names, as hexadecimal digits.

    `some` of a folder's files; None: all.
    """
    digest = hashlib.sha256()
    files = [path]
    if path.is_dir():
        files = sorted(file for file in (path.rglob("*") if some is None else some) if file.is_file())
    for file in files:
        if path.is_dir():
            digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        with file.open("rb") as stream:
            while block := stream.read(_HASH_BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()
