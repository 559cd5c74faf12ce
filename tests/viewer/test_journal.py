"""The autosave: whatever happens to the process, the strokes that the page was told of are there."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.errors import UsageError
from gigaslide.viewer.journal import Journal
from gigaslide.viewer.strokes import Stroke

SHAPE = (100, 200)
ABOUT = {"slide": "slide.tiff", "mask": "abc"}


def stroke(number):
    return Stroke("brush", "tissue", ((float(number), 1.0),), 2.0)


def numbers(journal):
    return [int(item.points[0][0]) for item in journal.strokes]


def journal_at(path, about=ABOUT):
    return Journal(path, about, SHAPE)


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".slide.geojson.strokes"


def test_no_file_before_the_first_stroke(path):
    journal = journal_at(path)
    journal.undo()
    journal.redo()
    journal.clear()
    assert not path.exists()
    journal.add(stroke(1))
    assert path.exists()


actions = st.lists(st.sampled_from(["add", "undo", "redo", "clear", "saved"]), max_size=30)


@given(actions=actions)
def test_the_file_says_what_the_memory_holds(tmp_path_factory, actions):
    path = tmp_path_factory.mktemp("journal") / "strokes"
    journal = journal_at(path)
    done, undone, cleared = [], [], None
    for number, action in enumerate(actions):
        if action == "add":
            journal.add(stroke(number))
            done, undone = [*done, number], []
        else:
            getattr(journal, action)()
        if action == "undo" and done:
            undone.append(done.pop())
        elif action == "undo" and cleared:
            done, undone = cleared
        elif action == "redo" and undone:
            done.append(undone.pop())
        before = list(done), list(undone)
        if action == "clear" and done:
            undone, done = undone + done[::-1], []
        cleared = (before if before[0] else cleared) if action == "clear" else cleared if action == "saved" else None
        assert numbers(journal) == done
        again = journal_at(path)
        assert numbers(again) == done
        assert again.can_redo == journal.can_redo == bool(undone)
        assert again.can_undo == journal.can_undo == bool(done or cleared)
        assert again.is_saved == journal.is_saved
        assert again.restored_count == len(done)


def test_a_file_cut_anywhere_holds_the_whole_lines_before(path):
    journal = journal_at(path)
    for number in range(3):
        journal.add(stroke(number))
    data = path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(data) if byte == ord("\n")]
    for size in range(ends[0], len(data) + 1):
        path.write_bytes(data[:size])
        again = journal_at(path)
        whole = sum(end <= size for end in ends) - 1
        assert numbers(again) == list(range(whole))
        again.add(stroke(9))
        assert numbers(journal_at(path)) == [*range(whole), 9]


def test_killed_while_drawing(path):
    code = f"""
import sys
from pathlib import Path
from tests.viewer.test_journal import journal_at, stroke
journal = journal_at(Path({str(path)!r}))
for number in range(10**6):
    journal.add(stroke(number))
    print(number, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True
    ) as child:
        told = [int(child.stdout.readline()) for _ in range(20)]
        os.kill(child.pid, signal.SIGKILL)
        told += [int(line) for line in child.stdout if line.strip()]
    found = numbers(journal_at(path))
    assert found[: len(told)] == told
    assert len(found) <= len(told) + 1


def test_strokes_on_another_mask_are_kept_aside(path):
    journal_at(path).add(stroke(1))
    other = journal_at(path, ABOUT | {"mask": "another"})
    assert other.strokes == ()
    assert other.kept_aside is not None
    assert numbers(journal_at(other.kept_aside)) == [1]
    other.add(stroke(2))
    third = journal_at(path)
    assert third.kept_aside not in (None, other.kept_aside)


@pytest.mark.parametrize("line", ['{"action": "burn"}', "[]", '{"stroke": {"kind": "spray"}}', "7"])
def test_a_line_that_is_no_action_is_refused(path, line):
    journal_at(path).add(stroke(1))
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UsageError, match="one action per line"):
        journal_at(path)


@pytest.mark.parametrize("content", [b"", b"\n", b"no json\n", b"\xff\xfe\n", json.dumps(ABOUT).encode()])
def test_a_file_without_a_first_line_is_kept_aside(path, content):
    path.write_bytes(content)
    journal = journal_at(path)
    assert journal.strokes == ()
    assert journal.kept_aside.read_bytes() == content
    journal.add(stroke(1))
    assert numbers(journal_at(path)) == [1]


def test_saved_means_these_strokes(path):
    journal = journal_at(path)
    assert journal.is_saved
    assert not journal.was_saved
    journal.add(stroke(1))
    assert not journal.is_saved
    journal.saved()
    assert journal.is_saved
    journal.undo()
    assert not journal.is_saved
    journal.redo()
    assert journal.is_saved
    assert journal_at(path).was_saved
