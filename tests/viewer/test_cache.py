from gigaslide.viewer.cache import TileCache


def test_the_least_recently_used_goes_first():
    cache = TileCache(10)
    cache.put("a", b"1234")
    cache.put("b", b"1234")
    assert cache.get("a") == b"1234"
    cache.put("c", b"1234")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"1234", None, b"1234")
    assert cache.held_bytes == 8


def test_a_tile_put_again_counts_once():
    cache = TileCache(10)
    for _ in range(5):
        cache.put("a", b"12345678")
    assert cache.held_bytes == 8


def test_a_tile_larger_than_the_cache_is_not_held():
    cache = TileCache(10)
    cache.put("a", bytes(11))
    assert cache.get("a") is None
    assert cache.held_bytes == 0
