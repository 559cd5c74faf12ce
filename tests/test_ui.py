"""The MLflow pages in a real browser: are runs there, and comparable?"""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gigaslide import tracking

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--no-first-run")  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tracking.Run]]:
    folder = tmp_path_factory.mktemp("ui")
    made = []
    for stride, dice in ((4, 0.981234), (8, 0.961234)):
        run = tracking.start("gigaslide", f"k11-s{stride}-seed0", folder / "mlruns")
        run.log_params({"network.stride": stride})
        run.log_metrics({"test_dice_mean": dice, "step_time_median_s": stride / 10, "peak_memory_gb": stride * 1.1})
        run.finish()
        made.append(run)
    return folder, made


@pytest.fixture(scope="module")
def server(runs: tuple[Path, list[tracking.Run]]) -> Iterator[str]:
    folder, _ = runs
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", "sqlite:///mlruns/mlflow.db",
               "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]  # fmt: skip
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log) as process,
    ):
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(240):
                try:
                    urllib.request.urlopen(f"{url}/health", timeout=5).close()
                    break
                except OSError:
                    assert process.poll() is None, (folder / "server.log").read_text()[-2000:]
                    time.sleep(0.5)
            yield url
        finally:
            process.terminate()


@pytest.mark.skipif(BROWSER is None, reason="NOT TESTED: no Chromium on this machine")
def test_two_runs_are_compared_on_dice_step_time_and_memory(
    runs: tuple[Path, list[tracking.Run]], server: str, tmp_path: Path
) -> None:
    _, made = runs
    ids = ",".join(f'"{run.run_id}"' for run in made)
    url = f'{server}/#/compare-runs?runs=[{ids}]&experiments=["1"]'
    page = subprocess.run(
        [str(BROWSER), *QUIET, f"--user-data-dir={tmp_path}", "--virtual-time-budget=60000", "--dump-dom", url],
        capture_output=True, text=True, check=False, timeout=240,
    ).stdout  # fmt: skip
    for text in ("k11-s4-seed0", "k11-s8-seed0", "network.stride", "test_dice_mean", "step_time_median_s",
                 "peak_memory_gb", "0.981", "0.961"):  # fmt: skip
        assert text in page, text
