"""Which memory a trial needs: at the extent of the constraint, and for the slides that are here. No TensorFlow."""

from dataclasses import dataclass
from pathlib import Path

from gigaslide.config import Settings
from gigaslide.machine import usable_threads
from gigaslide.memory import plan_file, planner
from gigaslide.memory.planner import Candidate
from gigaslide.network.describe import describe
from gigaslide.streaming.plan import WHOLE, whole_plan
from gigaslide.sweep.space import Space, trial_settings

# What machines have; the map of feasibility shows them side by side.
BUDGETS_GB = (16.0, 32.0, 64.0, 96.0, 128.0)
PLANS = {"whole image": WHOLE, "streamed (auto)": "auto"}
_BYTES_PER_GB = 1e9


@dataclass(frozen=True)
class Need:
    """Predicted for one step: peak of the process in GB, and seconds on this machine."""

    peak_gb: float
    step_s: float
    plan: str


def at(settings: Settings, shape: tuple[int, int], budget_bytes: float, workers: int | None = None) -> Need:
    """Return what `memory.plan` of a trial's settings needs for an area of `shape`.

    `auto` is the plan that would be chosen in the budget or, where none fits, the smallest one: the constraint then
    says by how much it is missed.

    Raises:
        UsageError: `memory.plan` names a file that is no plan for this network.
    """
    graph, workers = describe(settings.network), workers or usable_threads()
    if settings.memory.plan != "auto":
        name = settings.memory.plan
        plan = whole_plan() if name == WHOLE else plan_file.read(Path(name), graph)
        return _need(planner.candidate(graph, shape, plan, workers))
    found = planner.candidates(graph, shape, workers)
    try:
        return _need(planner.choose(found, shape, budget_bytes))
    except planner.DoesNotFit:
        return _need(min(found, key=lambda candidate: candidate.peak_bytes))


def here(
    settings: Settings, shape: tuple[int, int], memory_bytes: float, jobs: int, threads: int
) -> tuple[Need, float]:
    """Return what one of `jobs` trials side by side needs for the slides here, and its share of the memory in bytes.

    `memory_bytes` and `threads` are those of the machine that they share.
    """
    share_bytes = min(settings.memory.budget_gb * _BYTES_PER_GB, memory_bytes) / jobs
    return at(settings, shape, share_bytes, max(1, threads // jobs)), share_bytes


def peaks(settings: Settings, space: Space) -> dict[str, dict[tuple[int, int], float]]:
    """Return the predicted GB at `sweep.extent_px` of every kernel size and stride, for each of PLANS.

    Of cells that differ in something else, the one that needs least counts. Empty where the space has no cells.
    """
    height, width = settings.sweep.extent_px
    found: dict[str, dict[tuple[int, int], float]] = {name: {} for name in PLANS}
    for cell in space.cells or []:
        trial = trial_settings(settings, cell)
        key = trial.network.kernel_size, trial.network.stride
        for name, plan in PLANS.items():
            # The whole image computes in float32, and nothing else.
            asked = trial.replaced({"memory.plan": plan} | ({"train.precision": "float32"} if plan == WHOLE else {}))
            peak_gb = at(asked, (height, width), max(BUDGETS_GB) * _BYTES_PER_GB).peak_gb
            found[name][key] = min(peak_gb, found[name].get(key, peak_gb))
    return found


def _need(candidate: Candidate) -> Need:
    return Need(candidate.peak_bytes / _BYTES_PER_GB, candidate.step_s, candidate.plan.name)
