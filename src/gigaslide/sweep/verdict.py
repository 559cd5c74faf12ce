"""What becomes of a trial: judged from how its process ended, what it measured, and the constraint."""

from dataclasses import dataclass, field, replace

from gigaslide.config import Settings
from gigaslide.machine import usable_threads
from gigaslide.sweep import analysis
from gigaslide.sweep.feasibility import Need
from gigaslide.sweep.process import Ending, TrialProcess
from gigaslide.sweep.results import Result, Trial
from gigaslide.sweep.space import trial_settings
from gigaslide.sweep.study import Study

_BYTES_PER_GB = 1e9


@dataclass(frozen=True)
class Here:
    """What the trials train on: the largest area (y, x), training steps in an epoch, and the machine.

    Of several machines, the one with most memory.
    """

    shape: tuple[int, int]
    slides: int
    memory_bytes: float
    threads: int = field(default_factory=usable_threads)
    machine: str = "this machine"


@dataclass
class Running:
    """A trial whose process runs, or is about to."""

    trial: Trial
    child: TrialProcess
    at_extent: Need
    here: Need
    is_alone: bool
    beats: int = 0
    curve_seen: int = 0  # epochs of its curve that were judged


def of(running: Running, ending: Ending, settings: Settings, here: Here) -> Result:
    """Return the result of a trial whose process has ended."""
    child, budget_gb = running.child, settings.memory.budget_gb
    curve, summary = child.curve, child.summary if ending.kind == "well" else {}
    measured = summary.get("peak_memory_gb")
    constraint_gb = running.at_extent.peak_gb
    height, width = settings.sweep.extent_px
    if measured is not None and here.shape[0] * here.shape[1] >= height * width:
        # Trained on an area as large as the constraint's: what was measured counts, too.
        constraint_gb = max(constraint_gb, measured)
    result = Result(
        state="complete",
        reason="",
        predicted_peak_gb=running.at_extent.peak_gb,
        predicted_step_s=running.at_extent.step_s,
        over_budget_gb=constraint_gb - budget_gb,
        dice=summary.get("validation_dice", max(curve, default=None)),
        dice_standard_error=summary.get("validation_dice_se"),
        step_time_s=summary.get("step_time_s", child.step_time_s),
        predicted_here_gb=running.here.peak_gb,
        peak_memory_gb=measured,
        epochs=len(curve),
        # Also what it took before it was killed and went on.
        time_s=max(child.seconds, summary.get("train_time_s", 0.0)),
        run_id=child.run_id,
    )
    if ending.kind == "stopped":
        reason = f"stopped after {len(curve)} epochs: its validation Dice stayed below the others'"
        return replace(result, state="pruned", reason=reason)
    if ending.kind in ("over budget", "out of memory"):
        # By how much nobody knows: the process did not get as far.
        above = max(result.over_budget_gb, running.here.peak_gb / 100)
        return replace(result, state="infeasible", reason=f"stopped: {ending.message}", over_budget_gb=above)
    if ending.kind != "well" or not summary:
        return replace(result, state="failed", reason=ending.message or "it left no results/train/summary.json")
    if result.over_budget_gb > 0:
        reason = f"measured {measured:.2f} GB, memory.budget_gb is {budget_gb:g}"
        return replace(result, state="infeasible", reason=reason)
    return result


def is_hopeless(running: Running, settings: Settings, study: Study) -> bool:
    """Whether a trial that runs has a Dice below the others', and one of them is better and no slower."""
    curve, seconds = running.child.curve, running.child.step_time_s
    if not curve or seconds is None or len(curve) == running.curve_seen:
        return False
    running.curve_seen = len(curve)
    epochs = trial_settings(settings, running.trial.cell).train.epochs
    if len(curve) >= epochs:
        return False  # it is about to end by itself
    results = [trial.result for trial in study.trials() if trial.result is not None]
    is_beaten = any(
        result.state == "complete"
        and result.dice is not None
        and result.step_time_s is not None
        and result.dice > max(curve)
        and result.step_time_s <= seconds
        for result in results
    )
    return is_beaten and analysis.is_hopeless(curve, study.curves(), epochs)


def refusal(settings: Settings, here: Here, at_extent: Need, needed: Need) -> Result | None:
    """Return the result of a trial that is not run because of what is predicted; None if it is to be run.

    Too much for the budget is infeasible. What is only too much for the machine, now, is a failure: it is tried again
    the next time, or by a machine that has more.
    """
    budget_gb, free_gb = settings.memory.budget_gb, here.memory_bytes / _BYTES_PER_GB
    height, width = settings.sweep.extent_px
    result = Result(
        state="infeasible",
        reason="",
        predicted_peak_gb=at_extent.peak_gb,
        predicted_step_s=at_extent.step_s,
        over_budget_gb=max(at_extent.peak_gb, needed.peak_gb) - budget_gb,
        predicted_here_gb=needed.peak_gb,
    )
    if at_extent.peak_gb > budget_gb:
        reason = f"{at_extent.peak_gb:.1f} GB predicted for {height} x {width} px, memory.budget_gb is {budget_gb:g}"
        return replace(result, reason=f"not run: {reason}")
    reason = (
        f"not run: {needed.peak_gb:.2f} GB predicted for the {here.shape[0]} x {here.shape[1]} px of the slides here"
    )
    if needed.peak_gb > budget_gb:
        return replace(result, reason=f"{reason}, memory.budget_gb is {budget_gb:g}")
    if needed.peak_gb > free_gb:
        return replace(result, state="failed", reason=f"{reason}, and {free_gb:.2f} GB are free on {here.machine}")
    return None
