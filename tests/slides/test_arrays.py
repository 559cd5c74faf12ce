import numpy as np
import pytest

from gigaslide.slides.arrays import all_true


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
