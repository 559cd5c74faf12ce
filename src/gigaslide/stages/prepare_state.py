"""What is known of each slide from earlier runs of `prepare`: its state, attempts, cause of failure, time.

A small file beside the stores, not in them: it tells when and how often, and outputs do not depend on that. It is
written whenever a slide is done, so that a killed run leaves what it knew.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from gigaslide import files

READY = ("prepared", "unchanged")


@dataclass(frozen=True)
class SlideState:
    """`attempts` to make the present store, the one that made it included; `time_s` and `tried` of the last one."""

    state: str  # prepared, unchanged, failed, interrupted
    attempts: int
    time_s: float | None = None
    tried: str | None = None  # local time to the minute
    reason: str | None = None


def read_states(path: Path) -> dict[str, SlideState]:
    """Return the states by name of the slide; none when there is no such file, or it is damaged."""
    try:
        return {name: SlideState(**values) for name, values in json.loads(path.read_text("utf-8"))["slides"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_states(path: Path, states: Mapping[str, SlideState]) -> None:
    """Write the states, atomically."""
    values = {"slides": {name: asdict(state) for name, state in sorted(states.items())}}
    files.write_text(path, json.dumps(values, indent=1) + "\n")


def at_start(
    states: Mapping[str, SlideState], names: Iterable[str], interrupted: Iterable[str]
) -> dict[str, SlideState]:
    """Return the states of the slides of this run; `interrupted` are those that a killed run was at work on."""
    kept = {name: states[name] for name in names if name in states}
    for name in interrupted:
        kept[name] = SlideState("interrupted", _attempts(kept.get(name)), None, None, "the run was ended during it")
    return kept


def after(before: SlideState | None, state: str, time_s: float, reason: str | None, now: datetime) -> SlideState:
    """Return a slide's state after an attempt, or after it was found unchanged."""
    if state == "unchanged":
        known = before or SlideState("unchanged", 1)
        return SlideState("unchanged", max(1, known.attempts), known.time_s, known.tried)
    return SlideState(state, _attempts(before), time_s, now.strftime("%Y-%m-%d %H:%M"), reason)


def _attempts(before: SlideState | None) -> int:
    """Count one more, or from one again after a store that was made."""
    return 1 if before is None or before.state in READY else before.attempts + 1
