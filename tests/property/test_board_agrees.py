"""The board, on columns and kept up to date, answers as the evaluator that asks node by node.

The board lives through everything that happens (nodes join, change, leave; pods come and go; the
policy changes), the evaluator is made anew for each comparison.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_proto.events import Event
from tests import strategies as own
from tests.build import decided, node, pod, state_of

pytestmark = pytest.mark.usefixtures("scoring")


@settings(max_examples=max(40, settings().max_examples // 4))
@given(
    own.lives(own.every_policy),
    st.lists(st.permutations(own.PODS), min_size=1, max_size=6),
    st.data(),
)
def test_same_outcome(events: list[Event], batches: list[list[str]], data: st.DataObject) -> None:
    state = ClusterState()
    board = Board(state)
    start = 2 + len(own.NODES) + len(own.PODS)
    cuts = sorted(data.draw(st.integers(start, len(events))) for _ in batches)
    seq, done = 0, 0
    for cut, batch in zip(cuts, batches, strict=True):
        for event in events[done:cut]:
            seq += 1
            apply(state, event, seq)
        done = cut
        wanted = run_cycle(state, batch, Evaluator(state))
        found = run_cycle(state, batch, board)
        assert found == wanted
        assert run_cycle(state, batch, board) == wanted, "what was assumed was not given back"
        if data.draw(st.booleans()):
            seq += 1
            apply(state, decided(*wanted.placements), seq)
            assert check(state) == []


def test_a_gone_node_and_one_with_more_cards() -> None:
    state = state_of(node("n1", 2), node("n2", 2), pod("a"), pod("b"))
    board = Board(state)
    assert run_cycle(state, ["a"], board).placements[0].node == "n1"
    apply(state, node("n2", 5, rv=9), 9)
    apply(state, node("n0", 1), 10)
    wanted = run_cycle(state, ["b", "a"], Evaluator(state))
    assert run_cycle(state, ["b", "a"], board) == wanted
