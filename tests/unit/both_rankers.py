"""A pod placed by both rankers."""

from typing import Any

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.cycle import place
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
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
