"""What README.md and docs/cluster.md name is there: files, sections, commands with their options, predicted figures."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gigaslide.cli import app
from gigaslide.cluster import tasks, trials
from gigaslide.cluster.planning import forecast, traffic
from gigaslide.cluster.step import handing_out, machines, pool
from tests.deploy.mlflow_server import DEPLOY

PROJECT = DEPLOY.parent
README, PAGE = PROJECT / "README.md", PROJECT / "docs/cluster.md"
PAGES = pytest.mark.parametrize("page", [README, PAGE], ids=lambda page: page.name)


def sections(page: Path) -> set[str]:
    """Return the names of a page's sections, as links have them."""
    titles = re.findall(r"^##+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@PAGES
def test_every_file_and_section_that_is_named_is_there(page: Path) -> None:
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", text) if "://" not in link[0]]
    assert len(links) >= 10
    assert [path for path, _ in links if not (page.parent / path).exists()] == []
    for path, section in links:
        assert not section or section in sections(page.parent / path if path else page), section
    for path in re.findall(r"(?<![\w/])deploy/[\w./-]+\w", text):
        assert (PROJECT / path).exists(), path
    assert page == README or len({path for path, _ in links if path.startswith("../deploy/")}) >= 5


def commands(text: str) -> Iterator[list[str]]:
    """Yield what is typed after `gigaslide` in every piece of code."""
    # Blocks within fences, indented lines, and what stands between single quotes within a line.
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S) + re.findall(r"^    .+", text, re.M)
    code = [line for block in blocks for line in block.splitlines()] + re.findall(r"(?<!`)`([^`]+)`(?!`)", text)
    for line in code:
        for typed in re.findall(r"(?:^|[\s/])gigaslide ([a-z][^#|&;`]*)", line):
            yield shlex.split(typed.replace("'", ""))


def unknown_options(words: list[str]) -> set[str]:
    """Return the options of a typed command that it does not have."""
    command: Any = typer.main.get_command(app)
    known = {"--help", *(name for one in command.params for name in one.opts)}
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
        known |= {name for one in command.params for name in one.opts}
    return {word.partition("=")[0] for word in words if word.startswith("--")} - known


@PAGES
def test_commands_have_the_options_that_are_typed(page: Path) -> None:
    text = page.read_text()
    assert unknown_options(["plan", "--workers=2", "--processors", "4"]) == {"--processors"}
    typed = [words for words in commands(text) if any(word.startswith("--") for word in words)]
    assert len(typed) >= 10
    assert [words for words in typed if unknown_options(words)] == []


def test_constants_are_those_of_the_program() -> None:
    text = " ".join(PAGE.read_text().split())
    words = {4: "four", 11: "eleven"}
    for said in (
        f"{machines._FEWEST_TILES} to {machines._MOST_TILES} tiles",
        f"passes {handing_out.MADE_BYTES / 1e6:g} MB",
        f"ends its worker {words[1 + pool._RETRIES]} times",
        f"the {words[1 + trials._MOST_LOSSES]}th loss of one trial",
        f"whose process ends {words[tasks.TRIES]} times",
        f"{1e3 * forecast.WORKER_TILE_S:g} ms more for each tile and {1e3 * forecast.WORKER_TASK_S:g} ms for each task",
        f"{1e3 * forecast.DRIVER_TASK_S:g} ms for each task, {1e6 * forecast.DRIVER_WAIT_S:g} µs for each task and "
        f"worker, {1e3 * forecast.DRIVER_TILE_S:g} ms for each tile",
        f"({forecast.LAYOUT_BYTES} bytes each",
        f"{traffic._IMAGE_BYTES_PER_PX:g} bytes each",
        f"chunks of {traffic.CHUNK_PX} px",
    ):
        assert said in text, said


def test_the_table_of_scaling_is_that_of_its_file() -> None:
    found = json.loads((PROJECT / "benchmarks/scaling.json").read_text())
    lines = []
    for area in found["areas"]:
        cells = [f"{area['gigapixels']:.0f}"]
        for row in area["rows"]:
            step_s, times = row["step_s"], row["speed_up"]
            digits = 0 if step_s >= 100 else 1 if step_s >= 10 else 2
            cells.append(f"{step_s:.{digits}f} s, {times:.0f}x")
        cells += [str(area["end"]["workers"]), area["end"]["reason"]]
        lines.append(f"| {' | '.join(cells)} |")
    text = PAGE.read_text()
    assert re.findall(r"^\| 10* \| .+x \| .+ \|$", text, re.M) == lines
    assert f"commit {found['git_commit'][:10]}" in text


def test_the_commands_of_two_machines_are_those_of_the_script_and_of_its_test() -> None:
    commands = re.findall(r"^    \./two_machines\.sh (\w+)", PAGE.read_text(), re.M)
    assert commands == ["token", "lead", "join", "train", "stop"]
    script = (DEPLOY / "two_machines.sh").read_text()
    assert re.findall(r"^#   two_machines\.sh (\w+)", script, re.M) == commands
    tested = (DEPLOY.parent / "tests/cluster/test_two_machines.py").read_text()
    assert all(f'SCRIPT, "{command}"' in tested for command in commands[:-1])  # `stop` ends every cluster of a machine
