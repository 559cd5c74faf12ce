import weakref

import numpy as np
import pytest

from gigaslide.slides.arrays import Memory, all_true


@pytest.mark.parametrize("shape", [(0, 0), (3, 5), (2048, 2048), (2049, 2048)])
def test_all_true(shape):
    flags = all_true(shape)
    assert flags.shape == shape and flags.dtype == bool and flags.all()
    assert flags.flags.c_contiguous


def test_flags_of_many_windows_are_one_memory_which_nobody_can_write_to():
    one, other = all_true((512, 512)), all_true((300, 700))
    assert np.shares_memory(one, other)
    with pytest.raises(ValueError, match="read-only"):
        one[0, 0] = False


def test_memory_is_given_out_again_only_when_nobody_has_it_or_a_part_of_it():
    memory = Memory()
    address = memory.array((4, 5, 3)).ctypes.data
    again = memory.array((4, 5, 3))
    assert again.ctypes.data == address
    part = again[1:3].transpose(1, 0, 2)[::2]
    del again
    other = memory.array((4, 5, 3))
    assert not np.shares_memory(other, part)
    buffer = memoryview(other)
    del other
    assert not np.shares_memory(memory.array((4, 5, 3)), np.asarray(buffer))
    assert memory.array((2, 2)).shape == (2, 2)


def test_large_memory_is_not_kept():
    memory = Memory()
    large = memory.array((2048, 2049, 3))
    gone = weakref.ref(large)
    del large
    assert gone() is None
