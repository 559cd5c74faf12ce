"""Names for the array types of this package, and memory for those it needs again and again: `all_true`, `Memory`.

Memory that a process does not have yet is cleared by the system, page by page: a tenth of the time of decoding a slide.
"""

import math
import sys
from functools import cache

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

_SHARED_PX = 1 << 22  # a window of 2048 x 2048
_KEPT_BYTES = 3 * _SHARED_PX  # its colours


@cache
def _shared() -> Flags:
    flags = np.ones(_SHARED_PX, bool)
    flags.flags.writeable = False
    return flags


def all_true(shape: tuple[int, int]) -> Flags:
    """Return bool (y, x), True everywhere; not to be written to, for up to a size all are the same memory."""
    size = shape[0] * shape[1]
    return _shared()[:size].reshape(shape) if size <= _SHARED_PX else np.ones(shape, bool)


class Memory:
    """Memory of the size that was last asked for, unless that is large; of one thread."""

    _NOBODY = 2  # references to an array that only this object has: its own, and that of the call that counts

    def __init__(self) -> None:
        """Have none."""
        self._last: Bytes | None = None

    def array(self, shape: tuple[int, ...]) -> Bytes:
        """Return uint8 of `shape`, of any values: that of the last call if nobody has it, or a view of it, any more."""
        if math.prod(shape) > _KEPT_BYTES:
            return np.empty(shape, np.uint8)
        if self._last is None or self._last.shape != shape or sys.getrefcount(self._last) > self._NOBODY:
            self._last = np.empty(shape, np.uint8)
        return self._last
