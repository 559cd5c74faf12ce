import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gigaslide import config
from gigaslide.errors import UsageError
from gigaslide.memory import model, plan_file, planner
from gigaslide.memory.planner import Candidate, DoesNotFit
from gigaslide.network.describe import describe
from gigaslide.network.graph import Graph
from gigaslide.streaming.plan import Plan, segments, whole_plan

NETWORK = config.load(Path(__file__).parents[2] / "params.yaml").network
GRAPH = describe(NETWORK)
PAPER = (16000, 64000)
GB = 1e9


def _network(**changes: object) -> Graph:
    return describe(NETWORK.model_copy(update=changes))


def test_the_maps_of_the_papers_area_by_hand() -> None:
    # down1: 3 channels at 1/16 of 1.024 Gpx; down2 and core: 2 channels at 1/256. All of float32, and their gradients.
    pixels = 16000 * 64000
    down1, down2, core = pixels // 16 * 3 * 4, pixels // 256 * 2 * 4, pixels // 256 * 2 * 4
    sizes = model.map_sizes(GRAPH, PAPER)
    # At its height the last segment reads down1 and core, and adds to the gradients of both, while down2 waits.
    assert model.kept_bytes(GRAPH, ("down1", "down2", "core"), sizes, 4) == 2 * down1 + down2 + 2 * core


def test_the_whole_image_of_the_papers_area_needs_what_a_large_machine_has() -> None:
    peak = model.predict(GRAPH, PAPER, whole_plan()).peak_bytes
    assert 70 * GB < peak < 110 * GB


@pytest.mark.parametrize("budget_gb", [2, 4, 8, 128])
def test_a_plan_for_the_papers_area_is_found(budget_gb: int) -> None:
    found = planner.candidates(GRAPH, PAPER, workers=2)
    chosen = planner.choose(found, PAPER, budget_gb * GB)
    assert chosen.peak_bytes <= budget_gb * GB
    assert chosen.plan.storage == ("disk" if budget_gb == 2 else "ram")


def test_more_memory_is_never_slower() -> None:
    found = planner.candidates(GRAPH, PAPER, workers=2)
    times = [planner.choose(found, PAPER, budget * GB).step_s for budget in (1.5, 2, 3, 4, 8, 64)]
    nearly = planner._NEARLY
    assert all(later <= earlier * nearly for earlier, later in itertools.pairwise(times))


def test_a_budget_that_is_too_small_is_refused_with_the_smallest_that_would_do() -> None:
    found = planner.candidates(GRAPH, PAPER, workers=2, runtime_bytes=1_000_000_000)
    with pytest.raises(DoesNotFit, match=r"does not fit 1\.00 GB.* GB more; set memory\.budget_gb to") as refused:
        planner.choose(found, PAPER, 1 * GB)
    smallest = float(str(refused.value).split("memory.budget_gb to ")[1].split(" ")[0])
    chosen = planner.choose(found, PAPER, smallest * GB)
    assert smallest * GB - chosen.peak_bytes < 0.011 * GB


@pytest.mark.parametrize(
    "changes",
    [{}, {"depth": 1}, {"depth": 3, "stride": 2, "kernel_size": 5}, {"filters": [8, 16, 32], "depth": 4, "stride": 2}],
    ids=str,
)
def test_every_candidate_is_a_plan_of_the_network(changes: dict[str, object]) -> None:
    graph = _network(**changes)
    found = planner.candidates(graph, (3000, 5000), workers=4)
    assert len(found) > 10
    for candidate in found:
        parts = segments(graph, candidate.plan.cuts)
        assert [part.output for part in parts] == list(candidate.plan.tiles)
        for tile in candidate.plan.tiles.values():
            assert all(size % step == 0 and size > 0 for size, step in zip(tile, graph.total_stride, strict=True))


def test_bytes_grow_with_what_makes_them_grow() -> None:
    plan = next(c.plan for c in planner.candidates(GRAPH, PAPER, 2) if c.plan.storage == "ram" and c.plan.cuts)
    small = model.predict(GRAPH, (4096, 4096), plan)
    large = model.predict(GRAPH, (8192, 8192), plan)
    assert large.maps_bytes == 4 * small.maps_bytes
    # Tiles are as large as before.
    assert large.tiles_bytes == pytest.approx(small.tiles_bytes, rel=0.01)
    assert model.predict(GRAPH, (4096, 4096), plan, itemsize=8).maps_bytes == 2 * small.maps_bytes
    im2col = model.predict(GRAPH, (4096, 4096), plan, platform="im2col")
    assert im2col.tiles_bytes > small.tiles_bytes


def test_im2col_of_the_papers_area_is_the_known_93_gb() -> None:
    # k * k * channels * output pixels * 4 bytes for the first layer: 11 * 11 * 3 * 64e6 * 4.
    without, with_it = (
        model.predict(GRAPH, PAPER, whole_plan(), platform=platform, runtime_bytes=0).peak_bytes
        for platform in ("onednn", "im2col")
    )
    assert with_it - without == pytest.approx(11 * 11 * 3 * 64e6 * 4, rel=1e-9)


def test_the_memory_model_and_the_planner_need_no_tensorflow() -> None:
    code = "import sys, gigaslide.memory.planner, gigaslide.memory.plan_file; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def _chosen() -> Candidate:
    return planner.choose(planner.candidates(GRAPH, PAPER, 2), PAPER, 4 * GB)


def test_a_plan_is_read_back_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_file.as_json(_chosen(), PAPER, 4 * GB)))
    assert plan_file.read(file, GRAPH) == _chosen().plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cuts": ["down9"]}, "cuts at down9; this network can be cut at down1"),
        ({"cuts": ["image"]}, "cuts at image"),
        ({"tiles_px": {"head": [512, 512]}}, "one tile for each of"),
        ({"tiles_px": {"down1": [500, 512], "down2": [512] * 2, "core": [512] * 2, "head": [512] * 2}}, "16 x 16 px"),
        ({"workers": 0}, "at least 1"),
        ({"storage": "tape"}, "is no plan"),
    ],
    ids=str,
)
def test_a_plan_that_does_not_fit_the_network_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_file.as_json(_chosen(), PAPER, 4 * GB) | change))
    with pytest.raises(UsageError, match=message):
        plan_file.read(file, GRAPH)


def test_a_plan_file_that_is_not_there_says_what_memory_plan_can_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="auto, whole, or a file"):
        plan_file.read(tmp_path / "none.json", GRAPH)


def test_a_kept_map_is_that_before_an_activation() -> None:
    # The backward sweep then needs no forward pass of the convolution before it.
    for candidate in planner.candidates(GRAPH, PAPER, 2):
        assert not [name for name in candidate.plan.cuts if GRAPH.by_name[name].elementwise]


def test_plan_names_are_unique() -> None:
    names = [candidate.plan.name for candidate in planner.candidates(GRAPH, PAPER, 2)]
    assert len(names) == len(set(names))


def test_plan_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Plan("x", (), {}).name = "y"  # type: ignore[misc]
