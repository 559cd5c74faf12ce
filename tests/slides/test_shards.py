import numpy as np
import pytest
import tensorstore
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.slides import shards
from gigaslide.slides.shards import crc32c, encode_shard
from gigaslide.slides.store import CHUNK_PX, _metadata, _spec
from tests.slides.files import noise


def opened(path, shape, shard_px, channels):
    spec = {**_spec(path, "image"), "metadata": _metadata(shape, shard_px, channels)}
    return tensorstore.open(spec, create=True).result()


def test_crc32c():
    # The check value of the catalogue of CRC algorithms (CRC-32/ISCSI).
    assert crc32c(b"123456789") == 0xE3069283


@given(
    st.integers(1, 1100), st.integers(1, 1100), st.sampled_from([(), (3,)]), st.sets(st.integers(0, 8)), st.booleans()
)
@settings(max_examples=25)
def test_a_compressed_shard_is_byte_for_byte_tensorstores(tmp_path_factory, height, width, channels, empty, smooth):
    folder = tmp_path_factory.mktemp("shards")
    values = noise((height, width), height)
    if smooth:
        values = values // 64 * 64
    values = values if channels else values[..., 0].copy()
    for number in empty:
        top, left = number // 3 * CHUNK_PX, number % 3 * CHUNK_PX
        values[top : top + CHUNK_PX, left : left + CHUNK_PX] = 0
    shard_px = 3 * CHUNK_PX
    array = opened(folder, (height, width), shard_px, channels)
    array.write(values).result()
    path = folder / "image/c/0/0" / ("0" if channels else "")
    expected = path.read_bytes() if path.exists() else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "_HARDLY_SMALLER", 2)
        encoded = encode_shard(values, shard_px, CHUNK_PX, 5)
    assert (None if encoded is None else b"".join(encoded)) == expected


@pytest.mark.parametrize("channels", [(), (3,)])
def test_what_is_written_here_tensorstore_reads(tmp_path, channels):
    """One chunk is smooth and compressed, the others are noise and stored as they are."""
    values = noise((700, 1300))
    values[:CHUNK_PX, :CHUNK_PX] //= 255
    values = values if channels else values[..., 0].copy()
    array = opened(tmp_path, (700, 1300), 3 * CHUNK_PX, channels)
    path = tmp_path / "image/c/0/0" / ("0" if channels else "")
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = encode_shard(values, 3 * CHUNK_PX, CHUNK_PX, 5)
    chunk_bytes = CHUNK_PX**2 * (3 if channels else 1)
    assert len(encoded[0]) < 0.5 * chunk_bytes
    assert len(encoded[1]) == chunk_bytes + 16  # blosc's header
    path.write_bytes(b"".join(encoded))
    np.testing.assert_array_equal(np.asarray(array.read().result()), values)
