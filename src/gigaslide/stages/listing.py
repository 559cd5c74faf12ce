"""The table of slides that `gigaslide add` and `gigaslide cohort check` print, and their sheet of thumbnails."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gigaslide.console import console
from gigaslide.stages.check import Found
from gigaslide.stages.thumbnails import Thumbnail, write_sheet

_COLUMNS = ("slide", "status", "split", "annotation", "vendor", "height x width", "levels", "um per px", "from")
_PLAIN_WIDTH = 200  # where there is no terminal
_STYLES = {"added": "green", "ok": "green", "not added": "red", "problem": "red"}


@dataclass(frozen=True)
class Line:
    """What is said of one slide; `found` is None where it was not read, or could not be."""

    name: str
    status: str
    split: str = ""
    annotation: str = ""
    found: Found | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()


def _cells(line: Line) -> list[str]:
    cells = [line.name, line.status, line.split, line.annotation]
    found = line.found
    if found is None:
        return [*cells, "", "", "", "", ""]
    mpp = found.mpp_um_per_px
    return [
        *cells,
        found.vendor or "unknown",
        f"{found.shape[0]} x {found.shape[1]}",
        str(found.level_count),
        f"{(mpp[0] * mpp[1]) ** 0.5:.4g}" if mpp else "",
        found.mpp_source,
    ]


def _remarks(line: Line) -> str:
    notes = (*line.notes, *(line.found.notes if line.found else ()))
    return "; ".join(filter(None, [line.problem, *notes]))


def show(lines: Sequence[Line]) -> None:
    """Print the table, and below it what is to be said of single slides, which may be long."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        right = column in ("levels", "um per px")
        table.add_column(
            column, overflow="fold", justify="right" if right else "left", min_width=12 if column == "slide" else None
        )
    for line in lines:
        name, status, *rest = (Text(cell) for cell in _cells(line))
        status.style = _STYLES.get(line.status, "")
        table.add_row(name, status, *rest)
    # Rich takes 80 columns for the width of a file.
    wide = console if console.is_terminal else Console(width=_PLAIN_WIDTH)
    wide.print(table, soft_wrap=False)
    for line in lines:
        if _remarks(line):
            text = Text(f"{line.name}: {_remarks(line)}", style="red" if line.problem else "")
            console.print(text)


def write_thumbnails(target: Path, lines: Sequence[Line]) -> None:
    """Write the sheet of those slides that were read, or could not be."""
    shown = [line for line in lines if line.found is not None or line.problem is not None]
    if not shown:
        return
    thumbnails = [
        Thumbnail(
            line.name,
            None if line.found is None else line.found.thumbnail,
            line.status if line.problem else f"{line.status}, {line.split}, annotation {line.annotation}",
            line.problem,
        )
        for line in shown
    ]
    write_sheet(target, thumbnails)
    console.print(f"{target}: {len(shown)} thumbnail{'' if len(shown) == 1 else 's'}", markup=False)
