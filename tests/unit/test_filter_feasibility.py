"""Whether a class fits somewhere is always known, and counted again only where that may change."""

from random import Random

import pytest

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import refuse
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_filter.feasibility import FOLLOW_CHANGES, FeasibilityCache
from allotment_proto.events import Event, NodeGone, PodGone
from allotment_proto.facts import PodRequest
from tests.build import holding, node, pod, policy, request, wants

HUGE = request(wants(memory_mib=1_000_000))
NODES = 10


def state_of(*events: Event) -> ClusterState:
    state = ClusterState()
    for event in (policy(), *events):
        apply(state, event, state.seq + 1)
    return state


def bound(number: int, on: str, memory_mib: int = 15_000) -> Event:
    """A pod that another scheduler bound."""
    return pod(f"b{number}", node=on, holdings=(holding("GPU-0", memory_mib, 0),))


def test_a_class_is_counted_again_when_as_many_changes_passed_as_nodes_fitted() -> None:
    state = state_of(*(node(f"n{number}") for number in range(NODES)))
    feasibility = FeasibilityCache(state, Evaluator(state))
    fact = pod("a")
    for number in range(NODES):
        assert feasibility.of(fact).feasible == NODES
        assert feasibility.counted == 1
        feasibility.close()
        apply(state, bound(number, "n0", memory_mib=1), state.seq + 1)
    feasibility.of(fact)
    assert feasibility.counted == 2


def test_a_class_that_fits_nowhere_is_counted_at_every_change_and_not_without() -> None:
    state = state_of(node("n0"))
    feasibility = FeasibilityCache(state, Evaluator(state))
    fact = pod("h", HUGE)
    assert feasibility.of(fact).refusal.nodes == 1
    assert feasibility.of(fact).refusal.nodes == 1
    assert feasibility.counted == 1
    feasibility.close()
    apply(state, node("n1"), state.seq + 1)
    assert feasibility.of(fact).refusal.nodes == 2
    assert feasibility.counted == 2


def test_another_policy_is_another_question() -> None:
    state = state_of(node("n0"))
    feasibility = FeasibilityCache(state, Evaluator(state))
    assert feasibility.of(pod("a")).feasible == 1
    feasibility.close()
    apply(state, policy(families=()), state.seq + 1)
    assert feasibility.of(pod("a")).feasible == 0


def test_the_ranker_follows_even_if_nobody_asks() -> None:
    state = state_of(node("n0"))
    board = Board(state)
    feasibility = FeasibilityCache(state, board)
    begun = 0

    def begin() -> None:
        nonlocal begun
        begun += 1

    board.begin = begin  # type: ignore[method-assign]
    for _ in range(3 * FOLLOW_CHANGES):
        state.touch(state.nodes["n0"])
        feasibility.follow()
    assert begun == 3


@pytest.mark.parametrize("seed", range(15))
def test_it_says_what_counting_every_node_would_say(seed: int) -> None:
    random = Random(seed)
    state = state_of(*(node(f"n{number}") for number in range(NODES)))
    feasibility = FeasibilityCache(state, Board(state))
    asked: list[PodRequest] = [
        request(wants(memory_mib=mib, count=count))
        for mib in (500, 9_000, 16_000)
        for count in (1, 2)
    ]
    for number in range(400):
        on = f"n{random.randrange(NODES)}"
        event: Event = bound(number, on, random.choice((500, 5_000, 15_000)))
        if random.random() < 0.3:
            uid = f"b{random.randrange(number + 1)}"
            event = PodGone(uid=uid, namespace="default", name=uid, rv=9)
        elif random.random() < 0.1:
            event = NodeGone(name=on, uid=f"uid-{on}", rv=9)
        elif random.random() < 0.1:
            event = node(on, rv=number, unschedulable=random.random() < 0.5)
        apply(state, event, state.seq + 1)
        for wanted in random.sample(asked, 2):
            fact = pod("a", wanted)
            fresh = Evaluator(state)
            ranking = fresh.rank(wanted)
            found = feasibility.of(fact)
            assert (found.feasible > 0) == (ranking.feasible > 0)
            if not ranking.feasible:
                assert found.refusal == refuse(
                    state, fact, wanted, ranking.nodes, fresh.reasons(wanted)
                )
        feasibility.close()
    assert feasibility.counted < 2 * 400
