"""The corrections of a mask as they are drawn, in a file that grows by a line per action.

Line 1 says of which slide and mask; each further line is one action: a stroke, undo, redo, clear or saved. A line is
flushed to the disk before the page hears of it, so a kill loses the stroke that was being drawn and no other; half a
line at the end, which a kill may leave, is cut off when the file is opened again. Undo and redo are lines too: reading
the file again gives the same strokes, with the same ones to redo.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gigaslide.errors import UsageError
from gigaslide.files import write_text
from gigaslide.viewer.strokes import Stroke, parse_stroke


class Journal:
    """The strokes of one mask; one process has it open at a time (the caller sees to that)."""

    def __init__(self, path: Path, about: Mapping[str, Any], level0_shape: tuple[int, int]) -> None:
        """Open or begin the file at `path`; `about`: slide and mask, compared with what the file says.

        A file about another slide or mask is kept under another name, see `kept_aside`.
        """
        self._path, self._about, self._shape = path, dict(about), level0_shape
        self._done: list[Stroke] = []
        self._undone: list[Stroke] = []
        self._cleared: list[Stroke] = []  # what a clear took back, while nothing else was done since
        self._saved: tuple[Stroke, ...] | None = None
        self.version = 0
        self.kept_aside: Path | None = None
        if path.exists():
            self._restore()
        self.restored_count = len(self._done)

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """The strokes that count, in the order they were drawn."""
        return tuple(self._done)

    @property
    def can_undo(self) -> bool:
        """Whether there is a stroke, or a clear, to take back."""
        return bool(self._done or self._cleared)

    @property
    def can_redo(self) -> bool:
        """Whether something was undone since the last stroke."""
        return bool(self._undone)

    @property
    def is_saved(self) -> bool:
        """Whether the strokes are those of the last `saved`."""
        return self.strokes == (self._saved or ())

    @property
    def was_saved(self) -> bool:
        """Whether the corrected mask was ever saved."""
        return self._saved is not None

    def add(self, stroke: Stroke) -> None:
        """Draw a stroke."""
        self._act({"stroke": stroke.as_json()}, stroke)

    def undo(self) -> None:
        """Take the last stroke, or the last clear, back; nothing happens if there is none."""
        if self.can_undo:
            self._act({"action": "undo"})

    def redo(self) -> None:
        """Draw again what was undone; nothing happens if there is nothing."""
        if self._undone:
            self._act({"action": "redo"})

    def clear(self) -> None:
        """Take all strokes back; `undo` right after brings them all again, `redo` one by one."""
        if self._done:
            self._act({"action": "clear"})

    def saved(self) -> None:
        """Note that the mask with these strokes was saved."""
        self._act({"action": "saved"})

    def _act(self, line: dict[str, Any], stroke: Stroke | None = None) -> None:
        if not self._path.exists():
            write_text(self._path, json.dumps(self._about) + "\n")
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._apply(line.get("action", "stroke"), stroke)

    def _apply(self, action: str, stroke: Stroke | None) -> None:
        if action == "saved":
            self._saved = self.strokes
            return
        self.version += 1
        cleared, self._cleared = self._cleared, []
        if action == "stroke" and stroke is not None:
            self._done.append(stroke)
            self._undone.clear()
        elif action == "undo" and self._done:
            self._undone.append(self._done.pop())
        elif action == "redo" and self._undone:
            self._done.append(self._undone.pop())
        elif action == "undo" and cleared:
            self._done = cleared
            del self._undone[-len(cleared) :]
        elif action == "clear":
            self._cleared = self._done
            self._undone += reversed(self._done)
            self._done = []
        elif action not in ("undo", "redo"):
            raise ValueError(action)

    def _restore(self) -> None:
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        try:
            first, *lines = [json.loads(line) for line in whole.splitlines()] or [None]
        except ValueError:
            first, lines = None, []
        if first != self._about:
            self.kept_aside = self._free_name()
            self._path.rename(self.kept_aside)
            return
        for line in lines:
            self._apply_line(line)
        if len(whole) < len(data):
            os.truncate(self._path, len(whole))

    def _apply_line(self, line: Any) -> None:
        try:
            if "stroke" in line:
                self._apply("stroke", parse_stroke(line["stroke"], self._shape))
            else:
                self._apply(line["action"], None)
        except (TypeError, KeyError, ValueError, UsageError):
            raise UsageError(
                f"the autosave {self._path} should hold one action per line; found another line: it was changed by "
                "hand, move it away to begin anew"
            ) from None

    def _free_name(self) -> Path:
        number = 1
        while (name := self._path.with_name(f"{self._path.name}.old{number}")).exists():
            number += 1
        return name
