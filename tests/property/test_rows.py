"""Rows of nodes that left are given to nodes that come: they do not grow as a cluster ages."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_proto.events import NodeGone
from tests.build import holding, node, pod, request, wants

NAMES = ("a", "b", "c", "d", "e", "f")
LOADS = tuple(name.upper() for name in NAMES)
ASKED = request(wants(8_000, 0, 1))


@given(st.lists(st.lists(st.sampled_from((*NAMES, *LOADS)), max_size=4), max_size=12))
def test_nodes_come_and_go(turns: list[list[str]]) -> None:
    """Each turn lets every named node come if it is away, and leave if it is there. A name in
    capitals puts a pod on that node, whether it is there or not.
    """
    state, most, seq = ClusterState(), 0, 0
    board = Board(state)
    for turn in turns:
        for name in turn:
            seq += 1
            if name in LOADS:
                there = pod(f"p{seq}", node=name.lower(), holdings=(holding("GPU-0", 9_000),))
                apply(state, there, seq)
                most = max(most, len(state.nodes))
                continue
            known = state.nodes.get(name)
            if known is not None and known.fact is not None:
                apply(state, NodeGone(name=name, uid=f"uid-{name}", rv=seq), seq)
            else:
                apply(state, node(name, 2, rv=seq, uid=f"uid-{name}"), seq)
            most = max(most, len(state.nodes))
        assert check(state) == []
        assert len(state.rows) == most
        board.begin()
        evaluator = Evaluator(state)
        evaluator.begin()
        assert board.rank(ASKED) == evaluator.rank(ASKED)
        board.end()
    again = snapshot.decode(snapshot.encode(state))
    assert sorted(again.vacant) == sorted(state.vacant)
    assert snapshot.encode(again) == snapshot.encode(state)
