"""A trial, what came out of it, and the table of all trials."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gigaslide.sweep.space import Cell, LeftOut, short_names

State = Literal["complete", "infeasible", "pruned", "failed"]
STATES: tuple[State, ...] = ("complete", "infeasible", "pruned", "failed")
# Columns of trials.json and trials.csv, after those of the parameters.
COLUMNS = (
    "state",
    "feasible",
    "reason",
    "dice",
    "dice_standard_error",
    "step_time_s",
    "predicted_step_s",
    "predicted_peak_gb",
    "predicted_here_gb",
    "peak_memory_gb",
    "epochs",
    "time_s",
    "run_id",
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """The end of a trial.

    `predicted_peak_gb` and `predicted_step_s` are for `sweep.extent_px` and its plan;
    `predicted_here_gb`, `peak_memory_gb` and `step_time_s` for the slides it was trained on.
    """

    state: State
    reason: str
    predicted_peak_gb: float
    predicted_step_s: float
    over_budget_gb: float  # of the constraint; 0 or less is feasible
    dice: float | None = None  # best of the epochs, mean over the validation slides
    dice_standard_error: float | None = None  # of that mean, over the slides
    step_time_s: float | None = None
    predicted_here_gb: float | None = None
    peak_memory_gb: float | None = None
    epochs: int = 0
    time_s: float = 0.0
    run_id: str | None = None

    @property
    def feasible(self) -> bool | None:
        """Whether the constraint holds; None where the trial failed, so that nobody knows."""
        return None if self.state == "failed" else self.state != "infeasible"

    def as_row(self) -> dict[str, Any]:
        """Return the columns COLUMNS."""
        values = {**asdict(self), "feasible": self.feasible}
        return {key: values[key] for key in COLUMNS}


@dataclass(frozen=True)
class Trial:
    """One trial of the study; `owner` and `beat` say who runs it and that it still does."""

    number: int
    cell: Cell
    is_running: bool
    is_waiting: bool
    owner: str | None
    beat: int
    result: Result | None

    @property
    def is_live(self) -> bool:
        """Whether its cell is taken: it waits, runs, or has a result that stands."""
        return self.is_running or self.is_waiting or (self.result is not None and self.result.state != "failed")


def rows(trials: Iterable[Trial], left_out: Iterable[LeftOut], parameters: Iterable[str]) -> list[dict[str, Any]]:
    """Return the table: of every cell its last trial, in the order of their numbers; then what was left out."""
    names = short_names(dict.fromkeys(parameters))
    last = {json.dumps(trial.cell, sort_keys=True): trial for trial in trials}
    table = []
    for trial in sorted(last.values(), key=lambda trial: trial.number):
        if trial.result is not None:
            found = trial.result.as_row()
        else:
            found = dict.fromkeys(COLUMNS) | {"state": "running" if trial.is_running else "waiting", "reason": ""}
        table.append({"number": trial.number, **_named(trial.cell, names), **found})
    for out in left_out:
        empty = dict.fromkeys(COLUMNS) | {"state": "left out", "reason": out.reason}
        table.append({"number": None, **_named(out.cell, names), **empty})
    return table


def as_csv(table: Iterable[Row]) -> str:
    """Return the table as CSV; an unknown value is empty."""
    table = list(table)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]) if table else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def _named(cell: Cell, names: Mapping[str, str]) -> dict[str, Any]:
    return {name: cell.get(key) for key, name in names.items()}
