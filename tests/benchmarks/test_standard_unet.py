import numpy as np

from gigaslide.benchmarks import standard_unet


def test_parameters_by_hand() -> None:
    # Two levels of 2 and 4 filters, 8 at the bottom; a convolution has 9 weights per pair of channels, and a bias.
    def double(inputs: int, count: int) -> int:
        return 9 * inputs * count + count + 9 * count * count + count

    up = (4 * 8 * 4 + 4) + (4 * 4 * 2 + 2)
    expected = double(3, 2) + double(2, 4) + double(4, 8) + up + double(8, 4) + double(4, 2) + (2 + 1)
    assert standard_unet.build(2, 2, 0).count_params() == expected


def test_the_same_names_every_time_so_that_a_plan_fits_both_precisions() -> None:
    first, second = (standard_unet.build(2, 2, 0, dtype) for dtype in ("float32", "float64"))
    assert [layer.name for layer in first.layers[1:]] == [layer.name for layer in second.layers[1:]]
    assert first(np.zeros((1, 8, 12, 3), np.float32)).shape == (1, 8, 12, 1)
