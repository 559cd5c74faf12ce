"""`gigaslide COMMAND --cluster ADDRESS`.

train: the training of stages/train.py, its steps computed by a cluster. sweep: that of sweep/command.py, its trials on
the machines of a cluster.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gigaslide.cluster import connection
from gigaslide.cluster.step.handing_out import MADE_BYTES
from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.errors import UsageError
from gigaslide.machine import usable_threads
from gigaslide.memory import model
from gigaslide.memory.planner import DoesNotFit
from gigaslide.network.describe import describe
from gigaslide.stages.engines import Choice
from gigaslide.streaming.plan import READ_AHEAD, WHOLE

if TYPE_CHECKING:
    import keras

    from gigaslide.streaming.engine import Engine

# Beside the maps, the object store holds weights, results on their way, and pieces of gradients that overlap.
_STORE_SHARE = 1.5
_STORE_BYTES = 200_000_000
_SMALLEST_STORE_BYTES = 100_000_000  # Ray accepts no less than 75 MB


def train(settings: Settings) -> None:
    """Train as `stages.train.run`, over the cluster at `cluster.address`; the result is the same, bit for bit.

    Raises:
        UsageError: Ray is not installed, or the plan is the whole image, which is one tile.
        GigaslideError: there is no such cluster, or as `stages.train.run`.
    """
    from gigaslide.stages import train as stage

    connection.check_installed()
    stage.run(settings, open_engine=_open)


def sweep(settings: Settings, fresh: bool) -> int:
    """Run the sweep as `sweep.command.run`, its trials on the machines of the cluster at `cluster.address`.

    Raises:
        UsageError: Ray is not installed, or as `sweep.command.run`.
        GigaslideError: there is no such cluster, or as `sweep.command.run`.
    """
    from gigaslide.cluster.trials import Machines
    from gigaslide.sweep import command

    address = str(settings.cluster.address)
    # A trial computes on its machine alone.
    settings = settings.replaced({"cluster.address": None})
    with connection.connected(address, 1, usable_threads(), _SMALLEST_STORE_BYTES, local_gpus=None) as ray:
        return command.run(settings, fresh, Machines(ray, settings))


@contextmanager
def _open(settings: Settings, choice: Choice, network: "keras.Model") -> Iterator["Engine"]:
    from gigaslide.cluster.step.engine import ClusterStreamed
    from gigaslide.cluster.step.pool import RayPool

    cluster, train, plan = settings.cluster, settings.train, choice.candidate.plan
    if plan.name == WHOLE:
        raise UsageError("memory.plan: whole is one tile, for one worker: with a cluster use another plan, as auto")
    address, threads = str(cluster.address), cluster.threads_per_worker
    workers = cluster.workers or max(1, usable_threads() // threads)
    store_bytes = _store_bytes(settings, choice, workers)
    with connection.connected(address, threads, workers, store_bytes):
        found = RayPool(threads, cluster.workers)
        console.print(f"cluster {address}: {found.workers} workers of {threads} thread(s)", markup=False)
        yield ClusterStreamed(found, network, plan, train.dice_weight, train.cross_entropy_weight, train.precision)


def _store_bytes(settings: Settings, choice: Choice, workers: int) -> int:
    """Return what the object store of this machine may take: what the maps need, or what the workers leave free.

    Raises:
        DoesNotFit: they leave too little.
    """
    predicted, plan = choice.candidate.prediction, choice.candidate.plan
    graph = describe(settings.network)
    maps = model.kept_bytes(graph, plan.cuts, model.map_sizes(graph, choice.shape), 4)
    tiles = (predicted.tiles_bytes + predicted.read_bytes // (1 + READ_AHEAD)) / plan.workers
    worker = predicted.runtime_bytes + tiles + MADE_BYTES
    left = choice.budget_bytes - predicted.runtime_bytes - workers * worker
    if left < _SMALLEST_STORE_BYTES:
        raise DoesNotFit(
            f"{workers} workers of {worker / 1e9:.2f} GB and the process that leads them do not fit "
            f"{choice.budget_bytes / 1e9:.2f} GB: set cluster.workers to fewer, or memory.budget_gb to more"
        )
    return int(min(left, _STORE_SHARE * maps + _STORE_BYTES))
