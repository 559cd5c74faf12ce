"""What tests of several parts share."""

import os
import time
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

from gigaslide import quiet
from gigaslide.demo.fetch import fetch_real_slide
from gigaslide.errors import GigaslideError

if "PYTEST_XDIST_WORKER" in os.environ:
    # It collects every file, so imports TensorFlow anyhow; as the commands do, in two thirds of the time.
    quiet.import_tensorflow()

# A busy machine is no failure: no example is timed.
settings.register_profile("gigaslide", deadline=None)
settings.load_profile("gigaslide")

SOURCE = Path(__file__).parents[1] / "data/source"

# Left to `make slow`, file by file; single tests are marked where they stand.
SLOW = [
    "benchmarks/test_training.py",
    "cluster/step/test_engine.py",
    "cluster/test_command.py",
    "cluster/test_slides.py",
    "cluster/test_tasks.py",
    "cluster/test_trials.py",
    "cluster/test_two_machines.py",
    "deploy/test_mlflow_server.py",
    "stages/test_stored.py",
]

# The files that take longest come first, the longest of them at the head: of several processes that take file by file
# (`make test`), none begins a long one when the others are about to end.
LONGEST_FIRST = [
    "cluster/step/test_engine.py",
    "cluster/test_slides.py",
    "cluster/test_tasks.py",
    "cluster/test_command.py",
    "cluster/test_trials.py",
    "deploy/test_mlflow_server.py",
    "stages/test_train.py",
    "sweep/test_command.py",
    "stages/test_add.py",
    "benchmarks/test_training.py",
    "stages/test_prepare.py",
    "test_tracking.py",
    "benchmarks/test_step.py",
    "stages/test_engines.py",
    "test_exactness.py",
    "sweep/test_runner.py",
    "test_ui.py",
    "stages/test_formats.py",
    "slides/test_annotation_memory.py",
    "demo/test_cohort.py",
    "test_cli.py",
    "network/test_describe.py",
    "stages/test_plan.py",
    "streaming/test_streamed.py",
    "demo/test_slide.py",
    "test_doctor.py",
    "streaming/test_devices.py",
    "stages/test_report.py",
    "stages/test_workers.py",
    "test_architecture.py",
    "streaming/test_tiles.py",
    "test_fuzz.py",
]


@pytest.hookimpl(tryfirst=True)  # before anything is set up for it
def pytest_runtest_setup() -> None:
    """Skip what would begin too late: `.ci/run` ends in time on a slow machine, too."""
    if time.time() > float(os.environ.get("TESTS_UNTIL_S", "inf")):
        pytest.skip("no time is left for it")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by file, long ones first; the order within a file stays. Mark the files that are slow as a whole."""
    slow = {Path(__file__).parent / name for name in SLOW}
    for item in items:
        if item.path in slow:
            item.add_marker(pytest.mark.slow)
    rank = {Path(__file__).parent / name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(scope="session")
def real_slide() -> Path:
    """Return the path of CMU-1-Small-Region.svs, fetched once; without a network the test is skipped."""
    path = SOURCE / "CMU-1-Small-Region.svs"
    SOURCE.mkdir(parents=True, exist_ok=True)
    with FileLock(SOURCE / ".fetch.lock"):  # tests run side by side
        try:
            fetch_real_slide(path)
        except GigaslideError as error:
            pytest.skip(f"NOT TESTED on the real slide: {error}")
    return path
