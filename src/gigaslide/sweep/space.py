"""What a sweep tries: every combination of values that makes a valid network, or ranges to choose from."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gigaslide.config import Settings, Span
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.memory import plan_file
from gigaslide.network.describe import describe as network_graph
from gigaslide.streaming.plan import WHOLE

# Settings by dotted key (`network.kernel_size`).
Cell = Mapping[str, Any]

AUTO = "auto"
_COUNTABLE = 10**6  # cells of a space that is still counted one by one


@dataclass(frozen=True)
class LeftOut:
    """A combination that makes no valid network."""

    cell: Cell
    reason: str


@dataclass(frozen=True)
class Space:
    """The space of a study: all `cells` of a small one; None is one that is sampled."""

    parameters: Mapping[str, list[Any] | Span]
    cells: list[Cell] | None
    left_out: list[LeftOut]


def make(settings: Settings) -> Space:
    """Return the space that `sweep.space` declares.

    Raises:
        UsageError: no combination is valid, or a range does not fit its setting.
    """
    sweep = settings.sweep
    parameters = {key: _of_the_settings_type(settings, key, parameter) for key, parameter in sweep.space.items()}
    values = [_values(parameter) for parameter in parameters.values()]
    listed = [found for found in values if found is not None]
    if len(listed) < len(values) or math.prod(map(len, listed)) > min(sweep.grid_cells, _COUNTABLE):
        return Space(parameters, None, [])
    cells: list[Cell] = []
    left_out: list[LeftOut] = []
    for combination in itertools.product(*listed):
        cell = dict(zip(parameters, combination, strict=True))
        reason = invalid(settings, cell)
        if reason is None:
            cells.append(cell)
        else:
            left_out.append(LeftOut(cell, reason))
    if not cells:
        raise UsageError(f"no combination of sweep.space is valid; {describe(left_out[0].cell)}: {left_out[0].reason}")
    return Space(parameters, cells, left_out)


def trial_settings(settings: Settings, cell: Cell) -> Settings:
    """Return the settings that a trial trains with.

    Raises:
        UsageError: they are not valid.
    """
    return settings.replaced({**settings.sweep.values, **cell})


def invalid(settings: Settings, cell: Cell) -> str | None:
    """Return why a cell makes no valid network, or has no such plan; None if it does."""
    try:
        trial = trial_settings(settings, cell)
        if trial.memory.plan not in (AUTO, WHOLE):
            plan_file.read(Path(trial.memory.plan), network_graph(trial.network))
    except GigaslideError as error:
        return str(error).splitlines()[-1].strip()
    return None


def short_names(keys: Mapping[str, Any]) -> dict[str, str]:
    """Return a column's name for each dotted key: its last part, or all of it where two would be the same."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: short if last.count(short) == 1 else key for key, short in zip(keys, last, strict=True)}


def describe(cell: Cell) -> str:
    """Return a cell in words: kernel_size 11, stride 4."""
    return ", ".join(f"{name} {_text(cell[key])}" for key, name in short_names(cell).items())


def _of_the_settings_type(settings: Settings, key: str, parameter: list[Any] | Span) -> list[Any] | Span:
    """Return a range of whole numbers for a setting that is one, with a step; of any numbers for another one."""
    if not isinstance(parameter, Span):
        return parameter
    block, _, name = key.partition(".")
    value = getattr(getattr(settings, block), name)
    numbers = [number for number in (parameter.low, parameter.high, parameter.step) if number is not None]
    if isinstance(value, int) and not isinstance(value, bool):
        if not all(isinstance(number, int) for number in numbers):
            raise UsageError(f"sweep.space.{key}: {key} is a whole number, and so are low, high and step of its range")
        return parameter if parameter.log else parameter.model_copy(update={"step": parameter.step or 1})
    if not isinstance(value, float):
        raise UsageError(f"sweep.space.{key}: {key} is no number; its values are listed: [{value!r}, ...]")
    return Span(low=float(parameter.low), high=float(parameter.high), step=parameter.step, log=parameter.log)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _values(parameter: list[Any] | Span) -> list[Any] | None:
    """Return the values one by one; None if there are too many, or no step between them."""
    if not isinstance(parameter, Span):
        return [value for index, value in enumerate(parameter) if value not in parameter[:index]]
    if parameter.step is None:
        return None
    count = int((parameter.high - parameter.low) / parameter.step + 1e-9) + 1
    if count > _COUNTABLE:
        return None
    return [parameter.low + index * parameter.step for index in range(count)]
