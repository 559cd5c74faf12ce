import json
import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from gigaslide import config
from gigaslide.cluster import command, connection
from gigaslide.errors import UsageError
from gigaslide.memory.planner import DoesNotFit
from gigaslide.stages import engines
from tests.cluster.lock import one_cluster_at_a_time
from tests.stages.project import gigaslide, make_project
from tests.stages.test_train import _query, _rows

pytest.importorskip("ray", reason="NOT TESTED over a cluster: Ray is not installed (gigaslide[cluster])")

# Tiles that are computed at once have operations of one thread, as those of a worker; on a machine of one core, too.
PLAN = {
    "name": "tiles",
    "cuts": ["down1_activation"],
    "tiles_px": {"down1_activation": [32, 48], "head": [40, 36]},
    "storage": "ram",
    "workers": 2,
}


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_cluster_at_a_time(tmp_path_factory):
        yield


def project(folder: Path, **changes: Any) -> Path:
    (folder / "plan.json").write_text(json.dumps(PLAN))
    return make_project(folder, train={"epochs": 2}, memory={"plan": "plan.json"}, **changes)


def weights(folder: Path) -> dict[str, Any]:
    found = {}

    def note(name: str, value: Any) -> None:
        if isinstance(value, h5py.Dataset):
            found[name] = np.array(value)

    with zipfile.ZipFile(folder / "models/model.keras") as model, model.open("model.weights.h5") as file:
        h5py.File(file, "r").visititems(note)
    return found


def test_a_training_over_two_workers_is_the_training_without_ray(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    here = project(tmp_path / "here")
    there = project(tmp_path / "there", cluster={"address": "auto", "workers": 2})
    for folder in (here, there):
        done = gigaslide(folder, "train")
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    assert "2 workers of 1 thread(s)" in done.stdout
    assert _rows(there) == _rows(here)
    expected = weights(here)
    assert len(expected) >= 12
    for name, found in weights(there).items():
        assert np.array_equal(found, expected[name]), name
    tags = dict(_query(there, "select key, value from tags"))
    assert (tags["cluster.address"], tags["cluster.workers"]) == ("auto", "2")
    params = [sorted(_query(folder, "select key, value from params")) for folder in (here, there)]
    assert params[0] == params[1]


def test_no_cluster_at_an_address_is_one_sentence(tmp_path: Path) -> None:
    done = gigaslide(project(tmp_path), "train", "--cluster", "127.0.0.1:9")
    assert done.returncode == 1
    assert done.stderr.startswith("gigaslide: there is no Ray cluster at 127.0.0.1:9 (")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "models/model.keras").exists()


@pytest.mark.parametrize("address", ["somewhere", "http://host:1", "host:port"])
def test_an_address_is_checked(address: str) -> None:
    settings = config.load(Path(__file__).parents[2] / "params.yaml")
    with pytest.raises(UsageError, match=r"cluster\.address"):
        settings.replaced({"cluster.address": address})


def test_workers_that_do_not_fit_the_budget_are_refused() -> None:
    settings = config.load(Path(__file__).parents[2] / "params.yaml").replaced({"memory.budget_gb": 8.0})
    choice = engines.choose(settings, [(4096, 4096)])
    assert 100_000_000 <= command._store_bytes(settings, choice, 1) < choice.budget_bytes
    with pytest.raises(DoesNotFit, match=r"100 workers of .* GB .* set cluster\.workers to fewer"):
        command._store_bytes(settings, choice, 100)


def test_a_note_of_a_cluster_that_is_gone_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
        assert connection._running_here() is None
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{port}\n")
        assert connection._running_here() == f"127.0.0.1:{port}"
    assert connection._running_here() is None
    (tmp_path / "ray" / "ray_current_cluster").write_text("no address")
    assert connection._running_here() is None
