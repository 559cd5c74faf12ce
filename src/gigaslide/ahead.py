"""Work in threads that runs a bounded number of items ahead of whoever takes the results, in the items' order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(pool: Executor, work: Callable[[T], R], items: Iterable[T], most: int) -> Iterator[tuple[T, R]]:
    """Yield every item with what `work` made of it; at most `most` are begun and not yet taken.

    An error of `work` comes out where its result would; what was not begun by then never is.
    """
    running: deque[tuple[T, Future[R]]] = deque()
    try:
        for item in items:
            running.append((item, pool.submit(work, item)))
            if len(running) >= most:
                first, done = running.popleft()
                yield first, done.result()
        while running:
            first, done = running.popleft()
            yield first, done.result()
    finally:
        for _, waiting in running:
            waiting.cancel()
