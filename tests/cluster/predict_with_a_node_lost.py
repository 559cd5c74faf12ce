"""`gigaslide predict` over two machines, one of which is lost, against the same without Ray.

    python -m tests.cluster.predict_with_a_node_lost [SLIDES]

The machines are those of Ray's own test cluster, and the one that is lost is killed with -9, with all that it is at
work on, once the first slide is done. All files of all slides must be the same, and their summaries but for times and
the memory that was measured.
"""

import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

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
        shape = 300 + 37 * number, 420 + 23 * (number % 5)
        centres = random.integers(60, 240, (2, 2)).tolist()
        write_slide(folder / f"slide{number:02d}.tif", discs(shape, centres, 50 + number))


@dataclass
class Watch:
    """Sees the tries in a folder of outputs, and loses a machine once there is a slide."""

    out: Path
    cluster: Any
    machine: Any
    tries: set[str] = field(default_factory=set)
    lost: bool = False
    ended: bool = False

    def run(self) -> None:
        while not self.ended:
            self.tries |= {path.name for path in self.out.glob(".tries/*")}
            if not self.lost and list(self.out.glob("slide*/summary.json")):
                self.cluster.remove_node(self.machine, allow_graceful=False)
                self.lost = True
            time.sleep(0.02)


def predict_over(cluster: Any, machine: Any, slides: Path, out: Path) -> tuple[int, Watch]:
    """Predict over a cluster of which `machine` is lost; return the exit code and what was seen."""
    from gigaslide.cluster import slides as over

    watch = Watch(out, cluster, machine)
    watching = threading.Thread(target=watch.run)
    watching.start()
    try:
        code = over.predict(Options((slides,), out), cluster.address)
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


def main(count: int) -> None:
    """Say what came out; exit code 1 if something differs."""
    from ray.cluster_utils import Cluster

    folder = Path(tempfile.mkdtemp())
    make_slides(folder / "slides", count)
    started = time.perf_counter()
    code = predict.run(Options((folder / "slides",), folder / "here"))
    here_s = time.perf_counter() - started
    cluster = Cluster(initialize_head=True, head_node_args=MACHINE)
    machine = cluster.add_node(**MACHINE)
    started = time.perf_counter()
    code_there, watch = predict_over(cluster, machine, folder / "slides", folder / "there")
    there_s = time.perf_counter() - started
    cluster.shutdown()
    different = differences(folder / "here", folder / "there")
    results = len(list((folder / "there").glob("*/summary.json")))
    sys.stdout.write(
        f"{count} slides: {here_s:.1f} s without Ray (exit code {code}), {there_s:.1f} s over two machines of one core "
        f"with one of them lost (exit code {code_there}); {results} results, at least {len(watch.tries)} tries, "
        f"{len(different)} differences {different}\n"
    )
    sys.exit(bool(different or results != count or not watch.lost))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
