"""What a pod costs does not grow with the cluster: counted work, on small clusters and larger ones.

The first pods of a kind look at every node; each later one must not.
"""

from collections.abc import Callable
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from allotment.core.queues.reckoning import Reckoning
from allotment.core.queues.round.books import Books
from allotment.core.queues.round.candidates import Bounds
from allotment_lab.bench.grow import CARD_MIB, HIGH, Cluster, exponent
from allotment_lab.bench.worlds.churn import CARDS


def calls(of: type, name: str, work: Callable[[], object]) -> int:
    """How often a method is called meanwhile."""
    count, original = 0, getattr(of, name)

    def counted(self: Any, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        return original(self, *arguments)

    with patch.object(of, name, counted):
        work()
    return count


@pytest.mark.parametrize(("of", "name"), [(Books, "_try"), (Bounds, "on")])
def test_a_preemptor_looks_at_few_nodes(of: type, name: str) -> None:
    found = {}
    for nodes in (40, 320):
        cluster = Cluster(nodes, 2, Random(1))

        def preempt(cluster: Cluster = cluster) -> None:
            cluster.comes(CARDS, CARD_MIB, HIGH)
            assert cluster.round()[1].evictions

        for _ in range(4):
            preempt()
        found[nodes] = max(calls(of, name, preempt) for _ in range(6))
    assert found[320] <= found[40] + 8, found
    assert found[320] > 0


def test_a_round_for_one_pod_makes_books_of_few_queues() -> None:
    found = {}
    for queues in (4, 64):
        cluster = Cluster(64, queues, Random(1))

        def place(cluster: Cluster = cluster) -> None:
            cluster.comes(1, 1_000)
            assert cluster.round()[1].placements

        place()
        found[queues] = max(calls(Reckoning, "_book", place) for _ in range(4))
    assert found[64] == found[4] > 0


def test_exponents() -> None:
    assert exponent((10, 100, 1_000), (7, 70, 700)) == pytest.approx(1)
    assert exponent((10, 100, 1_000), (7, 7, 7)) == pytest.approx(0)
