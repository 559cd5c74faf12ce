"""`gigaslide predict` over two machines, one of which is lost, against the same without Ray.

    python -m tests.cluster.predict_with_a_node_lost [SLIDES] [client]

With `client`, over ray://HOST:PORT.

The machines are those of Ray's own test cluster, and the one that is lost is killed with -9 while it is at work on a
slide, once a quarter of them is done. All files of all slides must be the same, and their summaries but for times and
the memory that was measured.
"""

import contextlib
import json
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from gigaslide.prediction import outputs
from gigaslide.stages import predict
from gigaslide.stages.predict import Options
from tests.slides.files import write_slide
from tests.stages.test_predict import discs

MEASURED = ("time_s", "time_all_s", "peak_memory_gb")
MACHINE = {"num_cpus": 1, "memory": 4_000_000_000, "object_store_memory": 100_000_000}


def make_slides(folder: Path, count: int) -> None:
    """Write slides of unlike sizes, each with tissue elsewhere."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(count):
        shape = 500 + 37 * number, 620 + 23 * (number % 5)
        centres = random.integers(110, 390, (2, 2)).tolist()
        write_slide(folder / f"slide{number:02d}.tif", discs(shape, centres, 90 + number))


@dataclass
class Watch:
    """Loses a machine while it is at work, once there are `after` results."""

    out: Path
    cluster: Any
    machine: Any
    after: int
    lost: bool = False
    ended: bool = False

    def run(self) -> None:
        while not self.ended:
            results = len(list(self.out.glob("*/summary.json")))
            if not self.lost and results >= self.after and self._is_at_work():
                self.cluster.remove_node(self.machine, allow_graceful=False)
                self.lost = True
            time.sleep(0.02)

    def _is_at_work(self) -> bool:
        """Whether a worker of the machine has a slide; Ray names its processes after what they do."""
        (raylet,) = self.machine.all_processes["raylet"]
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(raylet.process.pid).children():
                if child.cmdline()[:1] == ["ray::_work"]:
                    return True
        return False


def predict_over(
    cluster: Any, machine: Any, options: Options, after: int = 0, address: str | None = None
) -> tuple[int, Watch]:
    """Predict over a cluster of which `machine` is lost; return the exit code and what was seen."""
    from gigaslide.cluster import slides as over

    watch = Watch(options.out, cluster, machine, after)
    watching = threading.Thread(target=watch.run)
    watching.start()
    try:
        code = over.predict(options, address or cluster.address)
    finally:
        watch.ended = True
        watching.join()
    return code, watch


def differences(one: Path, other: Path) -> list[str]:
    """Return the files, by name, that differ between two folders of outputs."""
    found = []
    names = {path.relative_to(out) for out in (one, other) for path in out.rglob("*") if path.is_file()}
    for name in sorted(names):
        if len(name.parts) == 1:
            continue  # of all slides together, with times
        if not ((one / name).is_file() and (other / name).is_file()):
            found.append(f"{name} (is missing)")
        elif name.name == outputs.SUMMARY:
            first, second = (json.loads((out / name).read_text()) for out in (one, other))
            found += [f"{name}: {key}" for key in first.keys() | second.keys() if first.get(key) != second.get(key)]
        elif (one / name).read_bytes() != (other / name).read_bytes():
            found.append(str(name))
    return [name for name in found if name.rpartition(": ")[2] not in MEASURED]


def answers(port: int) -> bool:
    """Whether something listens."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def main(count: int, client: bool) -> None:
    """Say what came out; exit code 1 if something differs."""
    from ray.cluster_utils import Cluster

    folder = Path(tempfile.mkdtemp())
    make_slides(folder / "slides", count)
    started = time.perf_counter()
    code = predict.run(Options((folder / "slides",), folder / "here"))
    here_s = time.perf_counter() - started
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    more = {"ray_client_server_port": port} if client else {}
    cluster = Cluster(initialize_head=True, head_node_args={**MACHINE, **more})
    machine = cluster.add_node(**MACHINE)
    address = f"ray://127.0.0.1:{port}" if client else cluster.address
    while client and not answers(port):
        time.sleep(0.2)
    started = time.perf_counter()
    code_there, watch = predict_over(
        cluster, machine, Options((folder / "slides",), folder / "there"), count // 4, address
    )
    there_s = time.perf_counter() - started
    cluster.shutdown()
    different = differences(folder / "here", folder / "there")
    results = len(list((folder / "there").glob("*/summary.json")))
    sys.stdout.write(
        f"{count} slides: {here_s:.1f} s without Ray (exit code {code}), {there_s:.1f} s over two machines of one core "
        f"with one of them lost (exit code {code_there}); {results} results, "
        f"{len(different)} differences {different}\n"
    )
    sys.exit(bool(different or results != count or not watch.lost))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12, "client" in sys.argv)
