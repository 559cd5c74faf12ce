"""How long trials will take: in which order they are started, and how much time is left."""

import json
import statistics
from collections.abc import Iterable, Sequence

from gigaslide.config import Settings
from gigaslide.sweep import feasibility
from gigaslide.sweep.space import Cell, trial_settings
from gigaslide.sweep.verdict import Here, Running

# Start of a process, TensorFlow, tracing. Measured.
_START_S = 10.0
# Validation after every epoch is the forward half of a step on fewer slides.
_WITH_VALIDATION = 1.2
_BYTES_PER_GB = 1e9


class Schedule:
    """Expected times of trials, corrected by those that have ended."""

    def __init__(self, settings: Settings, here: Here) -> None:
        """Take the settings of the sweep, and what it trains on."""
        self._settings, self._here = settings, here
        self._expected: dict[str, float] = {}
        self._expected_sum_s, self._taken_sum_s = 0.0, 0.0

    def order(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells, longest first: the last ones to end are then short, and jobs end together."""
        return sorted(cells, key=lambda cell: -self.expected_s(cell))

    def expected_s(self, cell: Cell) -> float:
        """Return the predicted seconds of a trial; 0 for one that breaks the constraint, which is not run."""
        key = json.dumps(cell, sort_keys=True)
        if key not in self._expected:
            self._expected[key] = self._predict_s(cell)
        return self._expected[key]

    def ended(self, cell: Cell, time_s: float) -> None:
        """A whole training took so long."""
        self._expected_sum_s += self.expected_s(cell)
        self._taken_sum_s += time_s

    def left_s(self, waiting: Iterable[Cell], running: Sequence[Running], unknown: int = 0) -> float:
        """Return the seconds until all of these have ended, and `unknown` more whose cells are not chosen yet."""
        expected = sum(map(self.expected_s, waiting))
        expected += unknown * statistics.fmean(self._expected.values()) if self._expected else 0.0
        for one in running:
            epochs = trial_settings(self._settings, one.trial.cell).train.epochs
            expected += self.expected_s(one.trial.cell) * (1 - len(one.child.curve) / epochs)
        ratio = self._taken_sum_s / self._expected_sum_s if self._expected_sum_s else 1.0
        # On the machines of a cluster more run than share one.
        return ratio * expected / max(self._settings.sweep.jobs, len(running))

    def _predict_s(self, cell: Cell) -> float:
        settings = trial_settings(self._settings, cell)
        jobs = self._settings.sweep.jobs
        budget_bytes = settings.memory.budget_gb * _BYTES_PER_GB
        height, width = self._settings.sweep.extent_px
        threads = self._here.threads
        if feasibility.at(settings, (height, width), budget_bytes, threads).peak_gb > settings.memory.budget_gb:
            return 0.0
        need, _ = feasibility.here(settings, self._here.shape, self._here.memory_bytes, jobs, threads)
        return _START_S + _WITH_VALIDATION * need.step_s * self._here.slides * settings.train.epochs
