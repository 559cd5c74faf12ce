"""A shard of a Zarr v3 store as bytes: what TensorStore would write, in a third less of CPU time.

The format (zarr-specs, codec `sharding_indexed`): the encoded inner chunks one after the other, then for each of them,
in C order, its first byte and its length as uint64, and the CRC-32C of that table. A chunk of nothing but 0 is left
out, its numbers are 2^64 - 1. TensorStore copies the pixels twice on the way, has threads of its own beside those that
read, and compresses what cannot be compressed: the noise in tissue. Such chunks are stored as they are, which blosc has
a mark for; all others are byte for byte TensorStore's.
"""

import struct
from functools import cache
from typing import Any

import imagecodecs
import numpy as np

from gigaslide.slides.arrays import Bytes

_MISSING = 2**64 - 1
_STEP_PX = 64
_encode: Any = imagecodecs.blosc_encode  # its type says bytes; any buffer will do
_BLOSC: dict[str, Any] = {"compressor": "lz4", "shuffle": "noshuffle", "typesize": 1, "numthreads": 1}
# Of the middle rows of a chunk, which tell whether it is worth compressing: above, all of it becomes hardly smaller.
_PROBE_ROWS, _HARDLY_SMALLER = 16, 0.85
_AS_IS = 0  # the level at which blosc copies
_HEADER_BYTES = 16  # of blosc, before every chunk: the most that a chunk grows by
_ENTRY_BYTES, _CRC_BYTES = 16, 4  # of the table: for every chunk, and behind it
_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected


@cache
def _crc32c_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0) for crc in table]
    return table


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes: of tables of a kilobyte, so byte by byte is enough."""
    table, crc = _crc32c_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@cache
def _header_as_is(size_bytes: int) -> bytes:
    """Return what blosc writes before so many bytes that it copies."""
    return bytes(_encode(bytes(size_bytes), level=_AS_IS, **_BLOSC)[:_HEADER_BYTES])


class ShardEncoder:
    """Encodes shards, one after the other, into memory of its own; belongs to one thread."""

    def __init__(self, shard_px: int, chunk_px: int, channels: tuple[int, ...], level: int) -> None:
        """Reserve the memory.

        Args:
            shard_px: side of a shard, a multiple of `chunk_px`.
            chunk_px: side of an inner chunk.
            channels: () of arrays (y, x), (3,) of (y, x, channel).
            level: of lz4 in blosc.
        """
        self._shard_px, self._chunk_px, self._level = shard_px, chunk_px, level
        # Memory that the system has not given yet costs more than what is written to it, so it is kept.
        self._chunk = np.empty((chunk_px, chunk_px, *channels), np.uint8)
        chunks = (shard_px // chunk_px) ** 2
        self._shard = np.empty(chunks * (self._chunk.nbytes + _HEADER_BYTES + _ENTRY_BYTES) + _CRC_BYTES, np.uint8)

    def encode(self, values: Bytes) -> Bytes | None:
        """Return a shard, uint8 of one axis, which the next call overwrites; None if all values are 0.

        Args:
            values: uint8 (y, x) or (y, x, channel), of at most the shard's rows and columns: fewer at the slide's edge.
        """
        table: list[int] = []
        at = 0
        steps = range(0, self._shard_px, self._chunk_px)
        for top in steps:
            for left in steps:
                inside = values[top : top + self._chunk_px, left : left + self._chunk_px]
                # Few pixels nearly always tell that a chunk holds something; max is ten times as fast as any.
                if inside.size == 0 or not (inside[::_STEP_PX, ::_STEP_PX].max() or inside.max()):
                    table += [_MISSING, _MISSING]
                    continue
                size_bytes = self._put(inside, at)
                table += [at, size_bytes]
                at += size_bytes
        if at == 0:
            return None
        index = struct.pack(f"<{len(table)}Q", *table)
        end = index + struct.pack("<I", crc32c(index))
        self._shard[at : at + len(end)] = np.frombuffer(end, np.uint8)
        return self._shard[: at + len(end)]

    def _put(self, inside: Bytes, at: int) -> int:
        """Encode a chunk to where the shard is `at`; return its size in bytes."""
        if inside.shape != self._chunk.shape:  # beyond the slide it is 0
            self._chunk[:] = 0
            self._chunk[: inside.shape[0], : inside.shape[1]] = inside
            inside = self._chunk
        if self._is_worth_it(inside):
            if inside is not self._chunk:
                self._chunk[:] = inside
            # With more room blosc would make a chunk larger than to copy it.
            room = self._shard[at : at + self._chunk.nbytes + _HEADER_BYTES]
            return len(_encode(self._chunk, level=self._level, out=room, **_BLOSC))
        pixels = at + _HEADER_BYTES
        self._shard[at:pixels] = np.frombuffer(_header_as_is(inside.nbytes), np.uint8)
        self._shard[pixels : pixels + inside.nbytes].reshape(inside.shape)[:] = inside
        return _HEADER_BYTES + inside.nbytes

    def _is_worth_it(self, chunk: Bytes) -> bool:
        top = (len(chunk) - _PROBE_ROWS) // 2
        probe = np.ascontiguousarray(chunk[top : top + _PROBE_ROWS])
        return len(_encode(probe, level=self._level, **_BLOSC)) <= _HARDLY_SMALLER * probe.nbytes
