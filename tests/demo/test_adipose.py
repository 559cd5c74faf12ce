import numpy as np
from scipy import ndimage

from gigaslide.demo import adipose


def test_fat_is_large_pale_vacuoles_between_thin_walls():
    collagen = np.full((512, 512, 3), (0.9, 0.5, 0.7), dtype=np.float32)
    fat = adipose.atlas(np.random.default_rng(0), collagen, 0.5)
    assert fat.shape == collagen.shape
    assert fat.dtype == np.float32
    vacuole = fat[..., 1] > 0.9
    # Walls and rounded corners take 2 to 3 um on each side of a cell of 34 um: (1 - 5 / 34)^2 = 0.73 is left of it.
    assert 0.6 < vacuole.mean() < 0.85
    labels, _ = ndimage.label(vacuole)
    sizes = np.sort(np.bincount(labels.ravel())[1:])
    # (512 px / (34 um / 0.5 um per px))^2 = 57 cells; the border of the picture cuts those on it in two.
    assert 57 <= (sizes > 500).sum() <= 57 + 4 * 8
    equivalent_um = 2 * np.sqrt(sizes[-5:] / np.pi) * 0.5
    assert equivalent_um.min() > 25
    assert equivalent_um.max() < 70


def test_fat_wraps_round():
    collagen = np.full((256, 256, 3), 0.6, dtype=np.float32)
    fat = adipose.atlas(np.random.default_rng(3), collagen, 0.5)
    for turned in (fat, fat.swapaxes(0, 1)):
        inside = np.abs(np.diff(turned, axis=0)).mean(axis=(1, 2))
        assert np.abs(turned[0] - turned[-1]).mean() <= inside.max()
