"""The real thing, by hand: a sweep of eight trainings on two machines of Ray's test cluster, one of which is lost.

    python -m tests.cluster.sweep_with_a_node_lost

compares it with the same sweep without Ray, and takes some minutes.
"""

import json
import os
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from ray.cluster_utils import Cluster

from gigaslide.console import console
from tests.stages.project import command, gigaslide, make_project

EPOCHS = 9
SWEEP = {
    "space": {"network.kernel_size": [5, 7, 9, 11], "network.stride": [2, 4]},
    "values": {"train.epochs": EPOCHS},
    "prune": False,
    "jobs": 1,
}
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000, "memory": 4_000_000_000}


def table(folder: Path) -> dict[tuple[int, int], dict[str, Any]]:
    rows = json.loads((folder / "results/sweep/trials.json").read_text())
    return {(row["kernel_size"], row["stride"]): row for row in rows}


def mlflow(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "mlruns/mlflow.db") as database:
        return database.execute(query).fetchall()


def halfway(folder: Path) -> list[tuple[str, int]]:
    """Return name and process of the trials that have a third of their epochs and not all."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "gigaslide.sweep.child" in (process.info["cmdline"] or []):
            place = Path(process.cwd())
            progress = place / "progress.json"
            if place.is_relative_to(folder) and progress.exists():
                epochs = len(json.loads(progress.read_text())["curve"])
                if EPOCHS / 3 <= epochs < EPOCHS - 2:
                    found.append((f"{place.name} after {epochs} epochs", process.pid))
    return found


def lose_machine_of(pid: int, nodes: list[Any]) -> None:
    above = [process.pid for process in psutil.Process(pid).parents()]
    (pid,) = [one for node in nodes if (one := node.all_processes["raylet"][0].process.pid) in above]
    raylet = psutil.Process(pid)
    for process in [raylet, *raylet.children()]:
        process.kill()


def over_two_machines(folder: Path) -> str:
    """Run the sweep; return what was lost."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 100_000_000})
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    try:
        sweep = subprocess.Popen(command("sweep", "--cluster", cluster.address), cwd=folder)
        while not (running := halfway(folder)):
            if sweep.poll() is not None:
                raise SystemExit("the sweep ended before a trial was halfway")
            time.sleep(0.1)
        lost, pid = running[0]
        lose_machine_of(pid, nodes)
        console.print(f"killed with -9: the machine of {lost}")
        if sweep.wait(900) != 0:
            raise SystemExit(f"the sweep ended with exit code {sweep.returncode}")
        return lost
    finally:
        cluster.shutdown()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        alone, there = Path(name).resolve() / "alone", Path(name).resolve() / "there"
        for folder in (alone, there):
            folder.mkdir()
            make_project(folder, sweep=SWEEP)
        # Two side by side have one core each, as on the machines of the cluster.
        done = gigaslide(alone, "sweep", "--jobs", "2")
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        lost = over_two_machines(there)
        expected, found = table(alone), table(there)
        console.print(f"lost: {lost}; kernel, stride, state, Dice without Ray, Dice over two machines, epochs:")
        for cell, row in sorted(found.items()):
            same = "the same" if row["dice"] == expected[cell]["dice"] else "DIFFERENT"
            console.print(*cell, row["state"], expected[cell]["dice"], row["dice"], row["epochs"], same)
        runs = Counter(status for (status,) in mlflow(there, "select status from runs"))
        history = "select count(*), count(distinct step) from metrics where key = 'validation_dice' group by run_uuid"
        console.print(f"runs in MLflow: {dict(runs)}; of each its epochs, and different ones: {mlflow(there, history)}")
        if {cell: row["dice"] for cell, row in found.items()} != {cell: row["dice"] for cell, row in expected.items()}:
            raise SystemExit("the tables differ")
        if len(found) != 8 or {row["state"] for row in found.values()} != {"complete"} or runs != {"FINISHED": 9}:
            raise SystemExit("not every trial has ended, once")


if __name__ == "__main__":
    main()
