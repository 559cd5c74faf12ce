"""`gigaslide plan --workers` and `--scaling`, as they are typed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gigaslide import config
from gigaslide.cluster.planning import choice, scaling, scaling_picture
from gigaslide.cluster.planning.forecast import Cluster, forecast
from gigaslide.memory import plan_file
from gigaslide.memory.planner import DoesNotFit
from gigaslide.network.describe import describe
from tests.stages.project import PARAMS, gigaslide, make_project

AREA = ("--height", "16000", "--width", "64000")
DEFAULT = ("--kernel", "11", "--stride", "4")
GRAPH = describe(config.load(PARAMS).network)


def test_the_plan_for_a_cluster_is_the_fastest_that_fits_and_can_be_read_back(tmp_path: Path) -> None:
    folder = make_project(tmp_path)
    cluster = ("--workers", "64", "--workers-per-machine", "8", "--network-gbps", "25")
    done = gigaslide(folder, "plan", *AREA, *DEFAULT, *cluster, "--budget-gb", "32", "--json", "plan.json")
    assert (done.returncode, done.stderr) == (0, "")
    divisions = choice.divisions(GRAPH, (16000, 64000))
    every = [forecast(division, Cluster(64, 8, network_gbps=25)) for division in divisions]
    chosen = min((one for one in every if one.machine_bytes <= 32e9), key=lambda one: one.step_s)
    marked = [line for line in done.stdout.splitlines() if line.startswith("->")]
    assert len(marked) == 1
    assert f"{chosen.step_s:.2f}" in marked[0].split()
    assert f"bound by {chosen.bound}" in done.stdout
    assert "64 worker(s) on 8 machine(s)" in done.stdout

    values = json.loads((folder / "plan.json").read_text())
    read = plan_file.read(folder / "plan.json", GRAPH)
    assert (read.cuts, dict(read.tiles)) == (chosen.division.plan.cuts, dict(chosen.division.plan.tiles))
    assert (read.storage, read.workers) == ("ram", 8)
    assert values["predicted_peak_bytes"] == sum(values["predicted_bytes"].values()) == chosen.machine_bytes <= 32e9
    assert values["cluster"]["step_s"] == chosen.step_s
    assert sum(values["cluster"]["spent_s"].values()) == pytest.approx(chosen.step_s)


def test_many_workers_want_other_tiles_than_one() -> None:
    divisions = choice.divisions(GRAPH, (64000, 64000))  # one gigapixel has too few tiles for so many
    one, many = (choice.forecasts(divisions, Cluster(count, storage_gbps=1000.0))[0] for count in (1, 256))
    assert many.division.plan.tiles != one.division.plan.tiles
    assert forecast(one.division, many.cluster).step_s > 1.5 * many.step_s


def test_machines_that_are_too_small_are_said_to_be(tmp_path: Path) -> None:
    done = gigaslide(make_project(tmp_path), "plan", *AREA, "--workers", "16", "--budget-gb", "2", "--json", "p.json")
    assert done.returncode == 1
    assert "does not fit 2.00 GB of each" in done.stderr
    assert "--workers-per-machine" in done.stderr
    assert "->" not in done.stdout
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "--height and --width"),
        (("--height", "100"), "--height and --width"),
        ((*AREA, "--scaling"), "takes neither"),
        ((*AREA, "--picture", "x.png"), "--scaling"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_said(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    done = gigaslide(make_project(tmp_path), "plan", *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr


def row(workers: int, step_s: float, **spent_s: float) -> dict[str, Any]:
    return {"workers": workers, "step_s": step_s, "speed_up": 80 / step_s, "spent_s": spent_s}


def test_scaling_ends_where_twice_as_many_are_not_worth_it() -> None:
    rows = [row(8, 10, compute=10), row(16, 6, compute=5, driver=1), row(32, 5, compute=2.6, network=1, driver=1.4)]
    assert scaling.end(rows) == {"workers": 16, "speed_up": 80 / 6, "reason": "driver"}
    assert scaling.end(rows[:2]) is None
    # A size that fits no machine comes before those that do.
    assert scaling.end([{"workers": 4, "does_not_fit": "..."}, *rows[:2]]) is None


def test_the_table_the_file_and_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_file, picture = tmp_path / "scaling.json", tmp_path / "scaling.png"
    settings = config.load(PARAMS)
    areas = scaling.run(settings, Cluster(1, 4), 10.0, json_file, picture, (4096, 16384), (4, 8))
    written = json.loads(json_file.read_text())
    assert written["areas"] == json.loads(json.dumps(areas))
    assert {"git_commit", "machine"} <= set(written)
    assert [[one["workers"] for one in area["rows"]] for area in areas] == [[4, 8], [4, 8]]
    for area in areas:
        # As far as it was looked at, or where it ends; small areas end soon.
        assert area["end"] is not None
        assert all(one["efficiency"] <= 1.0 for one in area["rows"])
    assert areas[0]["end"]["workers"] < areas[1]["end"]["workers"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    for area in areas:
        assert f"beyond {area['end']['workers']} workers" in said
        assert f"times as fast: {area['end']['reason']}" in said
    drawn = scaling_picture.draw(areas, scaling.WORTH_IT, "x")
    assert drawn == scaling_picture.draw(areas, scaling.WORTH_IT, "x")


def test_nothing_fits_is_a_row_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    areas = scaling.run(config.load(PARAMS), Cluster(1, 4), 1.0, None, tmp_path / "none.png", (4096,), (4,))
    assert "does_not_fit" in areas[0]["rows"][0]
    assert "no plan fits" in capsys.readouterr().out


def test_the_smallest_that_would_do_is_named() -> None:
    divisions, cluster = choice.divisions(GRAPH, (8192, 8192)), Cluster(4, 2)
    with pytest.raises(DoesNotFit, match=r"over 2 machine\(s\)") as refused:
        choice.choose(choice.forecasts(divisions, cluster, 1e9), 1e9)
    enough = (float(str(refused.value).split(" needs ")[1].split(" GB")[0]) + 0.01) * 1e9
    assert choice.choose(choice.forecasts(divisions, cluster, enough), enough).machine_bytes <= enough


def test_it_imports_neither_tensorflow_nor_ray(tmp_path: Path) -> None:
    heavy = ["tensorflow", "keras", "ray", "numba", "scipy", "matplotlib", "tensorstore", "openslide", "mlflow"]
    code = (
        "import sys; from gigaslide import config; from gigaslide.cluster.planning import command as planning; "
        "from gigaslide.cluster.planning.forecast import Cluster; "
        "planning.run(config.load(), (1000, 4000), Cluster(4), 64.0, None); "
        f"print('found', *set({heavy}) & set(sys.modules))"
    )
    folder = make_project(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "found"
