import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gigaslide import config
from gigaslide.benchmarks import picture, steps
from gigaslide.benchmarks.steps import Case
from gigaslide.errors import GigaslideError

SETTINGS = config.load(Path(__file__).parents[2] / "params.yaml")
CASES = [
    Case((500, 2000), "whole", None),
    Case((1000, 4000), "whole", None),
    Case((1000, 4000), "auto", 4.0),
    Case((2000, 8000), "auto", 8.0),
]


class Child:
    """Stands in for `gigaslide bench step`; remembers what it was asked for."""

    def __init__(self, fails_at: str = "") -> None:
        self.asked: list[dict[str, str]] = []
        self._fails_at = fails_at

    def __call__(self, arguments: Sequence[str], limit_s: float) -> dict[str, Any]:
        given = dict(argument.removeprefix("--").split("=") for argument in arguments)
        self.asked.append(given)
        if given["height"] == self._fails_at:
            raise GigaslideError("signal 9 ended it")
        megapixels = int(given["height"]) * int(given["width"]) / 1e6
        figures = {"megapixels": megapixels, "step_s": 0.04 * megapixels, "ms_per_megapixel": 40.0, "plan": "cut:x"}
        figures |= {"peak_bytes": 1e9 + 1e8 * megapixels, "predicted_peak_bytes": 1e9, "data_wait_s": 0.0}
        return figures | {"gflops": 20.0, "matmul_gflops": 200.0, "machine": {"cpu": "x"}, "git_commit": "y"}


def run(folder: Path, child: Child, cases: Sequence[Case] = CASES) -> dict[str, Any]:
    files = folder / "results.json", folder / "bench.png", folder / "large.zarr"
    return steps.run(SETTINGS, *files, cases, child)


def test_the_results_and_the_picture_are_written(tmp_path: Path) -> None:
    child = Child()
    results = run(tmp_path, child)
    assert json.loads((tmp_path / "results.json").read_text()) == results
    assert [row["name"] for row in results["runs"]] == [case.name for case in CASES]
    assert {"git_commit", "machine", "paper"} <= set(results)
    assert all("machine" not in row for row in results["runs"])
    assert child.asked[0] == {"height": "500", "width": "2000", "plan": "whole", "steps": "5"}
    assert child.asked[3] == {"height": "2000", "width": "8000", "plan": "auto", "steps": "5", "budget-gb": "8.0"}
    with Image.open(tmp_path / "bench.png") as image:
        assert image.format == "PNG"
        assert image.width > 1000


def test_what_is_known_is_not_measured_again(tmp_path: Path) -> None:
    with pytest.raises(GigaslideError, match=r"1 of 4 measurements failed.*2000 x 8000.*signal 9"):
        run(tmp_path, Child(fails_at="2000"))
    again = Child()
    results = run(tmp_path, again)
    assert [given["height"] for given in again.asked] == ["2000"]
    assert all("step_s" in row for row in results["runs"])


def test_an_interrupted_benchmark_goes_on(tmp_path: Path) -> None:
    run(tmp_path, Child(), CASES[:2])
    again = Child()
    run(tmp_path, again)
    assert len(again.asked) == 2


def test_other_settings_or_other_code_are_measured_again(tmp_path: Path) -> None:
    run(tmp_path, Child())
    json_file = tmp_path / "results.json"
    results = json.loads(json_file.read_text())
    results["runs"][1]["fingerprint"] = "of other code"
    json_file.write_text(json.dumps(results))
    again = Child()
    run(tmp_path, again)
    assert len(again.asked) == 1
    settings = SETTINGS.replaced({"network.kernel_size": 9})
    steps.run(settings, json_file, tmp_path / "bench.png", tmp_path / "large.zarr", CASES, again)
    assert len(again.asked) == 5


def test_what_does_not_fit_is_left_out_with_its_reason(tmp_path: Path) -> None:
    child = Child()
    cases = [Case((10**6, 10**6), "whole", None), Case((1000, 4000), "auto", 0.1), CASES[2]]
    results = run(tmp_path, child, cases)
    assert len(child.asked) == 1
    assert "are free" in results["runs"][0]["skipped"]
    assert "does not fit 0.10 GB" in results["runs"][1]["skipped"]


def test_the_cases_are_those_of_the_readme() -> None:
    found = steps.cases()
    areas = {case.shape[0] * case.shape[1] for case in found if case.shape != (4096, 4096)}
    assert areas == {x * 10**6 for x in (4, 16, 64, 256, 1024)}
    assert [case.budget_gb for case in found if case.shape == (16000, 64000)] == [2, 4, 8]
    assert {case.shape for case in found if case.plan == "whole"} == {*steps.SIZES[:-1], (4096, 4096)}


def test_a_picture_of_one_point_and_of_none() -> None:
    machine = {"cores": 2, "cpu": "CPU", "memory_gb": 25.3}
    row = {"megapixels": 4.0, "step_s": 0.2, "peak_bytes": 1e9, "budget_gb": None}
    assert picture.draw([row], machine, 4.0) == picture.draw([row, {"skipped": "too large"}], machine, 4.0)
    assert picture.draw([], machine, 4.0).startswith(b"\x89PNG")
