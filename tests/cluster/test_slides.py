"""Slides over two machines of Ray's own test cluster, of which one is lost, against the same without Ray."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gigaslide import files
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.slides.preparation import prepare_slide
from gigaslide.stages import predict, prepare
from gigaslide.stages.predict import Options
from gigaslide.stages.predict_worker import Handing
from tests.cluster.lock import SOON_MISSED, one_cluster_at_a_time
from tests.cluster.predict_with_a_node_lost import MACHINE, differences, make_slides, predict_over
from tests.stages.test_prepare import settings, write_one, write_table

pytest.importorskip("ray", reason="NOT TESTED over a cluster: Ray is not installed (gigaslide[cluster])")
from ray.cluster_utils import Cluster

from gigaslide.cluster import slides

SLIDES = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with one_cluster_at_a_time(tmp_path_factory), pytest.MonkeyPatch.context() as environment:
        # Workers find the tests whatever folder they are in.
        environment.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
        found = Cluster(initialize_head=True, head_node_args={**MACHINE, "_system_config": SOON_MISSED})
        yield found
        found.shutdown()


def prepare_and_die_once(job: Any, turn: Any) -> Any:
    """Prepare a slide; the first process that does ends half way, and leaves a note of the files that are whole."""

    def tell(share: float) -> None:
        turn(share)
        if share >= 0.5 and not Path("died").exists():
            (journal,) = job.store.parent.glob(".*.journal")
            lines = [json.loads(line) for line in journal.read_text().splitlines()]
            (partial,) = job.store.parent.glob(".*.zarr")
            inodes = {name: (partial / name).stat().st_ino for line in lines for name in line["bytes"]}
            Path("died").write_text(json.dumps(inodes))
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare_slide(job, tell, turn.threads)


def test_slides_prepared_over_a_cluster_are_those_without_ray(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = []
    for name in ("here", "there"):
        folder = tmp_path / name
        (folder / "slides").mkdir(parents=True)
        for seed, slide in enumerate("abc"):
            write_one(folder, slide, seed)
        (folder / "slides/c.tif").write_text("no slide")
        write_table(folder, "abc")
        monkeypatch.chdir(folder)
        # Relative paths, as in a project.
        chosen = settings(Path(), cluster={"address": cluster.address, "workers": 1}, prepare={"window_px": 512})
        run = prepare.run if name == "here" else slides.prepare
        if name == "there":
            monkeypatch.setattr(prepare, "_prepare", prepare_and_die_once)
        for times in range(2):
            assert run(chosen, Path("stores"), Path("results")) == 1
            said = capsys.readouterr().out
            assert f"a: {'unchanged' if times else 'prepared'}" in said
            if not times:
                assert ("a: its process or its machine is lost: again" in said) == (name == "there")
                stats = {path: path.stat() for path in folder.glob("stores/*.zarr/**/*") if path.is_file()}
                assert len(stats) > 10
        assert {path: path.stat() for path in stats} == stats
        assert sorted(path.name for path in Path("stores").iterdir()) == ["a.zarr", "b.zarr", "index.json"]
        results.append((files.sha256(folder / "stores"), Path("results/summary.json").read_bytes()))
    assert results[0] == results[1]
    # The second try went on where the first one ended.
    kept = json.loads(Path("died").read_text())
    assert len(kept) >= 2
    assert {name: Path("stores/a.zarr", name).stat().st_ino for name in kept} == kept


def test_slides_predicted_over_a_cluster_of_which_a_machine_is_lost_are_those_without_ray(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_slides(tmp_path / "slides", SLIDES)
    (tmp_path / "slides/text.svs").write_text("no slide")
    out, handing = tmp_path / "out", Handing(("trident",))  # the files for which name the folder
    options = Options((tmp_path / "slides",), out, handing=handing)
    assert predict.run(options) == 1
    here = out.rename(tmp_path / "here")
    machine = cluster.add_node(**MACHINE)
    code, watch = predict_over(cluster, machine, options)
    assert code == 1
    assert watch.lost
    said = capsys.readouterr().out
    assert said.count("its process or its machine is lost: again") == 1
    assert differences(here, out) == []
    found = [json.loads(path.read_text())["status"] for path in sorted(out.glob("*/summary.json"))]
    assert found == ["done"] * SLIDES + ["failed"]
    assert len(list((out / "exports").rglob("*.h5"))) == SLIDES
    assert (out / "summary.csv").is_file()
    assert (out / "index.html").is_file()
    assert not [path for path in out.iterdir() if path.name.startswith(".") and path.name != ".lock"]
    # Nothing is left to do, and nobody connects to do it.
    (tmp_path / "slides/text.svs").unlink()
    before = {path: path.stat() for path in out.glob("slide*/*")}
    assert slides.predict(options, "auto") == 0
    assert {path: path.stat() for path in before} == before
    assert "predicted already" in capsys.readouterr().out


def test_an_address_where_nothing_is_makes_nothing(tmp_path: Path) -> None:
    make_slides(tmp_path / "slides", 1)
    options = Options((tmp_path / "slides",), tmp_path / "out")
    with pytest.raises(GigaslideError, match=r"there is no Ray cluster at 127\.0\.0\.1:9 \("):
        slides.predict(options, "127.0.0.1:9")
    with pytest.raises(UsageError, match="--cluster is auto, HOST:PORT or ray://HOST:PORT; received 'somewhere'"):
        slides.predict(options, "somewhere")
    assert not (tmp_path / "out").exists()
