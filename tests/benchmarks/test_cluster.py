"""The benchmark of steps over a cluster, without Ray, which tests/cluster has; in a process with threads of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gigaslide.streaming.engine import StepResult

# Seconds of the first measurement of each; all grow by one with every measurement.
STEP_S = {0: 10.0, 1: 10.5, 2: 6.0}
RUN = """
import sys
from pathlib import Path
from gigaslide import quiet
quiet.import_tensorflow()
from gigaslide import config
from gigaslide.benchmarks import cluster
from gigaslide.errors import GigaslideError
from tests.benchmarks.test_cluster import Steps

folder = Path(sys.argv[1])
run = lambda name, steps: cluster.run(
    config.load(Path("params.yaml")), folder / name, [(512, 512)], 3, 1, (1, 2), folder / "no.zarr", steps
)
steps = Steps()
run("right.json", steps)
print("asked", *steps.asked)
try:
    run("wrong.json", Steps(wrong=2))
except GigaslideError as error:
    print("refused", error)
"""


class Steps:
    """In place of steps that need known times; those of `wrong` workers differ from the others in one bit."""

    def __init__(self, wrong: int | None = None) -> None:
        self.asked: list[int] = []
        self._wrong = wrong

    def __call__(
        self, settings: Any, network: Any, plan: Any, area: Any, workers: int, steps: int
    ) -> tuple[StepResult, list[float], int | None]:
        self.asked.append(workers)
        gradient = np.ones(3, np.float32)
        if workers == self._wrong:
            gradient[1] = np.nextafter(gradient[1], np.float32(2))
        result = StepResult(0.5, 0.5, [gradient], 0.0)
        return result, [STEP_S[workers] + len(self.asked)] * steps, 1000 * workers or None


def test_cases_are_measured_in_turn_and_compared_and_a_bit_that_differs_is_refused(tmp_path: Path) -> None:
    project = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "asked 0 1 2 0 1 2 0 1 2\n" in done.stdout
    assert "refused the step of 2 worker(s) differs" in done.stdout
    assert not (tmp_path / "wrong.json").exists()

    (area,) = json.loads((tmp_path / "right.json").read_text())["areas"]
    cases = {case["workers"]: case for case in area["cases"]}
    # The middle one of the three rounds: the 4th, 5th and 6th measurement.
    assert {workers: case["step_s"] for workers, case in cases.items()} == {0: 14.0, 1: 15.5, 2: 12.0}
    assert area["two_workers_over_one"] == 12.0 / 15.5
    assert area["overhead_of_ray"] == pytest.approx(1.5 / 14)
    assert cases[2]["moved_bytes"] == 2000
    # Of tiles that were measured in earnest; Ray is predicted not to be for nothing.
    assert all(tile["forward_s"] > 0 and tile["backward_s"] > 0 for tile in area["tile_seconds"].values())
    assert 0 < cases[0]["predicted_step_s"] < cases[1]["predicted_step_s"]
