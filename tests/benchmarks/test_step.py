import json
import os
from pathlib import Path
from typing import Any

import pytest

from gigaslide import config
from gigaslide.benchmarks import step
from gigaslide.memory.planner import DoesNotFit
from tests.stages.project import make_project, warm_gigaslide

PARAMS = Path(__file__).parents[2] / "params.yaml"
KEYS = """height width megapixels kernel_size stride plan precision workers step_s step_s_all ms_per_megapixel
    megapixels_per_s data_wait_s idle_bytes peak_bytes predicted_peak_bytes predicted_step_s gflops matmul_gflops loss
    git_commit machine""".split()  # noqa: SIM905


def measured(folder: Path, *arguments: str) -> dict[str, Any]:
    done = warm_gigaslide(folder, "bench", "step", *arguments, "--json", "step.json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    figures: dict[str, Any] = json.loads((folder / "step.json").read_text())
    assert set(KEYS) <= set(figures)
    assert 100e6 < figures["idle_bytes"] < figures["peak_bytes"]
    assert figures["predicted_peak_bytes"] < 3 * figures["peak_bytes"] < 9 * figures["predicted_peak_bytes"]
    assert 0 <= figures["data_wait_s"] <= max(figures["step_s_all"])
    assert 0 < figures["loss"] < 10
    return figures


def test_a_streamed_step_on_a_synthetic_area(tmp_path: Path) -> None:
    folder = make_project(tmp_path)
    area = ("--height", "384", "--width", "500", "--kernel", "7", "--stride", "4", "--steps", "3")
    figures = measured(folder, *area, "--plan", "auto", "--precision", "bfloat16")
    assert (figures["height"], figures["width"], figures["megapixels"]) == (384, 500, 0.192)
    assert (figures["kernel_size"], figures["stride"], figures["precision"]) == (7, 4, "bfloat16")
    assert figures["plan"] not in ("auto", "whole")
    assert figures["workers"] >= 1
    assert sorted(figures["step_s_all"])[1] == figures["step_s"]
    assert len(figures["step_s_all"]) == 3
    assert figures["ms_per_megapixel"] == pytest.approx(1000 * figures["step_s"] / 0.192)
    # A product of two large matrices is as fast as arithmetic gets.
    assert 0 < figures["gflops"] < figures["matmul_gflops"] < 1000 * (os.cpu_count() or 1)


def test_a_whole_step_on_a_store(tmp_path: Path) -> None:
    folder = make_project(tmp_path)
    figures = measured(folder, "--slide", "data/stores/train0.zarr", "--plan", "whole", "--steps", "1", "--no-product")
    assert (figures["height"], figures["width"], figures["plan"]) == (96, 128, "whole")
    assert figures["source"] == "train0"
    assert figures["matmul_gflops"] is None


def test_a_plan_that_does_not_fit_is_refused() -> None:
    settings = config.load(PARAMS).replaced({"memory.budget_gb": 0.2})
    with pytest.raises(DoesNotFit, match=r"does not fit 0\.20 GB"):
        step.measure(settings, (512, 512), None, 1, False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--height", "64"], "an area needs --height and --width"),
        (["--height", "64", "--width", "64", "--kernel", "3", "--stride", "4"], "stride is at most kernel_size"),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    done = warm_gigaslide(make_project(tmp_path), "bench", "step", *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
