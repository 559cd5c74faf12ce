import imagecodecs
import numpy as np
import pytest
import tensorstore
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gigaslide.slides import shards
from gigaslide.slides.shards import ShardEncoder, crc32c
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
@example(511, 507, (), set(), False)  # given room, blosc made it larger than a copy
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
        encoder = ShardEncoder(shard_px, CHUNK_PX, channels, 5)
        encoder.encode(noise((height, width), 1) if channels else noise((height, width), 1)[..., 0])
        encoded = encoder.encode(values)  # of what was in its memory before nothing is left
    assert (None if encoded is None else encoded.tobytes()) == expected


@pytest.mark.parametrize("channels", [(), (3,)])
def test_what_is_written_here_tensorstore_reads(tmp_path, channels):
    """One chunk is smooth and compressed, the others are noise and stored as they are."""
    values = noise((700, 1300))
    values[:CHUNK_PX, :CHUNK_PX] //= 255
    values = values if channels else values[..., 0].copy()
    array = opened(tmp_path, (700, 1300), 3 * CHUNK_PX, channels)
    path = tmp_path / "image/c/0/0" / ("0" if channels else "")
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = ShardEncoder(3 * CHUNK_PX, CHUNK_PX, channels, 5).encode(values).tobytes()
    chunk_bytes = CHUNK_PX**2 * (3 if channels else 1)
    sizes = np.frombuffer(encoded[-4 - 9 * 16 : -4], "<u8").reshape(9, 2)[:, 1].astype(np.int64)
    assert sizes[0] < 0.5 * chunk_bytes
    assert sizes[1] == chunk_bytes + 16  # blosc's header
    # The header, too, is the one that blosc would write.
    chunk = values[:CHUNK_PX, CHUNK_PX : 2 * CHUNK_PX].tobytes()
    by_blosc = imagecodecs.blosc_encode(chunk, level=0, compressor="lz4", shuffle="noshuffle", typesize=1, numthreads=1)
    assert encoded[sizes[0] : sizes[0] + sizes[1]] == by_blosc
    path.write_bytes(encoded)
    np.testing.assert_array_equal(np.asarray(array.read().result()), values)
