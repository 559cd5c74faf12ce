"""The progress of a sweep: one picture that changes in a terminal, one line per trial anywhere else."""

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gigaslide.console import console
from gigaslide.sweep.results import Result, Trial
from gigaslide.sweep.space import Cell, describe
from gigaslide.sweep.verdict import Running

_BAR_WIDTH = 40
_SHOW_S = 1.0


class Display:
    """Shows counts, the best trial so far, what runs, and the time left."""

    def __init__(self, total: int) -> None:
        """`total` trials will have ended when the sweep has."""
        self._total = total
        self._live = Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else None
        self._shown = 0.0
        self.counts = dict.fromkeys(("complete", "infeasible", "pruned", "failed"), 0)
        self._best: tuple[Cell, float] | None = None

    def __enter__(self) -> "Display":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def add(self, trial: Trial, result: Result, is_new: bool = True) -> None:
        """Count a trial that has ended; say so if it is a new one."""
        self.counts[result.state] += 1
        if result.state == "complete" and result.dice is not None and (not self._best or result.dice > self._best[1]):
            self._best = trial.cell, result.dice
        if is_new:
            done = sum(self.counts.values())
            console.print(f"{done:3d}/{self._total}  {describe(trial.cell)}: {in_words(result)}", markup=False)

    def show(self, running: Sequence[Running], left_s: float) -> None:
        """Show what runs, and the time left."""
        if self._live is None or time.monotonic() - self._shown < _SHOW_S:
            return
        self._shown = time.monotonic()
        done = sum(self.counts.values())
        head = Table.grid(padding=(0, 2))
        words = ", ".join(f"{count} {state}" for state, count in self.counts.items() if count)
        bar = ProgressBar(total=self._total, completed=done, width=_BAR_WIDTH)
        head.add_row(bar, Text(f"{done}/{self._total}"), Text(words), Text(f"about {duration(left_s)} left"))
        lines = [head]
        if self._best:
            lines.append(_line(f"best so far: {describe(self._best[0])}, Dice {self._best[1]:.4f}", "bold"))
        for one in running:
            curve = one.child.curve
            dice = f", Dice {max(curve):.4f}" if curve else ""
            seconds = time.monotonic() - one.started
            lines.append(_line(f"running: {describe(one.trial.cell)}, epoch {len(curve)}{dice}, {duration(seconds)}"))
        self._live.update(Group(*lines))


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
