"""One training step over a cluster, predicted: seconds of each sweep, bytes, what bounds it. No TensorFlow, no Ray.

    step  =  weights to every machine  +  the sum over the sweeps of  max(compute, network, storage, driver)

compute   the busiest worker's tiles at the seconds of memory/cost.py, with the round in which others have none left
network   parts of pieces and results to the driver, of the machine that sends or gets most
storage   pixels of the machine that reads most, compressed, in whole chunks; over the same link, one after the other,
          unless the storage has a link of its own
driver    one process hands out every task and adds every result: its time is serial, however many workers there are

Within a sweep these overlap: tasks are handed out ahead of the workers, and Ray fetches what a task reads while those
before it are computed. Sweeps are added as if each began when the one before it has ended; the engine begins a tile as
soon as what it reads is there, so this is a little on the slow side. Not counted: the way of a message, lost workers,
machines of different speed, and links between switches that are narrower than those of the machines together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from gigaslide.cluster.planning.runs import busy, share
from gigaslide.cluster.planning.spans import SegmentSpans, spans
from gigaslide.cluster.planning.traffic import SweepTraffic, held_bytes, traffic
from gigaslide.cluster.step.handing_out import MADE_BYTES
from gigaslide.cluster.step.pieces import Sweep
from gigaslide.memory import cost, model
from gigaslide.memory.cost import TileSeconds
from gigaslide.memory.model import Prediction
from gigaslide.network.graph import IMAGE, Graph
from gigaslide.streaming.plan import Plan, segments
from gigaslide.streaming.tiles import padded_shape

Bound = Literal["compute", "last round", "network", "storage", "driver"]
_BYTES_PER_GBIT = 1e9 / 8
# Of the driver's thread, measured on the processor of memory/cost.py with the default network: for each task, Ray's
# calls; for each task and worker, to look which of all tasks that are handed out are done; for each tile, which pieces
# it needs and who needs those that it makes, and adding its gradients.
DRIVER_TASK_S = 1.0e-3
DRIVER_WAIT_S = 1.2e-6
DRIVER_TILE_S = 0.2e-3
# Of a worker. For each task: Ray's way to it, its values out of and into the object store. For each tile, over what it
# takes within one process: which pieces it needs, and putting them together.
WORKER_TASK_S = 4e-3
WORKER_TILE_S = 0.6e-3
# What the driver and every worker hold of each tile of a plan (streaming/layout.py), measured.
LAYOUT_BYTES = 820


@dataclass(frozen=True)
class Cluster:
    """Workers on machines that are all alike. The driver is on the first of them."""

    workers: int
    workers_per_machine: int = 16
    threads: int = 1  # of a worker
    cores: int | None = None  # of a machine; None: one for every thread of its workers
    network_gbps: float = 10.0  # of a machine's link, in each direction
    storage_gbps: float | None = None  # that a machine reads when all of them do; None: over the same link

    @property
    def machines(self) -> int:
        """Number of machines."""
        return -(-self.workers // self.workers_per_machine)

    @property
    def of_machines(self) -> list[int]:
        """Workers of each."""
        return share(self.workers, self.machines)

    def speed(self, workers: int) -> float:
        """Return the speed of each of `workers` on one machine, in cores that nobody else slows down."""
        cores = self.cores or workers * self.threads
        return min(1.0, cores / workers) * cost.shared_speed(min(workers, cores))


@dataclass(frozen=True)
class Division:
    """A plan for an area, with all that does not depend on the cluster."""

    graph: Graph
    shape: tuple[int, int]
    plan: Plan
    spans: Sequence[SegmentSpans]
    seconds: Sequence[TileSeconds]  # of a tile of each segment
    prediction: Prediction  # of one worker, in a process of its own

    @property
    def tiles(self) -> int:
        """Tiles of all segments."""
        return sum(one.tiles for one in self.spans)


@dataclass(frozen=True)
class SweepForecast:
    """Seconds of one sweep."""

    traffic: SweepTraffic
    even_s: float  # of the computation, if it were the same for all workers
    busiest_s: float  # of the worker that has most
    network_s: float
    storage_s: float
    driver_s: float
    shares_link: bool  # of network and storage

    @property
    def link_s(self) -> float:
        """Seconds of what machines send and read."""
        return self.network_s + self.storage_s if self.shares_link else max(self.network_s, self.storage_s)

    @property
    def sweep(self) -> Sweep:
        """Its kind."""
        return self.traffic.sweep

    @property
    def total_s(self) -> float:
        """Seconds until it is done."""
        return max(self.busiest_s, self.link_s, self.driver_s)

    @property
    def spent_s(self) -> Mapping[Bound, float]:
        """The same seconds, by what they are spent on."""
        if self.busiest_s >= max(self.link_s, self.driver_s):
            return {"compute": self.even_s, "last round": self.busiest_s - self.even_s}
        if self.driver_s >= self.link_s:
            return {"driver": self.driver_s}
        return {"storage" if self.storage_s > self.network_s else "network": self.link_s}


@dataclass(frozen=True)
class Forecast:
    """A step of one plan over one cluster."""

    division: Division
    cluster: Cluster
    sweeps: Sequence[SweepForecast]
    broadcast_s: float  # weights from the driver to every other machine
    worker_bytes: int  # of a worker's process
    store_bytes: int  # of pieces, in the object store of the machine that has most
    machine_bytes: int  # of that machine, with its workers and the driver

    @cached_property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.broadcast_s + sum(sweep.total_s for sweep in self.sweeps)

    @property
    def margin_bytes(self) -> int:
        """Parts of pieces that travel between machines in a step, in all."""
        return sum(sweep.traffic.margin_bytes for sweep in self.sweeps)

    @property
    def machine_margin_bytes(self) -> int:
        """The same, into the machine that gets most."""
        return int(np.sum([sweep.traffic.in_bytes for sweep in self.sweeps], axis=0).max())

    @property
    def stored_bytes(self) -> int:
        """Pixels and labels that are read from the storage in a step, in all."""
        return int(sum(sweep.traffic.stored_bytes.sum() for sweep in self.sweeps))

    @property
    def result_bytes(self) -> int:
        """Results that travel to the driver's machine in a step, in all."""
        return int(sum(sweep.traffic.result_bytes[1:].sum() for sweep in self.sweeps))

    @cached_property
    def spent_s(self) -> dict[Bound, float]:
        """The step's seconds by what they are spent on."""
        found: dict[Bound, float] = dict.fromkeys(("compute", "last round", "network", "storage", "driver"), 0.0)
        found["network"] += self.broadcast_s
        for sweep in self.sweeps:
            for name, seconds in sweep.spent_s.items():
                found[name] += seconds
        return found

    @property
    def bound(self) -> Bound:
        """What most of the step is spent on."""
        return max(self.spent_s, key=lambda name: self.spent_s[name])


def divide(graph: Graph, shape: tuple[int, int], plan: Plan, seconds: Sequence[TileSeconds] | None = None) -> Division:
    """Return a plan with its tiles for an area of `shape` (y, x).

    Args:
        graph: the network.
        shape: of the area in pixels.
        plan: how it is visited; one worker's, with maps in memory.
        seconds: of a tile of each segment, measured in a worker; None: those of memory/cost.py, and WORKER_TILE_S.
    """
    if seconds is None:
        sizes, padded = model.map_sizes(graph, shape), padded_shape(graph, shape)
        alone = [cost.tile_s(graph, segment, plan, padded, sizes) for segment in segments(graph, plan.cuts)]
        seconds = [TileSeconds(tile.forward_s + WORKER_TILE_S, tile.backward_s + WORKER_TILE_S) for tile in alone]
    return Division(graph, shape, plan, spans(graph, plan, shape), seconds, model.predict(graph, shape, plan))


def forecast(division: Division, cluster: Cluster, with_maps: bool = True) -> Forecast:
    """Return what a step is predicted to take and to move.

    Args:
        division: the plan, with its tiles.
        cluster: what computes it.
        with_maps: count what is sent of maps; without, which takes no time, a step takes and holds at least this.
    """
    workers = cluster.of_machines
    counted = traffic(division.graph, division.spans, division.shape, workers, with_maps=with_maps)
    one = division.prediction
    layout = LAYOUT_BYTES * division.tiles
    worker = one.runtime_bytes + one.tiles_bytes + one.read_bytes + MADE_BYTES + layout
    # Pieces stay where they were made; what is cut out of them, and what comes from elsewhere, is held beside them.
    store = held_bytes(division.graph, division.spans, workers)
    for sweep in counted:
        store = store + sweep.in_bytes + sweep.out_bytes
    machines = [count * worker + int(pieces) for count, pieces in zip(workers, store, strict=True)]
    machines[0] += one.runtime_bytes + layout
    weights = 4 * division.graph.parameters
    return Forecast(
        division,
        cluster,
        [_sweep(division, cluster, sweep) for sweep in counted],
        (cluster.machines - 1) * weights / (cluster.network_gbps * _BYTES_PER_GBIT),
        worker,
        int(store.max()),
        max(machines),
    )


def _sweep(division: Division, cluster: Cluster, moved: SweepTraffic) -> SweepForecast:
    seconds = division.seconds[moved.segment]
    tile_s = seconds.forward_s if moved.sweep in ("forward", "statistics") else seconds.backward_s
    tiles = int(moved.tiles.sum())
    most = _most(division, moved)
    busiest, speed, tasks = 0.0, 0.0, 0
    for count, workers in zip(moved.tiles.tolist(), cluster.of_machines, strict=True):
        here = cluster.speed(workers)
        speed += workers * here
        does = busy(count, workers, most)
        tasks += does.tasks
        busiest = max(busiest, (does.tiles * tile_s + does.its_tasks * WORKER_TASK_S) / here)
    # The driver gets what the other machines send it.
    into, out = moved.in_bytes.copy(), moved.out_bytes + moved.result_bytes
    into[0] += int(moved.result_bytes[1:].sum())
    out[0] -= moved.result_bytes[0]
    link = cluster.network_gbps * _BYTES_PER_GBIT
    storage = link if cluster.storage_gbps is None else cluster.storage_gbps * _BYTES_PER_GBIT
    return SweepForecast(
        moved,
        tiles * tile_s / speed,
        busiest,
        max(int(into.max()), int(out.max())) / link,
        int(moved.stored_bytes.max()) / storage,
        tasks * (DRIVER_TASK_S + cluster.workers * DRIVER_WAIT_S) + tiles * DRIVER_TILE_S,
        cluster.storage_gbps is None,
    )


def _most(division: Division, moved: SweepTraffic) -> int:
    """Return how many tiles a task may have, so that what it makes is not too much (step/handing_out.py)."""
    here, graph = division.spans[moved.segment], division.graph
    if moved.sweep == "statistics":
        return MADE_BYTES
    made = [(here.segment.output, here.y.owned, here.x.owned)]
    if moved.sweep != "forward":
        inputs = [name for name in here.segment.inputs if name != IMAGE]
        made = [(name, here.y.reads[name], here.x.reads[name]) for name in inputs]
    size = sum(int(y.sizes.max() * x.sizes.max()) * graph.by_name[name].channels * 4 for name, y, x in made)
    return max(1, MADE_BYTES // max(1, size))
