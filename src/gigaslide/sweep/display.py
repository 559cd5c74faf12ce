"""The progress of a sweep: one picture that changes in a terminal, one line per trial anywhere else."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gigaslide.console import console
from gigaslide.sweep.results import STATES, Result, Trial
from gigaslide.sweep.space import Cell, describe
from gigaslide.sweep.verdict import Running

_BAR_WIDTH = 40
_SHOW_S = 1.0


class Display:
    """Shows counts, the best trial so far, what runs, and the time left."""

    def __init__(self) -> None:
        """Nothing is shown before `with`."""
        self._live = Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else None
        self._shown = 0.0

    def __enter__(self) -> "Display":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def is_due(self) -> bool:
        """Whether it is time to show what runs."""
        return self._live is not None and time.monotonic() - self._shown >= _SHOW_S

    def say(self, trial: Trial, result: Result, trials: Sequence[Trial], to_come: int) -> None:
        """Say that a trial has ended, in a line that stays; `to_come` trials are not in the study yet."""
        done = len(_results(trials))
        total = done + sum(other.result is None for other in trials) + to_come
        console.print(f"{done:3d}/{total}  {describe(trial.cell)}: {in_words(result)}", markup=False)

    def show(self, trials: Sequence[Trial], left: int, running: Sequence[Running], left_s: float) -> None:
        """Show counts, the best trial so far, what runs here, and the time left for `left` trials that do not run."""
        if self._live is None:
            return
        self._shown = time.monotonic()
        results = _results(trials)
        total = len(results) + sum(trial.is_running for trial in trials) + left
        counts = Counter(result.state for _, result in results)
        head = Table.grid(padding=(0, 2))
        words = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
        bar = ProgressBar(total=total, completed=len(results), width=_BAR_WIDTH)
        head.add_row(bar, Text(f"{len(results)}/{total}"), Text(words), Text(f"about {duration(left_s)} left"))
        lines = [head]
        best = max(
            ((cell, result.dice) for cell, result in results if result.state == "complete" and result.dice is not None),
            key=lambda found: found[1],
            default=None,
        )
        if best is not None:
            lines.append(_line(f"best so far: {describe(best[0])}, Dice {best[1]:.4f}", "bold"))
        for one in running:
            curve = one.child.curve
            dice = f", Dice {max(curve):.4f}" if curve else ""
            state = f", epoch {len(curve)}{dice}, {duration(one.child.seconds)}"
            if one.child.where is None:
                doing, state = "waits for room", ""
            else:
                doing = f"running on {one.child.where}" if one.child.where else "running"
            lines.append(_line(f"{doing}: {describe(one.trial.cell)}{state}"))
        self._live.update(Group(*lines))


def _results(trials: Sequence[Trial]) -> list[tuple[Cell, Result]]:
    """Return the last result of every cell that has one and does not wait or run again."""
    last = {json.dumps(trial.cell, sort_keys=True): trial for trial in trials}
    return [(trial.cell, trial.result) for trial in last.values() if trial.result is not None]


def in_words(result: Result) -> str:
    """Return a result in one line."""
    if result.state == "complete":
        return (
            f"Dice {result.dice:.4f} +- {result.dice_standard_error or 0:.4f}, {result.step_time_s:.3g} s a step, "
            f"{result.peak_memory_gb:.2f} GB; {result.predicted_peak_gb:.1f} GB predicted at the sweep's extent"
        )
    return f"{result.state}, {result.reason}"


def duration(seconds: float) -> str:
    """Return a time for people: 40 s, 3 min, 2 h 10 min."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _line(text: str, style: str = "") -> Table:
    grid = Table.grid()
    grid.add_row(Text(text, style=style))
    return grid
