from dataclasses import dataclass, field

import numpy as np
import pytest

from gigaslide.errors import GigaslideError
from gigaslide.geometry import Interval, grid
from gigaslide.prediction.bands import bands


@dataclass
class Tiled:
    """An engine that gives known probabilities, in tiles."""

    values: np.ndarray
    step: tuple[int, int]
    model: object = None
    plan: str = "tiles"

    def predict(self, area, wanted):
        for window in grid(self.values.shape, self.step):
            yield window, self.values[window.slices]


@dataclass
class Named:
    shape: tuple[int, int]
    name: str = "a.svs"
    glass_rgb: tuple[int, int, int] = field(default=(255, 255, 255))


@pytest.mark.parametrize("step", [(4, 7), (30, 50), (11, 50), (1, 1)])
def test_bands_are_the_rows_of_the_prediction(step):
    values = np.random.default_rng(0).random((30, 50), dtype=np.float32)
    values[3, 4], values[3, 5] = np.float32(0.3), np.nextafter(np.float32(0.3), np.float32(0))
    found = list(bands(Tiled(values, step), Named((30, 50)), 0.3, with_probability=True))
    assert [band.rows for band in found] == [
        Interval(start, min(start + step[0], 30)) for start in range(0, 30, step[0])
    ]
    tissue = np.concatenate([band.tissue for band in found])
    np.testing.assert_array_equal(tissue, values >= np.float32(0.3))
    assert tissue[3, 4]
    assert not tissue[3, 5]
    probability = np.concatenate([band.probability for band in found])
    # Half a step of the scale.
    assert np.abs(probability / 255 - values).max() <= 0.5 / 255 + 1e-7


def test_bands_do_not_share_memory():
    values = np.random.default_rng(0).random((8, 6), dtype=np.float32)
    first, second = bands(Tiled(values, (4, 3)), Named((8, 6)), 0.5, with_probability=False)
    assert not np.may_share_memory(first.tissue, second.tissue)
    assert first.probability is None


def test_what_is_no_number_is_refused():
    values = np.full((8, 6), np.nan, np.float32)
    with pytest.raises(GigaslideError, match=r"should predict probabilities; on a\.svs, rows 0 to 4"):
        list(bands(Tiled(values, (4, 6)), Named((8, 6)), 0.5, with_probability=False))
