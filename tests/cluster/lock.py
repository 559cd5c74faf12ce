"""`--cluster auto` finds whatever cluster runs on this machine: tests that start one do so one after the other."""

from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

# Of a test cluster's head: a machine that is lost is missed after seconds, not minutes.
SOON_MISSED = {
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
    "health_check_initial_delay_ms": 500,
}


def one_cluster_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a lock that all processes of this test run share."""
    folder = tmp_path_factory.getbasetemp()
    # xdist gives every process a folder in that of the run.
    return FileLock(Path(folder.parent if folder.name.startswith("popen-") else folder) / "ray.lock")
