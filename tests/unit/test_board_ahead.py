"""What the board does while nobody waits, so that the first pod on new nodes need not wait for it;
and what it does once for a pod that it is asked about several times.
"""

from typing import Any

import msgspec
import pytest

from allotment.core.ledger.state import apply
from allotment.core.placement import cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.rules.predicates import accepts
from allotment_board import board as board_module
from allotment_board.board import Board
from allotment_board.shapes import compile_shape
from allotment_proto.events import Placement
from allotment_proto.facts import Constraints, PodRequest, Toleration
from tests.build import card, node, pod, request, state_of, wants

ADMITTED = Constraints(
    tolerations=(
        Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute"),
        Toleration("node.kubernetes.io/unreachable", "Exists", "", "NoExecute"),
    )
)
"""What an API server adds to a pod."""
CHOOSY = Constraints(node_selector=(("disk", "ssd"),))
NODES = [node(f"n{number}") for number in range(5)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that were asked whether they accept a pod, in order."""
    nodes: list[str] = []

    def counted(found: Any, *rest: Any) -> str | None:
        nodes.append(found.name)
        return accepts(found, *rest)

    monkeypatch.setattr(board_module, "accepts", counted)
    return nodes


def ranked(board: Board, wanted: PodRequest) -> None:
    """Ranked, with the answer of who asks node by node."""
    for ranker in (board, oracle := Evaluator(board.state)):
        ranker.begin()
    assert board.rank(wanted) == oracle.rank(wanted)
    for ranker in (board, oracle):
        ranker.end()


def test_the_first_pod_does_not_wait_until_every_node_was_asked(asked: list[str]) -> None:
    board = Board(state_of(*NODES))
    board.open_ahead()
    assert len(asked) == len(NODES)
    ranked(board, request(wants(), constraints=ADMITTED))
    assert len(asked) == len(NODES)


def test_when_a_node_joins_all_are_asked_ahead_what_was_asked_last(asked: list[str]) -> None:
    state = state_of(*NODES)
    board = Board(state)
    wanted = request(wants(), constraints=CHOOSY)
    board.open_ahead()
    ranked(board, wanted)
    apply(state, node("n9", labels=(("disk", "ssd"),)), state.seq + 1)
    asked.clear()
    board.open_ahead()
    assert sorted(asked) == [*(each.name for each in NODES), "n9"]
    ranked(board, wanted)
    assert len(asked) == len(NODES) + 1


def test_where_no_node_is_new_nobody_is_asked_ahead(asked: list[str]) -> None:
    state = state_of(*NODES)
    board = Board(state)
    board.open_ahead()
    asked.clear()
    apply(state, pod("a", request(wants(), constraints=CHOOSY)), state.seq + 1)
    scored = board.scored
    board.open_ahead()
    assert (asked, board.scored) == ([], scored)


def test_what_a_pod_asks_of_cards_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked of nodes whose plugins are idle first, then of more, then of all."""
    compiled: list[PodRequest] = []

    def counted(columns: Any, wanted: PodRequest, *rest: Any) -> Any:
        compiled.append(wanted)
        return compile_shape(columns, wanted, *rest)

    monkeypatch.setattr(board_module, "compile_shape", counted)
    board = Board(state_of(*NODES))
    for wanted in (request(wants()), request(wants(memory_mib=1))):
        for below in (1, 4, 0):
            selection = msgspec.structs.replace(wanted.selection, backlog_below=below)
            ranked(board, msgspec.structs.replace(wanted, selection=selection))
    assert len(compiled) == 2


def test_a_node_with_another_kind_of_card_has_it_compiled_anew() -> None:
    state = state_of(*NODES)
    board = Board(state)
    wanted = request(wants(memory_mib=20_000))
    ranked(board, wanted)
    apply(state, node("n9", cards=[card(0, memory_mib=40_000)]), state.seq + 1)
    ranked(board, wanted)


def test_what_nobody_asks_about_any_more_is_not_booked() -> None:
    """The last of a batch is assumed, and given back, without a word to the columns."""
    state = state_of(*NODES, pod("a"), pod("b"))
    board = Board(state)
    cycle.run_cycle(state, ("a",), board)
    touched = board._columns.touched
    cycle.run_cycle(state, ("a",), board)
    assert board._columns.touched == touched
    scored = board.scored
    cycle.run_cycle(state, ("a", "b"), board)
    assert board.scored - scored == 1, "b stands on a's place"


def test_what_was_assumed_is_taken_back_whether_booked_or_not() -> None:
    state = state_of(*NODES, *map(pod, "abc"))
    board, afresh = Board(state), Board(state)
    board.begin()
    afresh.begin()
    wanted = [state.pods[uid].fact for uid in "abc"]
    for asked_between in (False, True):
        for fact in wanted:
            placed = cycle.place(fact, afresh if not asked_between else board)
            assert isinstance(placed, Placement)
            board.assume(placed)
        assert len(board.assumed) == 3
        board.take_back()
        board.take_back()
        assert [placement.uid for placement in board.assumed] == ["a"]
        board.take_back()
        assert board.rank(wanted[0].request) == afresh.rank(wanted[0].request)
