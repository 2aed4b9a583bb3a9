"""However many decisions were made, nothing that is kept in memory is more than what is alive.

ALLOT_GROWTH_STEPS=1000000 runs it in full; a step ends one pod and decides a new one.
"""

import os
import tracemalloc
from random import Random
from typing import Any

from allotment.core.ledger import snapshot
from allotment.core.ledger.model import CHANGES_MAX
from allotment_board.board import Board
from allotment_lab.bench.worlds.churn import Churn, shapes
from allotment_proto.facts import Policy

STEPS = int(os.environ.get("ALLOT_GROWTH_STEPS", "3000"))
NODES = 20
SLACK_BYTES = 256 * 1024
CHANGE_BYTES_MAX = 320
"""A change in the list, with the allocation and its holdings that it may be the last to know."""


def sizes(thing: Any, seen: set[int], path: str = "") -> dict[str, int]:
    """How many entries every container has that can be reached from an object of ours."""
    found: dict[str, int] = {}
    if id(thing) in seen:
        return found
    seen.add(id(thing))
    if isinstance(thing, dict | list | set | tuple):
        found[path] = len(thing)
        return found
    names = [*getattr(thing, "__dict__", ()), *getattr(type(thing), "__slots__", ())]
    if type(thing).__module__.startswith("allotment"):
        for name in names:
            found |= sizes(getattr(thing, name, None), seen, f"{path}.{name}")
    return found


def test_a_long_life_keeps_no_more_than_a_short_one() -> None:
    random = Random(7)
    churn = Churn(NODES, shapes(8, random), random, Policy())
    board = Board(churn.state)
    decide = churn.decider(board)

    def live(steps: int) -> None:
        for _ in range(steps):
            churn.step(decide)

    live(STEPS // 3)
    before, pods = sizes(board, set()), len(churn.state.pods)
    image = len(snapshot.encode(churn.state))
    tracemalloc.start()
    live(STEPS // 3)
    first, _ = tracemalloc.get_traced_memory()
    changes = len(churn.state.trails.nodes)
    live(STEPS - 2 * (STEPS // 3))
    second, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    after = sizes(board, set())
    grown = {
        path: (size, after[path])
        for path, size in before.items()
        if path != ".state.trails.nodes._changes" and after[path] > 1.5 * size + 50
    }
    assert not grown, "containers that only grow"
    assert ".state.pods" in before
    assert len(churn.state.trails.nodes) <= CHANGES_MAX
    assert abs(len(churn.state.pods) - pods) < 0.5 * pods
    assert len(snapshot.encode(churn.state)) < 1.5 * image
    # once the list is cut, its older entries, of before the measurement, give way to counted ones
    held = 0 if churn.state.trails.nodes.start else changes
    of_changes = CHANGE_BYTES_MAX * max(len(churn.state.trails.nodes) - held, 0)
    assert second - first < SLACK_BYTES + of_changes, "memory that nothing above accounts for"
