"""Decoded tiles that all threads of a process share, up to a limit in bytes."""

import threading
from collections import OrderedDict
from collections.abc import Hashable

from gigaslide.slides.arrays import Bytes


class TileCache:
    """Decoded tiles of all slides of this process, for all its threads; the least used go first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes, self._bytes = limit_bytes, 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Bytes] = OrderedDict()

    def get(self, key: Hashable) -> Bytes | None:
        """Return a tile, not to be written to; None when it is not kept."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def put(self, key: Hashable, tile: Bytes) -> None:
        """Keep a tile."""
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = tile
            self._bytes += tile.nbytes
            while self._bytes > self._limit_bytes:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
