"""Tasks in threads, so many at a time as are free at the moment, their values in order: `in_order`."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")

_MOST_THREADS = 128  # they begin when they are needed
# How far the others go on while the first one still runs, in times the threads.
_AHEAD = 4


def in_order(task: Callable[[Item], Value], items: Iterable[Item], threads: Callable[[], int]) -> Iterator[Value]:
    """Yield `task(item)` for every item, in the order of the items.

    Args:
        task: may raise: the error comes in its turn, and what has not begun is left.
        items: taken as they are needed.
        threads: asked again and again how many tasks may run at once.
    """
    left, pending = iter(items), deque[Future[Value]]()
    with ThreadPoolExecutor(_MOST_THREADS) as pool:
        try:
            while True:
                running = [future for future in pending if not future.done()]
                most = min(max(1, threads()), _MOST_THREADS)
                room = min(most - len(running), _AHEAD * most - len(pending))
                new = [pool.submit(task, item) for item in islice(left, max(0, room))]
                pending.extend(new)
                if not pending:
                    return
                if not pending[0].done():
                    wait([*running, *new], return_when=FIRST_COMPLETED)
                while pending and pending[0].done():
                    yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
