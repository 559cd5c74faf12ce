"""docs/cluster.md and the files that it offers to copy."""

import re

from tests.deploy.mlflow_server import DEPLOY

PAGE = DEPLOY.parent / "docs/cluster.md"


def test_every_file_and_section_that_is_named_is_there() -> None:
    text = PAGE.read_text()
    links = re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", text)
    named = {path for path, _ in links if path.startswith("../deploy/")}
    assert len(named) >= 5
    assert [path for path in named if not (PAGE.parent / path).is_file()] == []
    titles = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^##+ (.+)$", text, re.M)
    }
    assert {section for path, section in links if not path and section} <= titles
    for path in re.findall(r"(?<![\w/])deploy/[\w./-]+\w", text):
        assert (DEPLOY.parent / path).is_file(), path


def test_the_commands_of_two_machines_are_those_of_the_script_and_of_its_test() -> None:
    commands = re.findall(r"^    \./two_machines\.sh (\w+)", PAGE.read_text(), re.M)
    assert commands == ["token", "lead", "join", "train", "stop"]
    script = (DEPLOY / "two_machines.sh").read_text()
    assert re.findall(r"^#   two_machines\.sh (\w+)", script, re.M) == commands
    tested = (DEPLOY.parent / "tests/cluster/test_two_machines.py").read_text()
    assert all(f'SCRIPT, "{command}"' in tested for command in commands[:-1])  # `stop` ends every cluster of a machine
