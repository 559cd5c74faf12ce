"""Damaged TIFFs against the reader: each is read, or refused in words, soon and in little memory.

`python -m tests.fuzz_tiff 20000` tries so many and prints what came of them, the longest time and the highest memory;
exit code 1 if any was not refused in words, took too long or too much. Workers are processes, since a decoder may crash
its own; one that dies or hangs is named with its seed and replaced.
"""

import multiprocessing
import random
import resource
import struct
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import tifffile

from gigaslide.errors import GigaslideError
from gigaslide.geometry import Window
from gigaslide.slides.damage import Damage
from gigaslide.slides.reader import close_slide, open_slide
from tests.peak import peak_bytes

LIMIT_S = 10.0
LIMIT_BYTES = 2 << 30  # of the process; about 200 MB of it are libraries
_SHAPE = (100, 130)
_INTERESTING = (0, 1, 2, 3, 7, 16, 64, 255, 256, 32768, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)


def seeds() -> list[bytes]:
    """Return small TIFFs of many layouts, which are then damaged."""
    rgb = np.random.default_rng(0).integers(0, 256, (*_SHAPE, 3), np.uint8)
    plain = {"photometric": "rgb", "metadata": None}
    kinds = [
        {"tile": (64, 64), "compression": compression, **plain}
        for compression in (None, "lzw", "deflate", "jpeg", "jpeg2000", "zstd", "packbits", "lzma")
    ]
    kinds += [{"rowsperstrip": rows, "compression": how, **plain} for rows in (1, 33, 100) for how in (None, "jpeg")]
    kinds += [{"tile": (64, 64), "bigtiff": True, **plain}, {"rowsperstrip": 20, "byteorder": ">", **plain}]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seed.tif"
        for how in kinds:
            tifffile.imwrite(path, rgb, **how)
            found.append(path.read_bytes())
        tifffile.imwrite(path, rgb.transpose(2, 0, 1), planarconfig="separate", tile=(64, 64), **plain)
        found.append(path.read_bytes())
        tifffile.imwrite(
            path, rgb.astype(np.uint16) * 257, tile=(64, 64), compression="deflate", predictor=True, **plain
        )
        found.append(path.read_bytes())
        path = Path(folder) / "seed.ome.tif"
        tifffile.imwrite(path, rgb.transpose(2, 0, 1), photometric="minisblack", metadata={"axes": "CYX"})
        found.append(path.read_bytes())
        with tifffile.TiffWriter(path, ome=True) as writer:
            writer.write(rgb, tile=(64, 64), subifds=1, photometric="rgb", metadata={"axes": "YXS"})
            writer.write(rgb[::2, ::2], tile=(64, 64), subfiletype=1, photometric="rgb")
        found.append(path.read_bytes())
    return found


def directories(content: bytes) -> list[int]:
    """Return the bytes at which the entries of the first directories' tags start."""
    order = "<" if content[:2] == b"II" else ">"
    big = struct.unpack(order + "H", content[2:4])[0] == 43
    at = struct.unpack_from(order + ("Q" if big else "I"), content, 8 if big else 4)[0]
    count = struct.unpack_from(order + ("Q" if big else "H"), content, at)[0]
    first, size = at + (8 if big else 2), 20 if big else 12
    return [first + size * number for number in range(count)]


def damaged(content: bytes, seed: int) -> bytes:
    """Return the file with some of its tags, header, data or length changed."""
    chance = random.Random(seed)
    data = bytearray(content)
    entries = directories(content)
    for _ in range(chance.randint(1, 4)):
        what = chance.random()
        if what < 0.6:  # a tag: its number, type, count or value
            entry = chance.choice(entries)
            at = entry + chance.choice([0, 2, 4, 4, 8, 8, 8])
            value = chance.choice([chance.choice(_INTERESTING), chance.getrandbits(32), chance.randrange(len(data))])
            width = chance.choice([2, 4])
            data[at : at + width] = (value % 256**width).to_bytes(width, "little" if data[:2] == b"II" else "big")
        elif what < 0.75:  # any byte of the first directory or what lies around it
            at = max(0, min(len(data) - 1, chance.choice(entries) + chance.randint(-40, 300)))
            data[at] = chance.getrandbits(8)
        elif what < 0.85:
            data[chance.randrange(min(16, len(data)))] = chance.getrandbits(8)
        elif what < 0.95:
            data[chance.randrange(len(data))] = chance.getrandbits(8)
        elif len(data) > 600:
            del data[chance.randrange(100, len(data)) :]
            break
    return bytes(data)


def outcome(path: Path) -> str:
    """Read a file as `prepare` does: corners, an overview, and all of it if it is small."""
    try:
        slide = open_slide(path)
        damage = Damage()
        slide = slide.counting(damage)
        height, width = slide.shape
        slide.read(Window.of(0, 0, 256, 256))
        slide.read(Window.of(height - 100, width - 100, 200, 200))
        if height * width <= 1 << 24:
            slide.overview(10_000)
        return "read" if not damage.tiles else "read, corrupt tiles left out"
    except GigaslideError as error:
        message = str(error)
        return "refused" if str(path) in message and len(message) > len(str(path)) + 20 else f"no reason: {message}"
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        line = "" if where is None else f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}"
        return f"crash: {type(error).__name__}: {error} ({line})"
    finally:
        close_slide(path)


def _work(requests: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    files = seeds()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slide.tif"
        requests.send(None)
        while True:
            seed = requests.recv()
            if seed is None:
                return
            path.write_bytes(damaged(files[seed % len(files)], seed))
            start = time.perf_counter()
            came = outcome(path)
            requests.send((came, time.perf_counter() - start, peak_bytes()))


class Worker:
    """A process that tries damaged files, started again when it dies."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_work, args=(there,), daemon=True)
        self._process.start()
        there.close()
        self._pipe.recv()

    def try_seed(self, seed: int) -> tuple[str, float, int]:
        """Return what came of it, the time in s, and the peak of memory in bytes."""
        self._pipe.send(seed)
        try:
            if self._pipe.poll(LIMIT_S):
                return self._pipe.recv()
            came = "crash: hangs"
        except EOFError:
            came = "crash: the process died"
        self._process.kill()
        self._process.join()
        self._start()
        return came, LIMIT_S, 0

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join()


def run(count: int, first: int = 0) -> tuple[Counter[str], dict[str, int], float, int]:
    """Return counts, a seed for each mistake, the longest time in s and the highest memory in bytes."""
    worker, counts = Worker(), Counter()
    mistakes: dict[str, int] = {}
    longest_s, peak_bytes = 0.0, 0
    for seed in range(first, first + count):
        came, time_s, process_bytes = worker.try_seed(seed)
        if process_bytes > LIMIT_BYTES:
            came = f"crash: {process_bytes} bytes of memory"
        counts[came.split(":")[0]] += 1
        if ":" in came:
            mistakes.setdefault(came[:200], seed)
        longest_s, peak_bytes = max(longest_s, time_s), max(peak_bytes, process_bytes)
    worker.close()
    return counts, mistakes, longest_s, peak_bytes


def main() -> int:
    count, first = (*map(int, sys.argv[1:3]), 0)[:2] if len(sys.argv) > 2 else (int(sys.argv[1]), 0)
    start = time.perf_counter()
    counts, mistakes, longest_s, peak_bytes = run(count, first)
    sys.stdout.write(f"{count} damaged TIFFs from seed {first} in {time.perf_counter() - start:.0f} s\n")
    for came, number in counts.most_common():
        sys.stdout.write(f"{number:8} {came}\n")
    sys.stdout.write(f"longest {longest_s:.2f} s, peak memory {peak_bytes / 1e9:.2f} GB\n")
    for came, seed in mistakes.items():
        sys.stdout.write(f"seed {seed}: {came}\n")
    return int(bool(mistakes))


if __name__ == "__main__":
    sys.exit(main())
