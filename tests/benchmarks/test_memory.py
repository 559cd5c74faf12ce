import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gigaslide import config
from gigaslide.benchmarks import memory
from gigaslide.benchmarks.memory import GRID, Case
from gigaslide.errors import GigaslideError
from gigaslide.memory import plan_file
from gigaslide.network.describe import describe

SETTINGS = config.load(Path(__file__).parents[2] / "params.yaml")


class Child:
    """Stands in for `gigaslide bench step`: measures what it is told, fails where it is told."""

    def __init__(self, peaks_gb: Sequence[float | None]) -> None:
        self._peaks_gb = iter(peaks_gb)
        self.plans: list[Any] = []

    def __call__(self, arguments: Sequence[str], limit_s: float) -> dict[str, Any]:
        given = dict(argument.removeprefix("--").split("=") for argument in arguments if "=" in argument)
        kernel, stride = int(given["kernel"]), int(given["stride"])
        self.plans.append(given["plan"])
        if given["plan"].endswith(".json"):
            values = {"network.kernel_size": kernel, "network.stride": stride}
            self.plans[-1] = plan_file.read(Path(given["plan"]), describe(SETTINGS.replaced(values).network))
        peak_gb = next(self._peaks_gb)
        if peak_gb is None:
            raise GigaslideError("it was ended")
        figures = {"height": int(given["height"]), "width": int(given["width"]), "kernel_size": kernel}
        figures |= {"stride": stride, "plan": given["plan"], "storage": "ram", "workers": 2, "cuts": [], "tiles_px": {}}
        sizes = {"idle_bytes": 5e8, "predicted_peak_bytes": 1e9, "peak_bytes": peak_gb * 1e9, "predicted_bytes": {}}
        return figures | sizes | {"step_s": 1.0, "predicted_step_s": 1.0}


CASES = [Case(11, 4, (2048, 2048), kind) for kind in ("auto", "whole", "disk", "large tiles")]


def test_the_ratios_are_those_of_the_measurements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_file = tmp_path / "memory.json"
    results = memory.run(SETTINGS, json_file, CASES, Child([1.0, 0.8, 1.25, 1.1]))
    assert json.loads(json_file.read_text()) == results
    assert [run["ratio"] for run in results["runs"]] == pytest.approx([1, 1.25, 0.8, 1 / 1.1])
    assert [run["ratio_above_idle"] for run in results["runs"]] == pytest.approx([1, 5 / 3, 2 / 3, 5 / 6])
    assert results["figures"]["ratio_highest"] == pytest.approx(1.25)
    assert results["figures"]["ratio_lowest"] == pytest.approx(0.8)
    assert {"git_commit", "machine"} <= set(results)
    said = capsys.readouterr().out
    assert "most over: predicted 1.00 GB, measured 0.80 GB, ratio 1.25" in said
    assert "most under: predicted 1.00 GB, measured 1.25 GB, ratio 0.80" in said


def test_plans_that_auto_does_not_choose_are_handed_over(tmp_path: Path) -> None:
    child = Child([1.0] * 4)
    memory.run(SETTINGS, tmp_path / "memory.json", CASES, child)
    auto, whole, disk, large = child.plans
    assert (auto, whole, disk.storage, large.storage) == ("auto", "whole", "disk", "ram")
    assert max(large.tiles["head"]) == 2048


def test_a_case_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    json_file = tmp_path / "memory.json"
    with pytest.raises(GigaslideError, match=r"1 of 4 measurements failed.*2048 x 2048 px, whole: it was ended"):
        memory.run(SETTINGS, json_file, CASES, Child([1.0, None, 1.0, 1.0]))
    results = json.loads(json_file.read_text())
    assert (len(results["runs"]), len(results["failures"])) == (3, 1)


def test_the_grid_covers_kernels_strides_areas_and_plans() -> None:
    assert len(set(GRID)) == len(GRID) >= 24
    assert {case.stride for case in GRID} == {2, 3, 4, 8}
    assert {case.shape for case in GRID} == {(2048, 2048), (4096, 4096), (6144, 8192)}
    assert {"whole", "auto", "disk", "large tiles", 1.2} == {case.kind for case in GRID}
    whole = {case.kernel_size for case in GRID if case.kind == "whole"}
    assert (min(whole), max(whole)) == (3, 14)
    assert any(case.kernel_size > 14 for case in GRID)
