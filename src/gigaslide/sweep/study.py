"""The study in Optuna: what is to be tried, what is being tried and by whom, what came out.

Several processes, on several machines, may work on one study; nobody is in charge. Every cell of a grid waits as a
trial; who sets it running has it. SQLite knows no row locks, so there a file lock is held meanwhile. Should a cell
stand twice in the study all the same, it belongs to the live trial with the lowest number.

A trial counts as infeasible (Optuna: complete, with a constraint above 0) when it needs too much memory, never as
failed.
"""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from typing import Any

import optuna
from filelock import FileLock
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import DuplicatedStudyError, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from gigaslide.config import Span
from gigaslide.sweep.results import Result, Trial
from gigaslide.sweep.space import Cell, Space
from gigaslide.sweep.storage import open_storage

_IDENTITY, _PARENT_RUN, _OWNER, _BEAT, _RESULT, _CURVE, _DROPPED = (
    "identity",
    "parent_run_id",
    "owner",
    "beat",
    "result",
    "curve",
    "dropped",
)
_ENDS = {"pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
_JSON = "json:"
# How often TPE may propose what is invalid or known before the space counts as exhausted.
_PROPOSALS = 100


class Study:
    """An Optuna study with two objectives and a memory constraint."""

    def __init__(self, url: str, name: str, space: Space, seed: int) -> None:
        """Open the study, or create it.

        Raises:
            UsageError: the storage cannot be opened.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._storage, lock_file = open_storage(url)
        self._lock: AbstractContextManager[Any] = nullcontext() if lock_file is None else FileLock(lock_file)
        self._space = space
        with self._lock:
            self._study = self._open(name)
        finished = len(self._study.get_trials(deepcopy=False))
        # Otherwise a study that goes on would draw the same values again.
        self._study.sampler = optuna.samplers.TPESampler(seed=seed + finished, n_startup_trials=8)

    def _open(self, name: str) -> optuna.Study:
        try:
            study = optuna.create_study(storage=self._storage, study_name=name, directions=["maximize", "minimize"])
        except DuplicatedStudyError:
            return optuna.load_study(study_name=name, storage=self._storage)
        # For optuna-dashboard.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study.set_metric_names(["validation Dice", "step time (s)"])
        return study

    @property
    def identity(self) -> dict[str, Any] | None:
        """What the study was made with: the settings and slides that decide its results."""
        return self._study.user_attrs.get(_IDENTITY)

    def set_identity(self, identity: Mapping[str, Any]) -> None:
        """Note what the study is made with."""
        self._study.set_user_attr(_IDENTITY, dict(identity))

    def parent_run_id(self, place: str) -> str | None:
        """Return the MLflow run that the trials' runs belong to in a project's folder; `place` is the folder's name."""
        found: str | None = self._study.user_attrs.get(f"{_PARENT_RUN} {place}")
        return found

    def set_parent_run_id(self, place: str, run_id: str) -> None:
        """Note that run."""
        self._study.set_user_attr(f"{_PARENT_RUN} {place}", run_id)

    def trials(self) -> list[Trial]:
        """Return the trials in the order of their numbers; without those that were not tried after all."""
        return [_trial(frozen) for frozen in self._frozen() if _DROPPED not in frozen.user_attrs]

    def enqueue(self, cells: Sequence[Cell]) -> None:
        """Let every cell wait that has no live trial; in this order."""
        with self._lock:
            taken = [trial.cell for trial in self.trials() if trial.is_live]
            for cell in cells:
                if cell not in taken:
                    self._study.enqueue_trial({key: _storable(value) for key, value in cell.items()})

    def claim(self) -> Trial | None:
        """Set the next waiting trial running, for this process; None if none waits."""
        with self._lock:
            for frozen in self._frozen((TrialState.WAITING,)):
                try:
                    if not self._storage.set_trial_state_values(frozen._trial_id, TrialState.RUNNING):
                        continue
                except UpdateFinishedTrialError:
                    continue
                claimed = optuna.trial.Trial(self._study, frozen._trial_id)
                for key, distribution in self._distributions().items():
                    _suggest(claimed, key, distribution)
                trial = _trial(self._storage.get_trial(frozen._trial_id))
                if not self._is_twin(trial):
                    return trial
                self._drop(trial, "another trial has its cell")
        return None

    def propose(self, is_invalid: Callable[[Cell], str | None]) -> Trial | None:
        """Let TPE choose the next trial of a sampled space; None if it finds nothing new.

        Args:
            is_invalid: called with a cell; returns why it makes no network, or None.
        """
        for _ in range(_PROPOSALS):
            with self._lock, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                asked = self._study.ask(self._distributions())
            trial = _trial(self._storage.get_trial(asked._trial_id))
            if is_invalid(trial.cell) is None and not self._is_twin(trial):
                return trial
            # Not tried, and nothing that the next proposals should count with.
            self._drop(trial, "invalid, or known")
        return None

    def beat(self, trial: Trial, owner: str, count: int) -> None:
        """Say that the trial is run by `owner`, and still is: `count` differs from the last time."""
        trial_id = self._id(trial.number)
        # Another process may have declared it dead.
        with suppress(UpdateFinishedTrialError):
            self._storage.set_trial_user_attr(trial_id, _OWNER, owner)
            self._storage.set_trial_user_attr(trial_id, _BEAT, count)

    def tell(self, trial: Trial, result: Result, curve: Sequence[float] = ()) -> bool:
        """Close a trial; False if another process has declared it dead meanwhile."""
        trial_id = self._id(trial.number)
        try:
            for key, value in {**result.as_row(), _RESULT: asdict(result), _CURVE: list(curve)}.items():
                self._storage.set_trial_user_attr(trial_id, key, value)
            if result.state in ("complete", "infeasible"):
                open_trial = optuna.trial.Trial(self._study, trial_id)
                open_trial.set_constraint("memory_gb_over_budget", result.over_budget_gb)
        except UpdateFinishedTrialError:
            return False
        if result.state in ("complete", "infeasible"):
            # A trial without a Dice has the worst one; its time is the predicted one.
            values = [result.dice or 0.0, result.step_time_s or result.predicted_step_s]
            self._study.tell(trial.number, values, TrialState.COMPLETE)
        else:
            self._study.tell(trial.number, state=_ENDS[result.state])
        return True

    def release(self, trial: Trial, reason: str) -> None:
        """Give up a running trial whose process is dead, and let its cell of a grid wait again."""
        try:
            self._drop(trial, reason)
        except (UpdateFinishedTrialError, ValueError):
            return  # another process did, or it has ended after all
        if self._space.cells is not None:
            self.enqueue([trial.cell])

    def curves(self) -> list[list[float]]:
        """Return the validation Dice after each epoch of the trials that have ended."""
        frozen = self._frozen((TrialState.COMPLETE, TrialState.PRUNED))
        return [trial.user_attrs[_CURVE] for trial in frozen if trial.user_attrs.get(_CURVE)]

    def _frozen(self, states: tuple[TrialState, ...] | None = None) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=states)

    def _id(self, number: int) -> int:
        return next(frozen._trial_id for frozen in self._frozen() if frozen.number == number)

    def _drop(self, trial: Trial, reason: str) -> None:
        """Close a trial that was not tried; nobody gets to see it."""
        self._storage.set_trial_user_attr(self._id(trial.number), _DROPPED, reason)
        self._study.tell(trial.number, state=TrialState.FAIL)

    def _is_twin(self, trial: Trial) -> bool:
        return any(
            other.is_live and other.number < trial.number and other.cell == trial.cell for other in self.trials()
        )

    def _distributions(self) -> dict[str, BaseDistribution]:
        return {key: _distribution(parameter) for key, parameter in self._space.parameters.items()}


def delete(url: str, name: str) -> None:
    """Delete a study with its trials; nothing happens if there is none."""
    storage, lock_file = open_storage(url)
    with nullcontext() if lock_file is None else FileLock(lock_file), suppress(KeyError):
        optuna.delete_study(study_name=name, storage=storage)


def _trial(frozen: FrozenTrial) -> Trial:
    # A process may have died while it gave a waiting trial its values one by one.
    params = {**frozen.system_attrs.get("fixed_params", {}), **frozen.params}
    result = frozen.user_attrs.get(_RESULT)
    return Trial(
        frozen.number,
        {key: _loaded(value) for key, value in params.items()},
        frozen.state == TrialState.RUNNING,
        frozen.state == TrialState.WAITING,
        frozen.user_attrs.get(_OWNER),
        frozen.user_attrs.get(_BEAT, 0),
        Result(**result) if result and frozen.state.is_finished() else None,
    )


def _distribution(parameter: list[Any] | Span) -> BaseDistribution:
    if isinstance(parameter, Span):
        if isinstance(parameter.low, int) and isinstance(parameter.high, int):
            # space.make has seen to the step.
            return IntDistribution(parameter.low, parameter.high, parameter.log, int(parameter.step or 1))
        return FloatDistribution(parameter.low, parameter.high, parameter.log, parameter.step)
    return CategoricalDistribution([_storable(value) for value in parameter])


def _suggest(trial: optuna.Trial, name: str, distribution: BaseDistribution) -> None:
    """Give a waiting trial its value, which Optuna takes for granted only once it is suggested."""
    if isinstance(distribution, CategoricalDistribution):
        trial.suggest_categorical(name, distribution.choices)
    elif isinstance(distribution, IntDistribution):
        trial.suggest_int(name, distribution.low, distribution.high, step=distribution.step, log=distribution.log)
    elif isinstance(distribution, FloatDistribution):
        trial.suggest_float(name, distribution.low, distribution.high, step=distribution.step, log=distribution.log)


def _storable(value: Any) -> Any:
    """Return a value as Optuna stores it: a list (network.filters) as text."""
    return _JSON + json.dumps(value) if isinstance(value, list) else value


def _loaded(value: Any) -> Any:
    return json.loads(value.removeprefix(_JSON)) if isinstance(value, str) and value.startswith(_JSON) else value
