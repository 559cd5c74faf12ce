from typing import Any

import pytest

from gigaslide.cluster.step.machines import Machine
from gigaslide.cluster.step.pool import machines_of


def node(name: str, cores: float | None, alive: bool = True) -> dict[str, Any]:
    return {"NodeID": name, "Alive": alive, "Resources": {} if cores is None else {"CPU": cores}}


NODES = [node("b", 4.0), node("c", 2.0, alive=False), node("a", 3.0), node("d", None)]


@pytest.mark.parametrize(
    ("threads", "most", "expected"),
    [
        (1, None, [("a", 3, 9), ("b", 4, 12)]),
        (2, None, [("a", 1, 3), ("b", 2, 6)]),
        (4, None, [("b", 1, 3)]),
        # Of a machine that is not needed whole, no more is taken than is wanted: what waits would run, too.
        (1, 5, [("a", 3, 9), ("b", 2, 2)]),
        (1, 1, [("a", 1, 1)]),
        (1, 99, [("a", 3, 9), ("b", 4, 12)]),
        # Until a machine comes.
        (8, None, [("", 1, 1)]),
    ],
)
def test_machines_and_their_workers(threads: int, most: int | None, expected: list[Any]) -> None:
    assert machines_of(NODES, threads, most) == [Machine(*values) for values in expected]
