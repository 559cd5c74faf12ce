"""From the settings to the engine that computes: which plan, which threads, which device."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from gigaslide.config import Settings
from gigaslide.errors import UsageError
from gigaslide.machine import usable_threads
from gigaslide.memory import model, plan_file, planner
from gigaslide.memory.planner import Candidate, DoesNotFit
from gigaslide.network.describe import describe
from gigaslide.streaming.plan import WHOLE, whole_plan

if TYPE_CHECKING:
    import keras

    from gigaslide.streaming.engine import Engine

_BYTES_PER_GB = 1e9
# What the process takes between the choice of a plan and its first step: TensorFlow's context, the network, the traced
# functions. Measured.
_START_BYTES = 90_000_000
# What reading stores takes: TensorStore's threads and buffers, and the cache of decoded chunks with what comes with it,
# but no more than the pixels themselves (4 bytes with their labels). Measured.
_STORE_BYTES = 40_000_000
_STORE_CACHE_BYTES = 120_000_000
_STORE_BYTES_PER_PX = 4
# Maps on disk and the rest of the run share a disk.
_FREE_DISK_SHARE = 0.9


@dataclass(frozen=True)
class Choice:
    """A plan for the largest of some areas, and the memory that it has to keep to."""

    candidate: Candidate
    shape: tuple[int, int]
    budget_bytes: float


def choose(
    settings: Settings, shapes: Sequence[tuple[int, int]], from_stores: bool = True, maps_elsewhere: bool = False
) -> Choice:
    """Choose the plan for areas of these `shapes` (y, x), as `memory.plan` says. Needs no TensorFlow.

    The budget is `memory.budget_gb`, or what the machine has free if that is less. Reading `from_stores` takes a part.
    With `maps_elsewhere`, on the machines of a cluster, a plan that a file says need not fit with its maps.

    Raises:
        DoesNotFit: no plan keeps to the budget.
        UsageError: `memory.plan` names a file that is no plan for this network.
    """
    process, free = psutil.Process().memory_info().rss, psutil.virtual_memory().available
    budget_bytes = min(settings.memory.budget_gb * _BYTES_PER_GB, float(process + free))
    shape = max(shapes, key=lambda shape: shape[0] * shape[1])
    pixels = sum(height * width for height, width in shapes)
    reading = _STORE_BYTES + min(_STORE_CACHE_BYTES, _STORE_BYTES_PER_PX * pixels) if from_stores else 0
    runtime_bytes = start_bytes() + reading
    graph, cores = describe(settings.network), usable_threads()
    if settings.memory.plan == "auto":
        found = planner.candidates(graph, shape, cores, runtime_bytes=runtime_bytes)
        chosen = planner.choose(found, shape, budget_bytes)
    else:
        name = settings.memory.plan
        plan = whole_plan() if name == WHOLE else plan_file.read(Path(name), graph)
        chosen = planner.candidate(graph, shape, plan, cores, runtime_bytes=runtime_bytes)
    is_given = settings.memory.plan not in ("auto", WHOLE)
    here_bytes = chosen.peak_bytes - (chosen.prediction.maps_bytes if maps_elsewhere and is_given else 0)
    if here_bytes > budget_bytes:
        raise DoesNotFit(
            f"memory.plan: {settings.memory.plan} needs {here_bytes / 1e9:.2f} GB for {shape[0]} x {shape[1]} "
            f"px, and the budget is {budget_bytes / 1e9:.2f} GB: memory.plan: auto finds one that fits, if there is any"
        )
    if not maps_elsewhere:
        _check_disk(chosen, shape, settings)
    return Choice(chosen, shape, budget_bytes)


def choose_here(settings: Settings, shapes: Sequence[tuple[int, int]]) -> Choice:
    """Choose as `choose`, but where a plan is for the machines of a cluster, the best one that fits here.

    Raises:
        DoesNotFit: no plan keeps to the budget.
        UsageError: as `choose`.
    """
    try:
        return choose(settings, shapes)
    except DoesNotFit:
        if settings.cluster.address is None:
            raise
        return choose(settings.replaced({"memory.plan": "auto"}), shapes)


def start_bytes() -> int:
    """Return what the process will hold when its first step begins, seen from when a plan is chosen."""
    return int(psutil.Process().memory_info().rss) + _START_BYTES


def build(settings: Settings, choice: Choice, network: "keras.Model", scratch: Path) -> "Engine":
    """Return the engine around `network`; `scratch` is the folder for maps on disk."""
    # Not above: the choice needs no TensorFlow.
    from gigaslide.streaming.streamed import Streamed
    from gigaslide.streaming.whole import WholeImage

    plan, train = choice.candidate.plan, settings.train
    if plan.name == WHOLE:
        return WholeImage(network, settings.network.total_stride, train.dice_weight, train.cross_entropy_weight)
    if plan.storage == "disk":
        scratch.mkdir(parents=True, exist_ok=True)
    return Streamed(network, plan, train.dice_weight, train.cross_entropy_weight, train.precision, scratch)


def _check_disk(chosen: Candidate, shape: tuple[int, int], settings: Settings) -> None:
    if chosen.plan.storage != "disk":
        return
    graph = describe(settings.network)
    sizes = model.map_sizes(graph, shape)
    needed = model.kept_bytes(graph, chosen.plan.cuts, sizes, 4)
    free = shutil.disk_usage(".").free
    if needed > _FREE_DISK_SHARE * free:
        raise UsageError(
            f"the maps of plan {chosen.plan.name} take {needed / 1e9:.1f} GB on disk and {free / 1e9:.1f} GB are free "
            "in the project's folder: free some, or raise memory.budget_gb so that they fit into memory"
        )
