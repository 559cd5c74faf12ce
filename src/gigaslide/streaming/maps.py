"""Whole maps between two segments, in memory or in a file, read and written window by window."""

import os
import tempfile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gigaslide.geometry import Window

Array = NDArray[Any]


class Map(Protocol):
    """A map (y, x, channel), zero at first. Writes and reads of different windows may come from different threads."""

    def read(self, window: Window, into: Array) -> None:
        """Read a window into an array (1, y, x, channel)."""

    def write(self, window: Window, values: Array) -> None:
        """Set a window, (1, y, x, channel)."""

    def add(self, window: Window, values: Array) -> None:
        """Add to a window, (1, y, x, channel)."""

    def close(self) -> None:
        """Give memory or file back."""


class RamMap:
    """A map in memory; the system gives pages as they are written."""

    def __init__(self, shape: tuple[int, int, int], dtype: np.dtype[Any]) -> None:
        self._values: Array = np.zeros(shape, dtype)

    def read(self, window: Window, into: Array) -> None:
        """Read a window into an array (1, y, x, channel)."""
        into[0] = self._values[window.slices]

    def write(self, window: Window, values: Array) -> None:
        """Set a window, (1, y, x, channel)."""
        self._values[window.slices] = values[0]

    def add(self, window: Window, values: Array) -> None:
        """Add to a window, (1, y, x, channel)."""
        part = self._values[window.slices]
        np.add(part, values[0], out=part)

    def close(self) -> None:
        """Give the memory back."""
        self._values = np.zeros((0, 0, 0), self._values.dtype)


class DiskMap:
    """A map in an unnamed temporary file of `folder`: gone with the process, however that ends.

    Rows are read and written by offset. A memory mapping would count every page it has touched as the process' memory.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: np.dtype[Any], folder: Path) -> None:
        self._shape, self._dtype = shape, dtype
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  (closed by `close`)
        # A hole reads as zeros.
        os.truncate(self._file.fileno(), shape[0] * shape[1] * shape[2] * dtype.itemsize)

    def read(self, window: Window, into: Array) -> None:
        """Read a window into an array (1, y, x, channel) of the map's type."""
        for row, y in zip(into[0], range(window.y.start, window.y.stop), strict=True):
            _read_all(self._file.fileno(), row, self._offset(y, window.x.start))

    def write(self, window: Window, values: Array) -> None:
        """Set a window, (1, y, x, channel)."""
        rows = np.ascontiguousarray(values[0], self._dtype)
        for row, y in zip(rows, range(window.y.start, window.y.stop), strict=True):
            _write_all(self._file.fileno(), row, self._offset(y, window.x.start))

    def add(self, window: Window, values: Array) -> None:
        """Add to a window, (1, y, x, channel)."""
        sums = np.empty(values.shape, self._dtype)
        self.read(window, sums)
        self.write(window, np.add(sums, values, out=sums))

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _offset(self, y: int, x: int) -> int:
        return (y * self._shape[1] + x) * self._shape[2] * self._dtype.itemsize


def _read_all(descriptor: int, row: Array, offset: int) -> None:
    view = memoryview(row).cast("B")  # type: ignore[arg-type]
    while view:
        data = os.pread(descriptor, len(view), offset)
        if not data:
            raise OSError("a map's file is shorter than it was made")
        view[: len(data)] = data
        view, offset = view[len(data) :], offset + len(data)


def _write_all(descriptor: int, row: Array, offset: int) -> None:
    view = memoryview(row).cast("B")  # type: ignore[arg-type]
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count
