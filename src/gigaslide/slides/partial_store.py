"""A store while it is made: `PartialStore`, which a killed run leaves behind and the next one goes on with.

It lies beside the store, under a name with a hash of all that the store follows from; what was begun from other inputs
is removed. Beside it lies a journal with a line for each window whose shards are whole, with what was counted in it. A
line is written after the shards, so what has no whole line counts for nothing: its shards are removed and made again.

Over a cluster several processes may be at work on one store, of which all but one are given up: each then has an
`Attempt`, a folder beside the store with a `PartialStore` and the store that it becomes.
"""

import contextlib
import hashlib
import json
import re
import threading
import uuid
from pathlib import Path
from typing import Any

from gigaslide import files
from gigaslide.geometry import Window
from gigaslide.slides.store import StoreWriter
from gigaslide.slides.window_sums import WindowSums

_HASH_DIGITS = 16


def _beside(store: Path, which: str = f"[0-9a-f]{{{_HASH_DIGITS}}}") -> re.Pattern[str]:
    return re.compile(rf"\.{re.escape(store.stem)}\.{which}\.partial(\.journal|\.attempt|{re.escape(store.suffix)})")


def belongs_to(path: Path, store: Path) -> bool:
    """Tell whether a path beside a store is what a killed run left of making it."""
    return bool(_beside(store).fullmatch(path.name))


def remove_partial(store: Path, but: str = "") -> None:
    """Remove what killed runs left of making a store, but what was begun from the inputs of the hash `but`."""
    if not store.parent.is_dir():
        return
    for path in store.parent.iterdir():
        if belongs_to(path, store) and not (but and _beside(store, but).fullmatch(path.name)):
            files.remove(path)


class PartialStore:
    """The windows of a store that are made already; `record` and `done` may be called from several threads."""

    def __init__(self, store: Path, inputs: dict[str, Any]) -> None:
        """Find what there is of a store that is made from these inputs, and remove what is of others."""
        self._store = store
        found = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:_HASH_DIGITS]
        self.path = store.with_name(f".{store.stem}.{found}.partial{store.suffix}")
        self._journal = self.path.with_suffix(".journal")
        self._lock = threading.Lock()
        self._lines: dict[int, dict[str, Any]] = {}
        store.parent.mkdir(parents=True, exist_ok=True)
        remove_partial(store, but=found)

    def open(self, shape: tuple[int, int], shard_px: int, with_regions: bool, keep_damaged: bool) -> StoreWriter:
        """Return the writer; windows that are not whole are empty again.

        Args:
            shape: of the store, (y, x).
            shard_px: side of a window.
            with_regions: whether there are regions.
            keep_damaged: keep windows of which something was lost; else they are read again.
        """
        if not self._journal.exists():
            files.remove(self.path)
        writer = StoreWriter(self.path, shape, shard_px, with_regions)
        self._lines = {
            line["window"]: line for line in self._read() if keep_damaged or not line["sums"]["damage"]["lost_px"]
        }
        whole = {name for line in self._lines.values() for name in line["bytes"]}
        for file in self.path.rglob("*"):
            name = file.relative_to(self.path)
            if file.is_file() and name.name != "zarr.json" and name.as_posix() not in whole:
                file.unlink()
        # Again, without a line that was cut off: more are appended.
        files.write_text(self._journal, "".join(map(_as_line, self._lines.values())))
        return writer

    def _read(self) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        if not self._journal.exists():
            return lines
        for text in self._journal.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
                line = json.loads(text)
                sizes_bytes = {name: (self.path / name).stat().st_size for name in line["bytes"]}
                if text.endswith("\n") and sizes_bytes == line["bytes"]:
                    WindowSums.from_json(line["sums"])
                    lines.append(line)
        return lines

    def done(self, number: int) -> WindowSums | None:
        """Return what was counted in a window that an earlier run has made; None for one that is to be made."""
        line = self._lines.get(number)
        return None if line is None else WindowSums.from_json(line["sums"])

    def record(self, number: int, window: Window, writer: StoreWriter, sums: WindowSums) -> None:
        """Write down that the shards of a window are whole."""
        sizes_bytes = {
            name.as_posix(): (self.path / name).stat().st_size
            for name in writer.shards(window)
            if (self.path / name).exists()
        }
        text = _as_line({"window": number, "bytes": sizes_bytes, "sums": sums.as_json()})
        with self._lock, self._journal.open("a", encoding="utf-8") as file:
            file.write(text)

    def put_in_place(self) -> None:
        """Make it the store."""
        files.put_in_place(self.path, self._store)
        files.remove(self._journal)


class Attempt:
    """A folder in which one process makes a store, with what others had begun of it and have to leave to this one.

    Who goes on writing under a path that is gone spoils nothing: it makes another folder, which nobody looks into.
    """

    def __init__(self, store: Path) -> None:
        """Take over what was begun beside `store`."""
        self._target = store
        token = uuid.uuid4().hex[:_HASH_DIGITS]
        folder = store.with_name(f".{store.stem}.{token}.partial.attempt")
        before = [path for path in store.parent.iterdir() if belongs_to(path, store)]
        folder.mkdir(parents=True)
        self.store = folder / store.name
        for path in before:
            begun = list(path.iterdir()) if path.suffix == ".attempt" else [path]
            for part in begun:
                if belongs_to(part, store):
                    files.remove(folder / part.name)
                    part.rename(folder / part.name)
            files.remove(path)

    def put_in_place(self) -> None:
        """Put the finished store where it belongs."""
        files.put_in_place(self.store, self._target)


def _as_line(line: dict[str, Any]) -> str:
    return json.dumps(line, separators=(",", ":")) + "\n"
