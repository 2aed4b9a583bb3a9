"""Within any bounds the board answers as the evaluator that asks node by node, whatever happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.evaluator import Evaluator, Place, Ranker
from allotment.core.placement.rules.bounds import Bonus, Bound, Bounds, Excluded, bounded, bounds_of
from allotment.core.placement.rules.interpod import situated
from allotment.core.reasons import (
    CARD_WITHOUT_QUOTA,
    HELD_FOR_GANG,
    KEPT_FOR_PREEMPTOR,
    NODE_GROUP,
)
from allotment_board.board import Board
from allotment_proto.events import Event, PolicyLoaded
from allotment_proto.facts import Expression, NodeTerm, PodRequest, Policy
from tests import build
from tests import strategies as own

pytestmark = pytest.mark.usefixtures("scoring")

TERMS = st.builds(
    NodeTerm,
    st.lists(
        st.builds(
            Expression,
            st.sampled_from(("zone", "tier")),
            st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
            st.sampled_from(((), ("a",), ("b", "5"))),
        ),
        max_size=2,
    ).map(tuple),
)
BOUNDS = st.builds(
    Bounds,
    st.lists(
        st.builds(
            Bound,
            st.sampled_from((NODE_GROUP, CARD_WITHOUT_QUOTA)),
            st.lists(TERMS, min_size=1, max_size=2).map(tuple),
            st.just("a rule"),
        ),
        max_size=2,
    ).map(tuple),
    st.lists(
        st.builds(
            Excluded,
            st.sampled_from((HELD_FOR_GANG, KEPT_FOR_PREEMPTOR)),
            st.frozensets(st.sampled_from((*own.NODES, "nowhere"))),
            st.just("a hold"),
        ),
        max_size=2,
    ).map(tuple),
    st.lists(
        st.builds(
            Bonus,
            st.sampled_from(("nodegroup", "capacity-card")),
            st.sampled_from((("zone",), ("tier",), ("tier", "zone"), ())),
            st.dictionaries(
                st.sampled_from(("a", "b", "5", *own.NODES)), st.integers(0, 200_000_000)
            ).map(lambda found: tuple(sorted(found.items()))),
            st.integers(0, 2_000_000),
        ),
        max_size=2,
        unique_by=lambda bonus: bonus.term,
    ).map(tuple),
)


LABELS = ((), (("zone", "a"),), (("tier", "5"), ("zone", "b")))
START = [
    build.node(name, [build.card(n, id=f"{name}-{n}") for n in range(2)], labels=labels)
    for name, labels in zip(own.NODES, LABELS, strict=True)
]
EASY = st.sampled_from((PodRequest(), PodRequest(cpu_milli=100), build.request(build.wants())))


@given(
    own.every_policy,
    st.lists(own.events(), max_size=20),
    st.lists(st.tuples(EASY | EASY | own.every_request, BOUNDS), min_size=1, max_size=4),
    st.integers(2, 20),
)
def test_same_answers(
    policy: Policy, events: list[Event], asked: list[tuple[PodRequest, Bounds]], cut: int
) -> None:
    state = ClusterState()
    apply(state, PolicyLoaded(policy=policy, source="test", text_sha256=""), 1)
    board = Board(state)
    requests = [bounded(request, bounds) for request, bounds in asked]
    told = [*START, *events]
    for seq, event in enumerate(told, 2):
        apply(state, event, seq)
        if seq in (4, 3 + cut, len(told) + 1):
            for request in requests:
                _same(state, board, situated(build.pod("x", request), state))


def _same(state: ClusterState, board: Board, request: PodRequest) -> None:
    found: list[object] = []
    rankers: tuple[Ranker, ...] = (board, Evaluator(state))
    for ranker in rankers:
        ranker.begin()
        found += [ranker.rank(request), ranker.reasons(request), ranker.holds_at_most(request, 9)]
        ranker.end()
    assert found[:3] == found[3:]
    evaluator = Evaluator(state)
    evaluator.begin()
    kept = {name for excluded in bounds_of(request).excluded for name in excluded.nodes}
    places = evaluator.verdicts(request).values()
    assert not kept & {place.rank[2] for place in places if isinstance(place, Place)}
    evaluator.end()
