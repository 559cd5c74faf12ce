"""Trainings whose slides are in a bucket."""

import shutil
from pathlib import Path

import pytest

from gigaslide.slides.bucket import publish
from gigaslide.slides.store import INDEX_FILE
from tests.slides import s3_server
from tests.stages.project import make_project, warm_gigaslide
from tests.stages.test_train import _rows


def test_a_training_from_a_bucket_is_the_one_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = make_project(tmp_path)
    there = tmp_path / "there"
    there.mkdir()
    with s3_server.server(tmp_path) as url:
        for name, value in s3_server.environment(url).items():
            monkeypatch.setenv(name, value)
        make_project(there)
        shutil.copy(here / "params.yaml", there)
        text = (there / "params.yaml").read_text()
        assert "stores: null" in text
        (there / "params.yaml").write_text(text.replace("stores: null", "stores: s3://slides/cohort"))
        publish(there / "data/stores", "s3://slides/cohort", INDEX_FILE)
        shutil.rmtree(there / "data")
        for folder in (here, there):
            done = warm_gigaslide(folder, "train")
            assert done.returncode == 0, done.stderr
        assert _rows(there) == _rows(here)
        done = warm_gigaslide(there, "evaluate")
        assert done.returncode == 0, done.stderr
        assert not (there / "data").exists()
