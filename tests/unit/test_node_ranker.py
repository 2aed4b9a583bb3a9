"""The board ranks large clusters under policies that it knows; the plain ranker all others."""

import sys
from collections.abc import Callable
from importlib.util import find_spec

import pytest

import allotment_board
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.policies import POLICIES
from allotment.core.placement.policies.learning import LEARNERS
from allotment.core.placement.policies.typical import cluster_fragmentation
from allotment.core.placement.rules.terms import TERMS
from allotment_board import NodeRanker, is_for_board, machine_code
from allotment_board.encode import POLICY_NUMBERS
from allotment_board.term_loops import LOOPS
from allotment_proto.events import Event, MixLearned, NodeGone
from allotment_proto.facts import Typical
from tests.build import node, pod, policy, request, state_of, wants

SHARE = request(wants(4_000, 0))


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[str], None]]:
    """A cluster of two nodes is large enough for the board, one of three for compiled loops; none
    are compiled.
    """
    asked: list[Callable[[str], None]] = []
    monkeypatch.setattr(allotment_board, "NODES_MIN", 2)
    monkeypatch.setattr(allotment_board, "COMPILED_NODES_MIN", 3)
    monkeypatch.setattr(machine_code, "load_in_thread", asked.append)
    return asked


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_board_ranks_large_clusters_under_policies_that_it_knows(name: str) -> None:
    state = state_of(policy(device_policy=name), node("n1"))
    assert is_for_board(state) is (name in LEARNERS)
    apply(state, node("n2"), 9)
    assert is_for_board(state) is (name in POLICY_NUMBERS) is (name != "best-fit")


def test_without_numpy_the_plain_rules_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(*[node(f"n{number}") for number in range(3)])
    assert is_for_board(state)
    monkeypatch.setattr(
        allotment_board, "find_spec", lambda name: None if name == "numpy" else find_spec(name)
    )
    assert not is_for_board(state)


def test_the_board_knows_every_score_term_of_the_product() -> None:
    assert [term.name for term in TERMS if term.name not in LOOPS] == []


def test_each_begin_decides_anew_and_nothing_else_is_to_be_seen(
    loaded: list[Callable[[str], None]],
) -> None:
    state = state_of(node("n1"), *[pod(f"p{n}", SHARE) for n in range(2)])
    ranker = NodeRanker(state, print)

    def uses_board() -> bool:
        assert run_cycle(state, ["p0", "p1"], ranker) == run_cycle(
            state, ["p0", "p1"], Evaluator(state)
        )
        return ranker._board is not None

    found = [uses_board()]
    events: tuple[Event, ...] = (
        node("n2"),
        policy(device_policy="best-fit"),
        policy(device_policy="binpack"),
        NodeGone(uid="uid-n1", name="n1", rv=9),
    )
    for seq, event in enumerate(events, 10):
        apply(state, event, seq)
        found.append(uses_board())
    assert found == [False, True, False, True, False]
    assert not loaded, "two nodes are too few for compiled loops"


def test_loops_are_loaded_only_for_who_says_whom_to_tell(
    loaded: list[Callable[[str], None]],
) -> None:
    state = state_of(*[node(f"n{number}") for number in range(3)])
    NodeRanker(state).begin()
    assert not loaded
    NodeRanker(state, print).open_ahead()
    assert loaded == [print]


@pytest.mark.parametrize("is_installed", [True, False])
def test_fragmentation_is_the_same_by_either(
    is_installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_installed:
        monkeypatch.setattr(allotment_board, "find_spec", lambda _: None)
    learned = MixLearned(policy="fill-ahead", mix=(Typical(SHARE, 10**6, 250),), pods=20)
    state = state_of(policy(device_policy="fill-ahead"), *[node(f"n{n}") for n in range(2)])
    ranker = NodeRanker(state)
    assert ranker.fragmentation() is None
    apply(state, learned, 9)
    found = ranker.fragmentation()
    assert found == cluster_fragmentation(state.nodes.values(), learned.mix, state.policy)
    assert (ranker._board is not None) is is_installed


def test_a_process_that_never_used_the_board_has_no_compiled_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, machine_code.__name__)
    assert not allotment_board.is_loading()
    assert not allotment_board.is_compiled()
