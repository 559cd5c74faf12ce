"""Slides whose stores are in a bucket."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gigaslide.geometry import Window
from gigaslide.slides.bucket import S3Folder, publish
from gigaslide.slides.store import INDEX_FILE, open_split
from gigaslide.stages import prepare
from tests.slides import s3_server
from tests.stages.project import make_project, warm_gigaslide
from tests.stages.test_prepare import settings, write_one, write_table
from tests.stages.test_train import _rows


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server.server(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture(autouse=True)
def _may_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment(url).items():
        monkeypatch.setenv(name, value)


def test_what_is_prepared_comes_to_the_bucket(tmp_path: Path) -> None:
    (tmp_path / "slides").mkdir()
    for seed, name in enumerate("ab"):
        write_one(tmp_path, name, seed)
    write_table(tmp_path, "ab")
    with_bucket = settings(tmp_path, cluster={"stores": "s3://slides/prepared"})
    for _ in range(2):
        assert prepare.run(with_bucket, tmp_path / "stores", tmp_path / "results") == 0
        for split in ("train", "validation"):
            (here,), (there,) = (open_split(f, split) for f in (tmp_path / "stores", S3Folder("s3://slides/prepared")))
            window = Window.of(0, 0, *here.shape)
            assert there.attributes == here.attributes
            assert np.array_equal(there.read_image(window), here.read_image(window))
            assert np.array_equal(there.read_mask(window), here.read_mask(window))


def test_a_training_from_a_bucket_is_the_one_from_the_disk(tmp_path: Path) -> None:
    here = make_project(tmp_path)
    there = tmp_path / "there"
    there.mkdir()
    make_project(there, cluster={"stores": "s3://slides/cohort"})
    publish(there / "data/stores", "s3://slides/cohort", INDEX_FILE)
    shutil.rmtree(there / "data")
    for folder in (here, there):
        done = warm_gigaslide(folder, "train")
        assert (done.returncode, done.stderr) == (0, "")
    assert _rows(there) == _rows(here)
    done = warm_gigaslide(there, "evaluate")
    assert done.returncode == 0, done.stderr
    assert not (there / "data").exists()
