"""A batch is placed whole or not at all, on columns as node by node, and undone exactly."""

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.gang import Short, Whole, place_whole
from allotment_board.board import Board
from allotment_proto.events import Event, PodObserved
from tests import strategies as own
from tests.build import node, pod, request, state_of, wants


@settings(max_examples=max(40, settings().max_examples // 4))
@given(own.lives(own.every_policy), st.data())
def test_board_and_evaluator_agree_and_leave_no_trace(
    events: list[Event], data: st.DataObject
) -> None:
    state = ClusterState()
    for seq, event in enumerate(events, start=1):
        apply(state, event, seq)
    pending = [state.pods[uid].fact for uid in state.pending]
    if not pending:
        return
    chosen = data.draw(st.lists(st.sampled_from(pending), min_size=1, max_size=6))
    pods = [_numbered(pod, number) for number, pod in enumerate(chosen)]
    board, evaluator = Board(state), Evaluator(state)
    board.begin()
    evaluator.begin()
    before = [board.rank(pod.request) for pod in pods]
    found, wanted = place_whole(pods, board), place_whole(pods, evaluator)
    assert found == wanted
    if isinstance(found, Short):
        assert [board.rank(pod.request) for pod in pods] == before
        assert [evaluator.rank(pod.request) for pod in pods] == before
    else:
        assert [p.uid for p in found.placements] == [p.uid for p in pods]
    board.end()
    board.begin()
    assert [board.rank(pod.request) for pod in pods] == before


def _numbered(pod: PodObserved, number: int) -> PodObserved:
    return pod.__class__(
        uid=f"{pod.uid}/{number}",
        namespace=pod.namespace,
        name=f"{pod.name}-{number}",
        rv=pod.rv,
        created_ms=pod.created_ms,
        scheduler=pod.scheduler,
        phase="Pending",
        request=pod.request,
        problem=pod.problem,
    )


def _gang(count: int, memory_mib: int, cards: int = 1) -> list[PodObserved]:
    asked = request(wants(memory_mib, 0, cards))
    return [pod(f"p{number}", asked) for number in range(count)]


def test_a_hopeless_batch_is_refused_untried() -> None:
    state = state_of(node("n1", 2), node("n2", 2))
    board = Board(state)
    board.begin()
    short = place_whole(_gang(5, 9_000), board)
    assert isinstance(short, Short)
    assert (short.together, short.was_tried) == (4, False)
    scored = board.scored
    place_whole(_gang(5, 9_000), board)
    assert board.scored == scored, "nothing was tried, so nothing had to be scored again"


def test_one_that_fails_on_the_way_is_given_back() -> None:
    state = state_of(node("n1", 2), node("n2", 2))
    board = Board(state)
    board.begin()
    mixed = [*_gang(3, 9_000), *_gang(2, 7_500)[1:], *_gang(1, 15_000)]
    short = place_whole([_numbered(p, n) for n, p in enumerate(mixed)], board)
    assert isinstance(short, Short)
    assert short.was_tried
    whole = place_whole(_gang(4, 9_000), board)
    assert isinstance(whole, Whole), "what was tried is free again"
    assert {p.node for p in whole.placements} == {"n1", "n2"}
