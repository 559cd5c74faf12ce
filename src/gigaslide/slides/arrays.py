"""Names for the array types of this package, and the array of flags that it needs most: `all_true`."""

from functools import cache

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

_SHARED_PX = 1 << 22  # a window of 2048 x 2048


@cache
def _shared() -> Flags:
    flags = np.ones(_SHARED_PX, bool)
    flags.flags.writeable = False
    return flags


def all_true(shape: tuple[int, int]) -> Flags:
    """Return bool (y, x), True everywhere; not to be written to, for up to a size all are the same memory."""
    size = shape[0] * shape[1]
    return _shared()[:size].reshape(shape) if size <= _SHARED_PX else np.ones(shape, bool)
