"""Changing the cohort table: rows that nothing changes in stay as they are, byte for byte.

What reads it is cohort.py; here the table is text with cells in it.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gigaslide import files

_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class _Record:
    """One row, or a blank line: its text with its line end, and its cells, stripped."""

    text: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class CohortFile:
    """A table with a header; `records` are its lines, the header first, `mark` a byte order mark or nothing."""

    records: tuple[_Record, ...]
    mark: str

    @property
    def header(self) -> tuple[str, ...]:
        """The names of the columns."""
        return next((record.cells for record in self.records if any(record.cells)), ())

    def rows(self) -> list[dict[str, str]]:
        """Return the cells of every row by column."""
        filled = [record.cells for record in self.records if any(record.cells)]
        return [dict(zip(self.header, cells, strict=False)) for cells in filled[1:]]

    def with_column(self, name: str) -> "CohortFile":
        """Return the table with that column, empty, as the last one; nothing changes if there is one."""
        if name in self.header:
            return self
        records, cells = [], [name]
        for record in self.records:
            if any(record.cells):
                body, end = _split_end(record.text)
                record = _Record(f"{body},{cells[0]}{end}", (*record.cells, cells[0]))
                cells = [""]
            records.append(record)
        return replace(self, records=tuple(records))

    def with_cell(self, slide: str, column: str, value: str) -> "CohortFile":
        """Return the table with `value` in that column of the row whose cell `slide` is this."""
        where, place = self.header.index("slide"), self.header.index(column)
        records = list(self.records)
        for number, record in enumerate(records):
            if len(record.cells) > where and record.cells[where] == slide and record.cells != self.header:
                cells = [*record.cells[:place], value, *record.cells[place + 1 :]]
                records[number] = _Record(_line(cells) + _split_end(record.text)[1], tuple(cells))
        return replace(self, records=tuple(records))

    def with_rows(self, rows: Sequence[Mapping[str, str]]) -> "CohortFile":
        """Return the table with more rows at its end, cells by column; other columns are empty in them."""
        if not rows:
            return self
        end = _split_end(self.records[0].text)[1] or "\n"
        last = self.records[-1]
        if not _split_end(last.text)[1]:
            last = replace(last, text=last.text + end)
        cells = [tuple(row.get(column, "") for column in self.header) for row in rows]
        new = [_Record(_line(row) + end, row) for row in cells]
        return replace(self, records=(*self.records[:-1], last, *new))

    def text(self) -> str:
        """Return what is in the file."""
        return self.mark + "".join(record.text for record in self.records)

    def write(self, path: Path) -> None:
        """Write the file, atomically; not if that is what is in it."""
        if not path.exists() or path.read_bytes() != self.text().encode():
            files.write_bytes(path, self.text().encode())


def new_table(columns: Sequence[str]) -> CohortFile:
    """Return a table without rows."""
    return CohortFile((_Record(_line(columns) + "\n", tuple(columns)),), "")


def read_table(path: Path) -> CohortFile:
    """Read a table that cohort.py found without mistakes."""
    text = path.read_bytes().decode("utf-8")
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    lines = io.StringIO(text.removeprefix(mark), newline="").readlines()
    records, start = [], 0
    reader = csv.reader(lines)
    for cells in reader:
        records.append(_Record("".join(lines[start : reader.line_num]), tuple(cell.strip() for cell in cells)))
        start = reader.line_num
    return CohortFile(tuple(records), mark)


def _split_end(text: str) -> tuple[str, str]:
    """Return the text of a row, and its line end."""
    body = text.rstrip("\r\n")
    return body, text[len(body) :]


def _line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()
