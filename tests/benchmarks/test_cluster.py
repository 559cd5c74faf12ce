"""The benchmark of steps over a cluster, without Ray, which tests/cluster has; in a process with threads of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gigaslide.streaming.engine import StepResult

# Seconds of the first measurement of each; all grow by one with every measurement.
STEP_S = {(0, True): 11.0, (1, True): 13.0, (0, False): 10.0, (1, False): 10.5, (2, False): 6.0}
RUN = """
import sys
from pathlib import Path
from gigaslide import quiet
quiet.import_tensorflow()
from gigaslide import config
from gigaslide.benchmarks import cluster
from gigaslide.errors import GigaslideError
from tests.benchmarks.test_cluster import Steps

cluster.usable_threads = lambda: 2

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
        self.asked: list[str] = []
        self._wrong = wrong

    def __call__(
        self, settings: Any, network: Any, plan: Any, area: Any, case: Any, steps: int
    ) -> tuple[StepResult, list[float], int | None]:
        workers, on_one_core = case
        assert not on_one_core or len(os.sched_getaffinity(0)) == 1
        self.asked.append(f"{workers}{'-' if on_one_core else ''}")
        gradient = np.ones(3, np.float32)
        if workers == self._wrong:
            gradient[1] = np.nextafter(gradient[1], np.float32(2))
        result = StepResult(0.5, 0.5, [gradient], 0.0)
        return result, [STEP_S[workers, on_one_core] + len(self.asked)] * steps, 1000 * workers or None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="NOT TESTED: cores cannot be chosen here")
def test_cases_are_measured_in_turn_and_compared_and_a_bit_that_differs_is_refused(tmp_path: Path) -> None:
    project = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "asked 0- 1- 0 1 2 0- 1- 0 1 2 0- 1- 0 1 2\n" in done.stdout
    assert "refused the step of 2 worker(s) differs" in done.stdout
    assert not (tmp_path / "wrong.json").exists()

    (area,) = json.loads((tmp_path / "right.json").read_text())["areas"]
    cases = {case["workers"]: case for case in area["cases"] if not case["on_one_core"]}
    # The middle one of the three rounds: the 6th to the 10th measurement.
    assert {workers: case["step_s"] for workers, case in cases.items()} == {0: 18.0, 1: 19.5, 2: 16.0}
    assert area["two_workers_over_one"] == 16.0 / 19.5
    assert area["two_workers_over_one_on_one_core"] == 16.0 / 20.0
    assert area["ray_over_no_ray"] == 19.5 / 18.0
    assert area["ray_over_no_ray_on_one_core"] == 20.0 / 17.0
    assert cases[2]["moved_bytes"] == 2000
    # Of tiles that were measured in earnest; Ray is predicted not to be for nothing.
    assert all(tile["forward_s"] > 0 and tile["backward_s"] > 0 for tile in area["tile_seconds"].values())
    assert 0 < cases[0]["predicted_step_s"] < cases[1]["predicted_step_s"]
