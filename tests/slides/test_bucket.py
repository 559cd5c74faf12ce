import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gigaslide import files
from gigaslide.errors import GigaslideError
from gigaslide.geometry import Window
from gigaslide.slides import bucket
from gigaslide.slides.bucket import S3Folder, publish
from gigaslide.slides.store import INDEX_FILE, open_split
from tests.slides import s3_server
from tests.stages.project import make_project, write_store
from tests.streaming.areas import easy_area


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server.server(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture
def stores(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in s3_server.environment(url).items():
        monkeypatch.setenv(name, value)
    return make_project(tmp_path) / "data/stores"


def test_a_published_store_reads_as_the_one_on_disk_in_another_process_too(stores: Path) -> None:
    assert publish(stores, "s3://slides/read", INDEX_FILE) == 7
    here, there = open_split(stores, "train"), open_split(S3Folder("s3://slides/read"), "train")
    assert [store.name for store in there] == [store.name for store in here] == ["train0", "train1", "train2"]
    window = Window.of(3, 5, 90, 101)
    for one, other in zip(here, there, strict=True):
        again = pickle.loads(pickle.dumps(other))
        assert again.attributes == one.attributes
        assert np.array_equal(again.read_image(window), one.read_image(window))
        assert np.array_equal(again.read_mask(window), one.read_mask(window))
    assert np.ptp(here[0].read_image(window)) > 50


def test_what_is_there_is_not_sent_again_and_half_a_store_is(stores: Path) -> None:
    folder = "s3://slides/again"
    publish(stores, folder, INDEX_FILE)
    before = s3_server.objects("again")
    assert publish(stores, folder, INDEX_FILE) == 0
    last = next(name for name in before if name.startswith("train1.") and name.endswith(".zarr/zarr.json"))
    s3_server.remove(f"again/{last}")  # as after a kill: it comes last
    assert publish(stores, folder, INDEX_FILE) == 1
    assert s3_server.objects("again") == before


def test_who_reads_goes_on_with_the_store_that_was_there(stores: Path) -> None:
    folder = "s3://slides/changed"
    publish(stores, folder, INDEX_FILE)
    reader = open_split(S3Folder(folder), "train")[1]
    old = open_split(stores, "train")[1].read_image(Window.of(0, 0, 96, 128))
    files.remove(stores / "train1.zarr")
    write_store(stores / "train1.zarr", easy_area(1, 96, 128), "train1", mpp_um_per_px=0.25)
    assert publish(stores, folder, INDEX_FILE) == 1
    assert np.array_equal(reader.read_image(Window.of(0, 0, 96, 128)), old)
    assert open_split(S3Folder(folder), "train")[1].mpp_um_per_px == 0.25


def test_no_bucket_no_server_and_no_store_are_one_sentence(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert publish(stores, None, INDEX_FILE) == 0
    monkeypatch.setattr(bucket, "_RETRIES", {"max_retries": 1, "initial_delay": "10ms", "max_delay": "10ms"})
    with pytest.raises(GigaslideError, match=r"could not be brought to s3://elsewhere/x: .*NoSuchBucket"):
        publish(stores, "s3://elsewhere/x", INDEX_FILE)
    with pytest.raises(GigaslideError, match="s3://slides/empty has no index of stores"):
        open_split(S3Folder("s3://slides/empty"), "train")
    publish(stores, "s3://slides/lost", INDEX_FILE)
    reader = open_split(S3Folder("s3://slides/lost"), "train")[0]
    s3_server.remove(f"lost/{bucket.published_name(stores / 'train0.zarr')}/image/zarr.json")
    with pytest.raises(GigaslideError, match=r"the store s3://slides/lost/train0\.\w+\.zarr is damaged or out of"):
        reader.read_image(Window.of(0, 0, 10, 10))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(GigaslideError, match="could not be brought to s3://slides/x"):
        publish(stores, "s3://slides/x", INDEX_FILE)


def test_the_bucket_of_the_mlflow_server_is_made_once(url: str, stores: Path) -> None:
    script = Path(__file__).parents[2] / "deploy/mlflow/bucket.py"
    shell = {**os.environ, "MLFLOW_S3_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}
    for _ in range(2):
        subprocess.run([sys.executable, script, "mlflow"], env=shell, check=True, timeout=60)
    assert publish(stores, "s3://mlflow/there", INDEX_FILE) == 7
