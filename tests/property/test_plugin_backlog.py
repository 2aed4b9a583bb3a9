"""Nodes whose device plugin has pods to serve are skipped, and no pod loses its place by it."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core import reasons
from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import place, run_cycle
from allotment.core.placement.evaluator import Evaluator, Place, Ranker
from allotment.core.placement.least_busy import careful, is_in_use, patience
from allotment_board.board import Board
from allotment_proto.events import Placement, PodGone, PodObserved, PolicyLoaded, Refusal
from tests import strategies as own
from tests.build import decided
from tests.strategies.policy import every_policy
from tests.strategies.request import calm_request

pytestmark = pytest.mark.usefixtures("scoring")

_LIVES = settings(max_examples=max(60, settings().max_examples // 2))


def _tell(state: ClusterState, fact: PodObserved | PodGone) -> None:
    apply(state, fact, state.seq + 1)


@st.composite
def busy(draw: st.DrawFn) -> ClusterState:
    """A life in which decisions are made, and pods are served, fail or go in any order."""
    events = draw(own.lives(every_policy))
    placed, told = draw(st.permutations(own.PODS)), draw(st.permutations(own.PODS))
    words = [draw(st.sampled_from(("", "bound", "served", "runs", "gone"))) for _ in told]
    later = [draw(own.pods(f"later-{n}", wanted=calm_request)) for n in range(4)]
    state = ClusterState()
    for event in events:
        apply(state, event, state.seq + 1)
    for uid in placed:
        found = run_cycle(state, (uid,), Evaluator(state)).placements
        if found:
            apply(state, decided(*found), state.seq + 1)
    for uid, word in zip(told, words, strict=True):
        pod = state.pods.get(uid)
        if pod is None or pod.allocation is None or not word:
            continue
        if word == "gone":
            _tell(state, PodGone(uid=uid, namespace="default", name=uid, rv=9))
            continue
        seen = msgspec.structs.replace(
            pod.fact,
            rv=9,
            node=pod.allocation.node,
            holdings=pod.allocation.holdings,
            phase="Running" if word == "runs" else "Pending",
            bind_phase="success" if word == "served" else "allocating",
        )
        _tell(state, seen)
    for fact in later:
        _tell(state, fact)
    return state


def _answers(state: ClusterState, ranker: Ranker) -> dict[str, Placement | Refusal]:
    """Each waiting pod's place, if it came next."""
    ranker.begin()
    found = {uid: place(state.pods[uid].fact, ranker) for uid in state.pending}
    ranker.end()
    return found


def _load(state: ClusterState, most: int) -> None:
    policy = msgspec.structs.replace(state.policy, plugin_backlog=most)
    apply(state, PolicyLoaded(policy=policy, source="test", text_sha256=""), state.seq + 1)


def _takers(state: ClusterState, uid: str) -> list[str]:
    """The nodes that take a pod, the best first, cards that it avoids aside."""
    verdicts = Evaluator(state).verdicts(careful(state.pods[uid].fact, state))
    return [v.rank[2] for v in sorted(v for v in verdicts.values() if isinstance(v, Place))]


def _least(state: ClusterState, uid: str) -> int:
    """How many wait on the node of these that has fewest."""
    return min((state.nodes[name].backlog for name in _takers(state, uid)), default=1 << 30)


def _might_start_at_once(state: ClusterState, uid: str) -> bool:
    """Whether the best node with an idle plugin has pods with devices already."""
    idle = [name for name in _takers(state, uid) if not state.nodes[name].backlog]
    return bool(idle) and is_in_use(state, idle[0])


@_LIVES
@given(busy(), st.integers(1, 3))
def test_who_finds_a_place_finds_one_and_not_where_others_wait_without_need(
    state: ClusterState, most: int
) -> None:
    assert check(state) == []
    _load(state, 0)
    off = _answers(state, Evaluator(state))
    _load(state, most)
    board = Board(state)
    found = _answers(state, board)
    assert found == _answers(state, Evaluator(state))
    for uid, without in off.items():
        answer = found[uid]
        if isinstance(without, Refusal):
            assert answer == without
            continue
        assert isinstance(answer, Placement)
        fact = state.pods[uid].fact
        waits, waiting = patience(fact, state), state.nodes[answer.node].backlog
        if not fact.request.devices:
            assert answer == without
        elif waiting >= waits.below:
            assert _least(state, uid) >= waits.below, "a node takes it on which fewer wait"
            assert answer.nodes == without.nodes
        elif not any(node.backlog for node in state.nodes.values()):
            assert answer == without
        elif not waits.idle_first:
            if all(node.backlog < waits.below for node in state.nodes.values()):
                assert answer == without
        elif waiting and state.policy.mig_order != "best-fit":
            assert not _might_start_at_once(state, uid)
    assert run_cycle(state, list(state.pending), board) == run_cycle(
        state, list(state.pending), Evaluator(state)
    ), "what is assumed waits for the plugin as well"


@_LIVES
@given(busy(), st.integers(1, 3))
def test_both_count_why_a_node_is_passed_over(state: ClusterState, most: int) -> None:
    _load(state, most)
    for uid in state.pending:
        asked = state.pods[uid].fact.request
        selection = msgspec.structs.replace(asked.selection, backlog_below=most)
        request = msgspec.structs.replace(asked, selection=selection)
        board, plain = Board(state), Evaluator(state)
        board.begin()
        counted = board.reasons(request)
        board.end()
        assert counted == plain.reasons(request)
        here = [node for node in state.nodes.values() if node.fact is not None]
        passed_over = dict(counted).get(reasons.DEVICE_PLUGIN_BUSY, 0)
        assert passed_over <= sum(node.backlog >= most for node in here)


@_LIVES
@given(busy())
def test_the_count_is_the_same_after_a_snapshot(state: ClusterState) -> None:
    again = snapshot.decode(snapshot.encode(state))
    counts = {name: node.backlog for name, node in state.nodes.items()}
    assert {name: node.backlog for name, node in again.nodes.items()} == counts
