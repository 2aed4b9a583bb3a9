"""What a ranker takes back leaves no trace: on columns as node by node."""

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import place
from allotment.core.placement.evaluator import Evaluator, Ranker
from allotment_board.board import Board
from allotment_proto.events import Event, Placement
from tests import strategies as own


@settings(max_examples=max(40, settings().max_examples // 4))
@given(own.lives(own.every_policy), st.data())
def test_what_is_taken_back_leaves_no_trace(events: list[Event], data: st.DataObject) -> None:
    state = ClusterState()
    for seq, event in enumerate(events, start=1):
        apply(state, event, seq)
    pending = [state.pods[uid].fact for uid in state.pending]
    if not pending:
        return
    rankers: tuple[Ranker, ...] = (Board(state), Evaluator(state))
    for ranker in rankers:
        ranker.begin()
    requests = {fact.request for fact in pending}
    steps = data.draw(st.lists(st.sampled_from([*pending, None, None]), max_size=12))
    assumed: list[Placement] = []
    for fact in steps:
        if fact is None:
            for ranker in rankers if assumed else ():
                ranker.take_back()
            del assumed[-1:]
        elif all(fact.uid != placement.uid for placement in assumed):
            answers = [place(fact, ranker) for ranker in rankers]
            assert answers[0] == answers[1]
            if isinstance(answers[0], Placement):
                assumed.append(answers[0])
                for ranker in rankers:
                    ranker.assume(answers[0])
        fresh = Evaluator(state)
        fresh.begin()
        for placement in assumed:
            fresh.assume(placement)
        wanted = [fresh.rank(request) for request in requests]
        for ranker in rankers:
            assert list(ranker.assumed) == assumed
            assert [ranker.rank(request) for request in requests] == wanted
