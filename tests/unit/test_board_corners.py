"""Where the board could answer otherwise than the evaluator that asks node by node."""

import msgspec
import pytest

from allotment.core.explain.doctor import findings
from allotment.core.ledger import model
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import Outcome, run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_board import arrays as column_arrays
from allotment_board.board import CONSTRAINTS_MAX, Board
from allotment_board.encode import POLICY_NUMBERS
from allotment_proto.events import NodeGone, PodGone
from allotment_proto.facts import (
    CardFact,
    Constraints,
    DeviceRequest,
    Inventory,
    PodRequest,
    Selection,
    Toleration,
)
from tests.build import card, decided, holding, node, pod, policy, request, state_of, wants

ELSEWHERE = Constraints(tolerations=(Toleration("dedicated", "Exists", "", ""),))


def agreed(state: ClusterState, board: Board, *uids: str) -> Outcome:
    found = run_cycle(state, uids, board)
    assert found == run_cycle(state, uids, Evaluator(state))
    return found


def test_a_node_that_left_is_no_place_for_constraints_asked_for_the_first_time() -> None:
    state = state_of(node("n1"), node("n2", cpu_milli=50), pod("a"))
    board = Board(state)
    assert agreed(state, board, "a").placements[0].node == "n1"
    apply(state, NodeGone(name="n1", uid="uid-n1", rv=2), 4)
    apply(state, pod("b", request(wants(), constraints=ELSEWHERE)), 5)
    assert agreed(state, board, "b").placements == ()


def test_a_node_that_left_and_a_pod_that_still_says_it_is_there() -> None:
    state = state_of(node("n1"), node("n2", cards=0), pod("a"))
    board = Board(state)
    agreed(state, board, "a")
    apply(state, NodeGone(name="n1", uid="uid-n1", rv=2), 4)
    apply(state, pod("x", node="n1", phase="Running"), 5)
    assert agreed(state, board, "a").placements == ()


def test_a_family_that_this_release_does_not_know_is_nowhere() -> None:
    """As it comes in a rolling upgrade: the watcher is newer than the filter."""
    unknown = DeviceRequest("quantum", 0, "c", 1, 0, 0, 0)
    state = state_of(node(), pod("a", request(unknown)))
    assert agreed(state, Board(state), "a").placements == ()


def test_resources_counted_by_the_hundred_billion() -> None:
    """100 Gbit/s as an extended resource: 100 points × the amount is more than 64 bits hold."""
    listed = (("net.example/bandwidth", 10**11),)
    used = PodRequest(100, 1, (("net.example/bandwidth", 95 * 10**9),))
    asked = PodRequest(100, 1, (("net.example/bandwidth", 10**9),))
    state = state_of(
        node("n1", 0, extended=listed),
        node("n2", 0, extended=listed),
        pod("x", used, node="n1", phase="Running"),
        pod("a", asked),
    )
    assert agreed(state, Board(state), "a").placements[0].node == "n1"


def test_cards_that_are_gone_when_their_bookings_are_taken_over() -> None:
    state = state_of(node("n1"), node("n2"), pod("a"))
    board = Board(state)
    agreed(state, board, "a")
    apply(state, pod("x", node="n1", holdings=(holding("GPU-0"),)), 10)
    apply(state, node("n1", cards=0, rv=2), 11)
    assert agreed(state, board, "a").placements[0].node == "n2"
    apply(state, node("n1", cards=3, rv=3), 12)
    assert agreed(state, board, "a").placements[0].node == "n1"


def test_a_node_that_comes_back_on_the_row_of_another_that_left() -> None:
    state = state_of(node("n1"), node("n2"), node("n3"), pod("a"))
    board = Board(state)
    apply(state, NodeGone(name="n2", uid="uid-n2", rv=2), 10)
    agreed(state, board, "a")
    apply(state, NodeGone(name="n1", uid="uid-n1", rv=2), 11)
    apply(state, node("n2", rv=3), 12)
    assert agreed(state, board, "a").placements[0].node == "n2"


def test_a_board_that_follows_closely_never_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is forgotten of the lists of changes is only what it has long read."""
    monkeypatch.setattr(model, "CHANGES_MAX", 20)
    monkeypatch.setattr(column_arrays, "_TOUCHES_MAX", 16)
    state = state_of(*(node(f"n{number}") for number in range(12)), pod("a"))
    asked = [pod("a"), pod("b", request(wants(9_000)))]
    apply(state, asked[1], 50)
    board = Board(state)
    agreed(state, board, "a", "b")
    epoch = board._columns.epoch
    for number in range(200):
        on = f"n{number * 7 % 12}"
        uid = f"p{number}"
        apply(state, pod(uid, node=on, holdings=(holding("GPU-0", 700),)), 100 + 2 * number)
        if number >= 6:
            gone = f"p{number - 6}"
            apply(
                state,
                PodGone(uid=gone, namespace="default", name=gone, rv=9),
                101 + 2 * number,
            )
        agreed(state, board, *("a", "b")[number % 5 == 0 :])
    assert board._columns.epoch == epoch


def test_more_constraints_than_are_remembered() -> None:
    state = state_of(node("n1"), node("n2"), pod("a"))
    board = Board(state)
    agreed(state, board, "a")
    board.begin()
    for number in range(CONSTRAINTS_MAX + 1):
        selector = (("nowhere", str(number)),)
        board.rank(PodRequest(constraints=Constraints(node_selector=selector)))
        board.rank(state.pods["a"].fact.request)
    board.end()
    apply(state, node("n1", rv=2, unschedulable=True), 10)
    assert agreed(state, board, "a").placements[0].node == "n2"


@pytest.mark.parametrize(
    "cards", [[card(1), card(0)], [card(1)], [card(0, id="GPU-1"), card(1, id="GPU-0")]]
)
def test_cards_that_are_elsewhere_than_before(cards: list[CardFact]) -> None:
    chosen = Selection(use_ids=("GPU-1",))
    state = state_of(node("n1", 2), pod("a", request(wants(), selection=chosen)))
    board = Board(state)
    agreed(state, board, "a")
    apply(state, node("n1", cards, rv=2), 10)
    placed = agreed(state, board, "a").placements
    assert [held.card for held in placed[0].holdings] == ["GPU-1"]


def test_points_of_more_cards_than_a_rank_can_hold() -> None:
    many = [card(number, memory_mib=1_000) for number in range(128)]
    asked = request(wants(1_000, 0, 120))
    state = state_of(policy(device_weight=100), node("n1", many), node("n2", many), pod("a", asked))
    assert agreed(state, Board(state), "a").placements[0].node == "n1"


def test_more_left_over_than_is_counted() -> None:
    vast = [[card(0, memory_mib=mib)] for mib in (20_000_000, 10_000_000)]
    state = state_of(
        policy(device_policy="none"), node("n1", vast[0]), node("n2", vast[1]), pod("a")
    )
    assert agreed(state, Board(state), "a").placements[0].node == "n1"


@pytest.mark.parametrize("name", sorted(POLICY_NUMBERS))
def test_cards_of_a_family_that_nobody_knows_are_left_alone(name: str) -> None:
    """A record of a newer release, or of anybody who may write to the log, can name any family."""
    fpgas = Inventory("fpga\x1b", "", (card(0, id="F-0"), card(1, id="F-1")))
    mixed = node("n1", 1)
    state = state_of(
        policy(device_policy=name),
        msgspec.structs.replace(mixed, inventories=(fpgas, *mixed.inventories)),
        node("n2", 0, inventories=(fpgas,)),
        *(pod(uid) for uid in "abcd"),
        pod("e", request(wants(family="fpga\x1b"))),
    )
    board = Board(state)
    fast = run_cycle(state, "abcde", board)
    assert fast == run_cycle(state, "abcde", Evaluator(state))
    assert [p.uid for p in fast.placements] == list("abcd")
    assert {p.node for p in fast.placements} == {"n1"}
    apply(state, decided(*fast.placements), state.seq + 1)
    assert check(state) == []
    apply(state, pod("f"), state.seq + 1)
    again = run_cycle(state, "f", board)
    assert again == run_cycle(state, "f", Evaluator(state))
    found = [finding for finding in findings(state, 0) if finding.code == "UnknownFamily"]
    assert [finding.subject for finding in found] == ["node n1", "node n2"]
    assert "2 cards are left alone" in found[0].message
