"""Arrays that TensorFlow reads in place, used again and again.

A fresh array of some megabytes costs a page fault per 4 KiB, and TensorFlow copies what is not aligned to its vectors:
together more than the arithmetic that fills them.
"""

import threading
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

Array = NDArray[Any]
# What TensorFlow asks of memory that it is handed (EIGEN_MAX_ALIGN_BYTES); it ends the process when it is not so.
_ALIGNMENT = 64


class BufferPool:
    """Aligned arrays of any shape. One that was given back serves the next request that fits into it."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array with undefined values."""
        size = prod(shape) * dtype.itemsize
        needed = size + _ALIGNMENT
        with self._lock:
            fitting = [index for index, block in enumerate(self._free) if block.nbytes >= needed]
            if fitting:
                block = self._free.pop(min(fitting, key=lambda index: self._free[index].nbytes))
            else:
                if self._free:
                    self._free.pop()  # too small: let one go, or the pool would keep one of every size
                block = np.empty(needed, np.uint8)
        start = -block.ctypes.data % _ALIGNMENT
        return np.ndarray(shape, dtype, buffer=block[start : start + size])

    def give(self, array: Array) -> None:
        """Take back an array that nobody reads any more."""
        block = array.base  # NumPy makes it the one that owns the memory
        if not isinstance(block, np.ndarray) or block.base is not None:
            raise ValueError("only an array that the pool gave out can be given back")
        with self._lock:
            self._free.append(block)


def in_place(array: Array) -> tf.Tensor:
    """Return a tensor on the memory of an array that a `BufferPool` gave out; valid until that is given back."""
    if array.ctypes.data % _ALIGNMENT:
        raise ValueError(f"the array should begin at a multiple of {_ALIGNMENT} bytes")
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
