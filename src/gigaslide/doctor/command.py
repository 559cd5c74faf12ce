"""Run every check, show what was found, and return the exit code."""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from gigaslide import config
from gigaslide.console import console
from gigaslide.doctor import compute, project, resources, software
from gigaslide.doctor.finding import Check, Finding, Status, examine
from gigaslide.errors import GigaslideError

_STYLES: dict[Status, str] = {"ok": "green", "warning": "yellow", "fails": "bold red"}


def run(as_json: bool = False) -> int:
    """Look at everything and print it; return 1 if something fails, else 0."""
    settings = _settings()
    waiting = nullcontext() if as_json else console.status("looking; TensorFlow takes some seconds to start")
    with ThreadPoolExecutor(1) as pool, waiting:
        # It goes on while the rest is looked at.
        answer = pool.submit(partial(compute.ask_tensorflow, settings))
        checks = [
            *software.checks(),
            *compute.checks(answer.result),
            *resources.checks(settings),
            *project.checks(),
        ]
        findings = examine_all(checks)
    show(findings, as_json)
    return int(any(finding.status == "fails" for finding in findings))


def examine_all(checks: list[Check]) -> list[Finding]:
    """Run the checks one by one; none depends on another."""
    return [examine(check) for check in checks]


def show(findings: list[Finding], as_json: bool) -> None:
    """Print a table on a terminal, else a line per check; or JSON."""
    if as_json:
        values = {
            "fails": any(finding.status == "fails" for finding in findings),
            "checks": [dataclasses.asdict(finding) for finding in findings],
        }
        console.out(json.dumps(values, indent=2), highlight=False)
        return
    if console.is_terminal:
        console.print(_table(findings), soft_wrap=False)
    else:
        for finding in findings:
            advice = f" -> {finding.advice}" if finding.advice else ""
            console.out(f"{finding.status:<8} {finding.name}: {finding.found}{advice}", highlight=False)
    console.print(_summary(findings))


def _settings() -> config.Settings | None:
    """Return the settings if they are valid; that they are not is the finding of a check of its own."""
    try:
        return config.load(Path(config.PARAMS_FILE))
    except GigaslideError:
        return None


def _table(findings: list[Finding]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found")
    for finding in findings:
        style = _STYLES[finding.status]
        text = Text(finding.found)
        if finding.advice:
            text.append(f"\n-> {finding.advice}", style=style)
        table.add_row(finding.name, Text(finding.status, style=style), text)
    return table


def _summary(findings: list[Finding]) -> Text:
    fails, warnings = (sum(finding.status == status for finding in findings) for status in ("fails", "warning"))
    if fails:
        return Text(f"{fails} of {len(findings)} checks fail, {warnings} warn", style=_STYLES["fails"])
    if warnings:
        return Text(f"nothing fails; {warnings} of {len(findings)} checks warn", style=_STYLES["warning"])
    return Text(f"all {len(findings)} checks are well", style=_STYLES["ok"])
