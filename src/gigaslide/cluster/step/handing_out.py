"""Hands the jobs of sweep after sweep out to the machines of a pool, and takes the results in the order of the tiles.

Every machine has its own run of tiles (machines.py) and is kept busy on its own: what it has computed waits there until
all tiles before it are added. Of maps and their gradients only references come here: a task's pieces are one value,
which stays where it was made, and beside it the task makes one for each other machine, of what its tiles will read.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

from gigaslide.cluster.step.machines import Division, Machine, Share
from gigaslide.cluster.step.pieces import Job, Key, around, made, needed, readers
from gigaslide.geometry import Window
from gigaslide.streaming.layout import Layout
from gigaslide.streaming.plan import Segment

# Of the pieces that a task makes, which its worker holds until it ends.
MADE_BYTES = 64_000_000

Reference = Any  # of the pool: a value that some worker's machine holds


class Pool(Protocol):
    """Workers, and the values that they hold (cluster/step/pool.py)."""

    @property
    def threads(self) -> int:
        """Threads of an operation of a worker."""

    @property
    def workers(self) -> int:
        """How many tasks can be computed at once, now."""

    def machines(self) -> list[Machine]:
        """Return the machines there are now, in an order that stays; at least one."""

    def put(self, value: Any) -> Reference:
        """Give a value to all workers."""

    def submit(self, machine: str, task: "Task", recipe: Reference, visit: Reference) -> list[Reference]:
        """Hand a task out, to this machine if it is still there; return the references of its result and its pieces."""

    def wait(self, results: Sequence[Reference]) -> list[Reference]:
        """Wait until at least one of these is computed, or failed; return all that are."""

    def get(self, result: Reference) -> Any:
        """Wait for a value, and return it."""

    def cancel(self, result: Reference) -> None:
        """Do not compute this task, if nobody has begun with it."""


class Task(NamedTuple):
    """Some jobs, what they read, and what they make: pieces, and what is cut out of those for each other machine."""

    jobs: list[Job]
    bundles: list[Reference]  # of pieces, or of parts cut out of them
    places: list[tuple[int, int, Window]]  # of what is read, by `pieces.keys`: number of the bundle, within it, covered
    made: int  # pieces
    cuts: list[list[tuple[int, Window]]]  # for each other machine: number of the piece, and the part

    @property
    def values(self) -> int:
        """How many values it returns: its result, the pieces if there are any, and the cuts."""
        return 1 + bool(self.made) + len(self.cuts)


class _Bundle(NamedTuple):
    """Pieces of one task, or what was cut out of them for another machine."""

    reference: Reference
    size_bytes: int
    there: set[str]  # the machines that have it


class _Place(NamedTuple):
    """Where a piece is, or a part of it."""

    bundle: _Bundle
    number: int  # within it
    covered: Window


class _Held(NamedTuple):
    """A piece, and the parts that were cut out of it for other machines."""

    whole: _Place
    parts: dict[str, _Place]

    def at(self, machine: str, part: Window) -> _Place:
        """Return what a machine should read that needs a part."""
        found = self.parts.get(machine)
        # Where machines came or went, what was cut out is not what is needed.
        if found is None or machine in self.whole.bundle.there or part.clip(found.covered) != part:
            return self.whole
        return found


class _Line(NamedTuple):
    """What a machine has left of a sweep, and its tasks whose results are still to be taken."""

    share: Share
    tasks: deque[tuple[list[Job], Reference]]


class Handing:
    """What is handed out of one visit of an area."""

    def __init__(
        self,
        pool: Pool,
        recipe: Reference,
        visit: Reference,
        layout: Layout,
        segments: Sequence[Segment],
        bytes_per_px: Mapping[str, int],
    ) -> None:
        """Nothing is handed out before `results`; `bytes_per_px` is of a pixel of every map."""
        self._pool, self._recipe, self._visit = pool, recipe, visit
        self._layout, self._segments, self._bytes_per_px = layout, segments, bytes_per_px
        self._pieces: dict[Key, _Held] = {}
        self.wait_s = 0.0
        self.moved_bytes = 0

    def results(self, sweeps: Iterable[list[Job]]) -> Iterator[tuple[Job, Any]]:
        """Yield the jobs that have a result, in their order, with it.

        Jobs of a sweep may begin before the last of the sweep before it are done: each waits only for what it reads.
        """
        lines: deque[_Line] = deque()
        running: dict[Reference, str] = {}
        try:
            for jobs in sweeps:
                if not jobs:
                    continue
                division = Division(self._pool.machines())
                tiles = len(self._layout.tiles[self._segments[jobs[0].segment].output])
                new = [_Line(share, deque()) for share in division.shares(jobs, tiles)]
                lines.extend(new)
                while any(line.share.left for line in new):
                    self._fill(new, running, division)
                    self._wait(running)
                    yield from self._ready(lines, running)
            while lines:
                self._wait(running)
                yield from self._ready(lines, running)
        finally:
            for result in running:
                self._pool.cancel(result)

    def forget(self, done: Callable[[Key], bool]) -> None:
        """Give pieces back; those that tasks still need stay until they have ended."""
        self._pieces = {key: held for key, held in self._pieces.items() if not done(key)}

    def _fill(self, lines: Sequence[_Line], running: dict[Reference, str], division: Division) -> None:
        """Hand out as much as the machines should have."""
        counts = Counter(running.values())
        for line in lines:
            machine, left = line.share.machine, line.share.left
            while left and counts[machine.name] < machine.ahead:
                jobs = line.share.take(self._most(left[0]))
                result = self._hand_out(machine.name, jobs, division)
                line.tasks.append((jobs, result))
                running[result] = machine.name
                counts[machine.name] += 1

    def _wait(self, running: dict[Reference, str]) -> None:
        if running:
            for result in self._pool.wait(list(running)):
                del running[result]

    def _ready(self, lines: deque[_Line], running: Mapping[Reference, str]) -> Iterator[tuple[Job, Any]]:
        """Yield what can be taken now: no result before all those of the tiles before it."""
        while lines:
            share, tasks = lines[0]
            while tasks and tasks[0][1] not in running:
                jobs, result = tasks.popleft()
                wait_s, values = self._pool.get(result)
                self.wait_s += wait_s
                yield from ((job, value) for job, value in zip(jobs, values, strict=True) if value is not None)
            if tasks or share.left:
                return
            lines.popleft()

    def _most(self, job: Job) -> int:
        """Return how many tiles a task may have, so that what it makes is not too much."""
        size = sum(self._bytes(key, window) for key, window in made(self._layout, self._segments, job))
        return max(1, MADE_BYTES // max(1, size))

    def _hand_out(self, machine: str, jobs: list[Job], division: Division) -> Reference:
        bundles, places = self._read(machine, jobs)
        new = [one for job in jobs for one in made(self._layout, self._segments, job)]
        cuts: dict[str, list[tuple[int, Window]]] = {}
        for index, (key, window) in enumerate(new):
            for other, part in self._elsewhere(machine, key, window, division):
                cuts.setdefault(other, []).append((index, part))
        task = Task(jobs, bundles, places, len(new), list(cuts.values()))
        result, *references = self._pool.submit(machine, task, self._recipe, self._visit)
        if new:
            self._hold(machine, new, cuts, references)
        return result

    def _hold(
        self,
        machine: str,
        new: Sequence[tuple[Key, Window]],
        cuts: Mapping[str, Sequence[tuple[int, Window]]],
        references: Sequence[Reference],
    ) -> None:
        """Note where the pieces that a task makes will be."""
        bundle = _Bundle(references[0], sum(self._bytes(*one) for one in new), {machine})
        held = [_Held(_Place(bundle, index, window), {}) for index, (_, window) in enumerate(new)]
        for (other, parts), reference in zip(cuts.items(), references[1:], strict=True):
            part_bundle = _Bundle(reference, sum(self._bytes(new[index][0], part) for index, part in parts), set())
            for place, (index, part) in enumerate(parts):
                held[index].parts[other] = _Place(part_bundle, place, part)
        self._pieces.update((key, one) for (key, _), one in zip(new, held, strict=True))

    def _read(self, machine: str, jobs: Sequence[Job]) -> tuple[list[Reference], list[tuple[int, int, Window]]]:
        """Return the bundles that these jobs read from on a machine, and where in them each piece is."""
        parts: dict[Key, list[Window]] = {}
        for job in jobs:
            for group in needed(self._layout, self._segments, job):
                for piece in group:
                    parts.setdefault(piece.key, []).append(piece.part)
        numbers: dict[Reference, int] = {}
        places = []
        for key, wanted in parts.items():
            bundle, number, covered = self._pieces[key].at(machine, around(wanted))
            if machine not in bundle.there:
                bundle.there.add(machine)
                self.moved_bytes += bundle.size_bytes
            places.append((numbers.setdefault(bundle.reference, len(numbers)), number, covered))
        return list(numbers), places

    def _elsewhere(self, machine: str, key: Key, window: Window, division: Division) -> Iterator[tuple[str, Window]]:
        """Yield the other machines that will read a piece, with what of it."""
        if len(division.machines) == 1:
            return
        parts: dict[str, list[Window]] = {}
        for output, tile, part in readers(self._layout, self._segments, key, window):
            other = division.machines[division.of(tile, len(self._layout.tiles[output]))].name
            if other != machine:
                parts.setdefault(other, []).append(part)
        yield from ((other, around(windows)) for other, windows in parts.items())

    def _bytes(self, key: Key, window: Window) -> int:
        return prod(window.shape) * self._bytes_per_px[key.map]
