import threading

import numpy as np
import pytest
import tensorflow as tf

from gigaslide.streaming.buffers import BufferPool, in_place

FLOAT32 = np.dtype("float32")


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 7, 5, 3), (33,)])
def test_an_array_is_aligned_and_tensorflow_reads_it_in_place(shape: tuple[int, ...], dtype: str) -> None:
    array = BufferPool().take(shape, np.dtype(dtype))
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.ctypes.data % 64 == 0
    array[:] = 1
    tensor = in_place(array)
    array[:] = 2
    assert tensor.numpy().tolist() == np.full(shape, 2).tolist()


def test_an_array_that_was_given_back_is_used_again() -> None:
    pool = BufferPool()
    first = pool.take((1, 8, 8, 3), FLOAT32)
    address = first.ctypes.data
    pool.give(first)
    smaller = pool.take((1, 4, 4, 3), np.dtype("float64"))
    assert smaller.ctypes.data == address
    assert pool.take((1, 4, 4, 3), FLOAT32).ctypes.data != address


def test_the_smallest_that_fits_is_taken() -> None:
    pool = BufferPool()
    large, small = pool.take((1000,), FLOAT32), pool.take((100,), FLOAT32)
    addresses = large.ctypes.data, small.ctypes.data
    pool.give(large)
    pool.give(small)
    assert pool.take((90,), FLOAT32).ctypes.data == addresses[1]
    assert pool.take((90,), FLOAT32).ctypes.data == addresses[0]


def test_no_more_arrays_are_kept_than_were_out_at_once() -> None:
    pool = BufferPool()
    for size in range(1, 200):
        pool.give(pool.take((size,), FLOAT32))
    assert len(pool._free) == 1


def test_threads_never_share_an_array() -> None:
    pool, wrong = BufferPool(), []

    def use(number: int) -> None:
        for size in range(1, 200):
            array = pool.take((size % 17 + 1,), FLOAT32)
            array[:] = number
            if (array != number).any():
                wrong.append(number)
            pool.give(array)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_only_an_array_of_a_pool_can_be_given_back_or_read_in_place() -> None:
    with pytest.raises(ValueError, match="that the pool gave out"):
        BufferPool().give(np.zeros(3))
    array = BufferPool().take((8,), FLOAT32)
    with pytest.raises(ValueError, match="multiple of 64 bytes"):
        in_place(array[1:])
    assert isinstance(in_place(array), tf.Tensor)
