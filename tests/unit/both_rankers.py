"""A pod placed by both rankers."""

from typing import Any

from allotment.core.ledger.state import ClusterState
from allotment.core.placement.board.board import Board
from allotment.core.placement.cycle import Evaluator, place
from allotment_proto.events import Placement, Refusal


def chosen(state: ClusterState, fact: Any) -> Placement | Refusal:
    """Both rankers must say the same."""
    plain = Evaluator(state)
    plain.begin()
    board = Board(state)
    board.begin()
    answer = place(fact, board)
    assert answer == place(fact, plain)
    return answer
