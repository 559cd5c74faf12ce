"""Cohort tables that nobody's program should have written, against what reads and changes them.

`python -m tests.fuzz_cohort 20000` reads that many and prints what came of them, the longest time and the highest
memory; exit code 1 if any was not read or refused in words, took too long or too much. A table that is read has to say
what it says: every row in a split, with files that are there, names that are unique, an mpp in its range, no patient in
two splits; and `gigaslide add` has to be able to add a row to it and leave all others as they are.

A run of 20000 when this was written: 4147 read, 15853 refused, longest 0.18 s, peak memory of the process 0.11 GB. What
runs before it found: a name of 300 letters ended in an error of the operating system, and control characters of the
table went to the terminal.
"""

import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from gigaslide.errors import UsageError
from gigaslide.slides.cohort import parse_cohort, read_cohort
from gigaslide.slides.cohort_file import read_table
from gigaslide.slides.splits import SPLITS, patient_key
from tests.peak import peak_bytes

LIMIT_S = 5.0
LIMIT_BYTES = 600 << 20  # of the process; about 200 MB of it are libraries
LONGEST_LINE = 500  # of a message

SLIDES = ("a.tif", "b.svs", "sub dir/c.tif", "dicom/1.dcm", "dicom2/1.dcm", "é.tif", "d.tif")
ANNOTATIONS = ("a.geojson", "a-mask.tif", "b.xml", "é.json", "")
_COLUMNS = ("slide", "annotation", "split", "mpp", "regions", "patient")
_MPP = (
    "",
    "0.25",
    "0.5",
    "0,25",
    "1e-1",
    "nan",
    "inf",
    "-1",
    "0",
    "0x1",
    "\u0661",
    "1_0",
    "9" * 400,
    "0.25 um",
    "1e400",
    " ",
)
_PATHS = (
    "",
    ".",
    "..",
    "/",
    "../a.tif",
    "/etc/passwd",
    "a.tif/",
    "a.tif/b",
    "\x00",
    "a\x00.tif",
    "~",
    "con",
    "a" * 300,
)
_PATHS += ("sub dir", "/dev/null", "http://x/y.svs", "a.tif\n", "*", "\ud800", "a\u202e.tif", "./a.tif", "a" * 5000)
_TEXTS = (
    "",
    "x",
    '"',
    '""',
    '"""',
    "'",
    "\r",
    "\n",
    "\t",
    ";",
    ",",
    "\x00",
    "\ufeff",
    "=1+1",
    "é",
    "\u2028",
    "😀",
    "P 7",
)
_BYTES = (
    b"\x00",
    b"\xff",
    b"\xfe\xff",
    b"\xef\xbb\xbf",
    b'"',
    b",",
    b"\r",
    b"\n",
    b"\r\n",
    b"\xc3",
    b";",
    b"\x1a",
    b"'",
)
_ENCODINGS = ("utf-8",) * 30 + ("utf-8-sig", "utf-16", "utf-16-le", "latin-1", "cp1252", "utf-32", "cp037", "utf-7")


def make_folder(folder: Path) -> None:
    """Make the files that rows may name."""
    for name in (*SLIDES, *filter(None, ANNOTATIONS)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def _quoted(cell: str, chance: random.Random) -> str:
    if chance.random() < 0.15 or any(character in cell for character in ',"\r\n'):
        cell = f'"{cell.replace(chr(34), chr(34) * 2)}"' if chance.random() < 0.99 else f'"{cell}'
    return cell if chance.random() < 0.9 else f" {cell} "


def _cell(column: str, number: int, odd: float, chance: random.Random) -> str:
    """Return a cell as it should be; a share `odd` of them as it should not."""
    if chance.random() < odd:
        return chance.choice([*_PATHS, *_MPP, *_TEXTS, "x" * chance.choice([10, 1000, 140_000])])
    known = {
        "slide": SLIDES[number % len(SLIDES)] if chance.random() < 0.99 else chance.choice(SLIDES),
        "annotation": chance.choice(ANNOTATIONS),
        "split": SPLITS[number % len(SPLITS)] if chance.random() < 0.99 else chance.choice(["Train", "tset", "val"]),
        "mpp": chance.choice(_MPP[:3]),
        "patient": chance.choice(["", "", f"P{number % len(SPLITS)}"]),
    }
    return known.get(column, "")


def written(seed: int) -> bytes:
    """Return the bytes of one table."""
    chance = random.Random(seed)
    if chance.random() < 0.02:
        return chance.randbytes(chance.randint(0, 400))
    columns = list(_COLUMNS[: chance.choice([4, 4, 5, 6, 6])])
    if chance.random() < 0.3:
        chance.shuffle(columns)
    if chance.random() < 0.08:
        change = chance.choice(["drop", "twice", "other"])
        if change == "drop":
            columns.pop()
        else:
            columns.insert(chance.randint(0, 4), columns[0] if change == "twice" else chance.choice(_TEXTS))
    odd = chance.choice([0, 0, 0.01, 0.1])
    separator = "," if chance.random() < 0.97 else chance.choice([";", "\t", "|"])
    end = chance.choice(["\n", "\n", "\r\n", "\r", "\n\n"])
    rows = [columns]
    for number in range(chance.choice([0, 2, 3, 3, 4, 5, 6, 6]) if chance.random() < 0.99 else 3000):
        rows.append([_cell(column, number, odd, chance) for column in columns])
        if chance.random() < 0.02:
            rows[-1] = rows[-1][: chance.randint(0, len(columns))] + ["x"] * chance.randint(0, 3)
    text = end.join(separator.join(_quoted(cell, chance) for cell in row) for row in rows)
    text += end if chance.random() < 0.8 else ""
    encoding = chance.choice(_ENCODINGS)
    data = text.encode(encoding, "surrogatepass" if encoding.startswith("utf") and encoding != "utf-7" else "replace")
    return _damaged(data, chance) if chance.random() < 0.3 else data


def _damaged(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 3)):
        start = chance.randint(0, len(data))
        stop = min(len(data), start + chance.choice([0, 0, 1, 5, 50]))
        data = data[:start] + chance.choice([b"", data[start:stop] * 2, *_BYTES, chance.randbytes(3)]) + data[stop:]
    return data


def _in_words(path: Path, error: UsageError) -> bool:
    """Whether a refusal names the file, one line per mistake, and prints on every terminal."""
    text = str(error)
    return (
        str(path) in text
        and len(text) > len(str(path)) + 20
        and all(line.isprintable() and len(line) < LONGEST_LINE for line in text.split("\n"))
    )


def _check_rows(path: Path) -> None:
    """Look at what was read; any mistake is an `AssertionError`."""
    rows, mistakes = parse_cohort(path)
    assert not mistakes
    names = [row.name.casefold() for row in rows]
    assert rows
    assert len(set(names)) == len(names), "two slides of one name"
    assert all(row.split in SPLITS for row in rows), "a split there is not"
    assert {"train", "validation"} <= {row.split for row in rows}
    for row in rows:
        assert row.slide.is_file(), "a slide that is not there"
        assert row.annotation is None or row.annotation.is_file()
        assert row.mpp_um_per_px is None or 0.01 <= row.mpp_um_per_px <= 100
    splits: dict[str, str] = {}
    for row in rows:
        if row.patient:
            assert splits.setdefault(patient_key(row.patient), row.split) == row.split, "a patient in two splits"


def _check_extended(path: Path) -> None:
    """Add a row, as `gigaslide add` does: every row that was there is still read, and nothing of it changed."""
    before, data = read_cohort(path), path.read_bytes()
    changed = read_table(path)
    assert changed.text().encode() == data, "a table that nothing changed in is written otherwise"
    slide = path.parent / "new.tif"
    slide.write_bytes(b"")
    row = {"slide": "new.tif", "split": "test", "patient": "Somebody, new"}
    changed.with_column("patient").with_rows([row]).write(path)
    after = read_cohort(path)
    assert after[:-1] == before, "a row changed"
    assert (after[-1].slide, after[-1].split, after[-1].patient) == (slide, "test", "Somebody, new")


def outcome(path: Path) -> str:
    """Read the table at `path` and say what came of it; a text with a colon is a fault found."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read_cohort(path)
            _check_rows(path)
            _check_extended(path)
        return "read"
    except UsageError as error:
        return "refused" if _in_words(path, error) else f"no reason: {str(error)[:300]!r}"
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        line = "" if where is None else f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}"
        return f"crash: {type(error).__name__}: {str(error)[:200]} ({line})"


def try_seed(folder: Path, seed: int) -> tuple[str, float]:
    """Return what came of one table in a folder of `make_folder`, and the time in s."""
    path = folder / "cohort.csv"
    path.write_bytes(written(seed))
    start = time.perf_counter()
    came = outcome(path)
    return came, time.perf_counter() - start


def main() -> int:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    counts: Counter[str] = Counter()
    mistakes: dict[str, int] = {}
    longest_s, start = 0.0, time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        make_folder(Path(name))
        for seed in range(first, first + count):
            came, time_s = try_seed(Path(name), seed)
            if time_s > LIMIT_S:
                came = "crash: it took too long"
            counts[came.split(":")[0]] += 1
            if ":" in came:
                mistakes.setdefault(came, seed)
            longest_s = max(longest_s, time_s)
    sys.stdout.write(f"{count} cohort tables from seed {first} in {time.perf_counter() - start:.0f} s\n")
    for came, number in counts.most_common():
        sys.stdout.write(f"{number:8} {came}\n")
    sys.stdout.write(f"longest {longest_s:.2f} s, peak memory {peak_bytes() / 1e9:.2f} GB\n")
    for came, seed in mistakes.items():
        sys.stdout.write(f"seed {seed}: {came}\n")
    return int(bool(mistakes) or peak_bytes() > LIMIT_BYTES)


if __name__ == "__main__":
    sys.exit(main())
