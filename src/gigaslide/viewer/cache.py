"""The last used tiles, encoded, up to a number of bytes."""

import threading
from collections import OrderedDict
from collections.abc import Hashable


class TileCache:
    """Encoded tiles by key, the least recently used dropped first; safe between threads."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes, self._held_bytes = limit_bytes, 0
        self._tiles: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """Bytes of all tiles held."""
        return self._held_bytes

    def get(self, key: Hashable) -> bytes | None:
        """Return the tile, None if it is not held."""
        with self._lock:
            if key in self._tiles:
                self._tiles.move_to_end(key)
            return self._tiles.get(key)

    def put(self, key: Hashable, tile: bytes) -> None:
        """Hold a tile."""
        with self._lock:
            self._held_bytes += len(tile) - len(self._tiles.pop(key, b""))
            self._tiles[key] = tile
            while self._held_bytes > self._limit_bytes and self._tiles:
                self._held_bytes -= len(self._tiles.popitem(last=False)[1])
