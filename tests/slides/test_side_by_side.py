import threading
import time

import pytest

from gigaslide.slides.side_by_side import in_order


def test_values_come_in_order_and_never_more_run_than_may():
    lock, running, most = threading.Lock(), [0], [0]
    allowed = [1]

    def task(number):
        with lock:
            running[0] += 1
            assert running[0] <= allowed[0]
            most[0] = max(most[0], running[0])
        time.sleep(0.001 * (number % 3))
        with lock:
            running[0] -= 1
        return number * number

    found = []
    for value in in_order(task, range(40), lambda: allowed[0]):
        found.append(value)
        if len(found) == 10:
            assert most == [1]
            allowed[0] = 3
    assert found == [number * number for number in range(40)]
    assert most == [3]


def test_the_first_error_in_order_comes_and_what_has_not_begun_is_left():
    begun = []

    def task(number):
        begun.append(number)
        if number == 3:
            time.sleep(0.05)
        if number in (3, 4):
            raise ValueError(number)
        return number

    found = []
    with pytest.raises(ValueError, match="3"):
        for value in in_order(task, range(1000), lambda: 2):
            found.append(value)
    assert found == [0, 1, 2]
    assert max(begun) < 20


def test_nothing_to_do():
    assert list(in_order(str, [], lambda: 2)) == []
