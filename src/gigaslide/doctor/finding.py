"""What a check found: one line, and what to do about it. A check that breaks is a finding too."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Status = Literal["ok", "warning", "fails"]


class Found(NamedTuple):
    """What a check returns. `advice`: what to do; empty if all is well."""

    status: Status
    text: str
    advice: str = ""


@dataclass(frozen=True)
class Check:
    """Something to look at, independent of all other checks; `look` may raise."""

    name: str
    look: Callable[[], Found]


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    status: Status
    found: str
    advice: str


def examine(check: Check) -> Finding:
    """Run a check; whatever it raises is a finding that fails."""
    try:
        status, text, advice = check.look()
    except Exception as error:
        status, text, advice = "fails", f"{type(error).__name__}: {error}", ""
    return Finding(check.name, status, _one_line(text), _one_line(advice))


def _one_line(text: str) -> str:
    return " ".join(text.split())
