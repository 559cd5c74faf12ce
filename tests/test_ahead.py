import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gigaslide.ahead import in_order


def test_results_come_in_the_items_order_whatever_is_ready_first():
    def slow_first(item):
        time.sleep(0.02 if item % 4 == 0 else 0)
        return item * item

    with ThreadPoolExecutor(3) as pool:
        assert list(in_order(pool, slow_first, range(20), 5)) == [(item, item * item) for item in range(20)]


@pytest.mark.parametrize("most", [1, 2, 7])
def test_no_more_are_begun_than_allowed_beyond_those_taken(most):
    begun, lock = 0, threading.Lock()

    def count(item):
        nonlocal begun
        with lock:
            begun += 1

    with ThreadPoolExecutor(8) as pool:
        for taken, _ in enumerate(in_order(pool, count, range(40), most), start=1):
            time.sleep(0.001)
            assert begun <= taken - 1 + most


def test_an_error_comes_where_its_result_would_and_ends_the_rest():
    done = []

    def work(item):
        if item == 3:
            raise ValueError("three")
        done.append(item)
        return item

    with ThreadPoolExecutor(1) as pool:
        results = in_order(pool, work, range(1000), 4)
        assert [next(results)[0] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="three"):
            next(results)
    assert max(done) < 3 + 4 + 1
