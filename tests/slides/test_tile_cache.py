import numpy as np

from gigaslide.slides.tile_cache import TileCache


def tile(value):
    return np.full((4, 4, 3), value, np.uint8)


def test_the_least_used_go_first_and_the_limit_holds():
    cache = TileCache(3 * 48)
    for value in range(3):
        cache.put(value, tile(value))
    assert (cache.get(0) == 0).all()
    cache.put(3, tile(3))
    assert cache.get(1) is None
    assert [(cache.get(value) == value).all() for value in (0, 2, 3)] == [True] * 3
    cache.put(0, tile(9))  # what is kept stays
    assert (cache.get(0) == 0).all()


def test_a_tile_beyond_the_limit_is_not_kept():
    cache = TileCache(47)
    cache.put(0, tile(0))
    assert cache.get(0) is None
