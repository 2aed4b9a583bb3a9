"""One cycle: which node wins, what a batch assumes, what a recheck lets through."""

from typing import Any

import msgspec
import pytest

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import place, recheck, recheck_all, run_cycle, stamped
from allotment.core.placement.evaluator import Evaluator, Trial
from allotment_board.board import Board
from allotment_proto.events import Placement, Refusal
from allotment_proto.facts import Problem
from tests import build


def cycle(state: ClusterState, *batch: str) -> Any:
    return run_cycle(state, batch, Evaluator(state))


def test_highest_score_wins_then_best_fit_then_name() -> None:
    small, large = build.card(0, memory_mib=8_000), build.card(0, memory_mib=16_000)
    by_score = build.state_of(build.node("n1", [large]), build.node("n2", [small]), build.pod("a"))
    assert cycle(by_score, "a").placements[0].node == "n2"
    flat = build.policy(device_policy="none", host_policy="none")
    by_fit = build.state_of(
        flat, build.node("n1", [large]), build.node("n2", [small]), build.pod("a")
    )
    assert cycle(by_fit, "a").placements[0].node == "n2"
    by_name = build.state_of(flat, build.node("n2"), build.node("n1"), build.pod("a"))
    (placed,) = cycle(by_name, "a").placements
    assert placed.node == "n1"
    assert [r.node for r in placed.runners_up] == ["n2"]
    assert (placed.feasible, placed.nodes) == (2, 2)


def test_runners_up_are_the_same_however_many_nodes_there_are() -> None:
    names = [f"n{i:03}" for i in range(100)]
    state = build.state_of(*(build.node(name) for name in reversed(names)), build.pod("a"))
    (placed,) = cycle(state, "a").placements
    assert [placed.node, *(r.node for r in placed.runners_up)] == names[:4]


def test_later_pods_of_a_batch_see_what_earlier_ones_took() -> None:
    half = build.request(build.wants(8_000, 0))
    state = build.state_of(build.node(cards=1), *(build.pod(uid, half) for uid in "abc"))
    found = cycle(state, "a", "b", "c")
    assert [p.uid for p in found.placements] == ["a", "b"]
    (refused,) = found.refusals
    assert refused == Refusal("c", "default", "pod-c", 1, ((reasons.INSUFFICIENT_GPU_MEMORY, 1),))
    assert state.nodes["n1"].ledgers["vgpu"].cards[0].used_slots == 0, "nothing is changed"


def test_a_pod_that_is_named_twice_is_placed_once() -> None:
    state = build.state_of(build.node(), build.pod("a"))
    assert len(cycle(state, "a", "a", "unknown").placements) == 1


def test_the_same_refusal_is_not_said_twice() -> None:
    state = build.state_of(build.pod("a"))
    (first,) = cycle(state, "a").refusals
    apply(state, build.decided(refusals=(first,), batch=("a",)), 2)
    assert cycle(state, "a").suppressed == ("a",)
    apply(state, build.node(unschedulable=True), 3)
    assert cycle(state, "a").refusals[0].reasons == ((reasons.NODE_CORDONED, 1),)


def test_reasons_are_ordered_by_count_then_code() -> None:
    state = build.state_of(
        build.node("n1", unschedulable=True),
        build.node("n2", ready=False),
        build.node("n3", ready=False),
        build.node("n4", cards=[]),
        build.pod("a"),
    )
    (refused,) = cycle(state, "a").refusals
    assert refused.reasons == (
        (reasons.NODE_NOT_READY, 2),
        (reasons.NO_GPU, 1),
        (reasons.NODE_CORDONED, 1),
    )
    assert refused.nodes == 4


def test_a_problem_of_the_pod_asks_no_node() -> None:
    problem = Problem("InvalidRequest", "container c", "is wrong")
    state = build.state_of(build.node(), build.pod("a", problem=problem))
    assert cycle(state, "a").refusals == (Refusal("a", "default", "pod-a", 0, (), problem),)


def test_only_touched_nodes_are_asked_again() -> None:
    state = build.state_of(*(build.node(f"n{i}") for i in range(5)), build.pod("a"))
    evaluator = Evaluator(state)
    run_cycle(state, ["a"], evaluator)
    assert evaluator.asked == 5
    run_cycle(state, ["a"], evaluator)
    assert evaluator.asked == 5
    apply(state, build.node("n3", rv=2, unschedulable=True), 7)
    run_cycle(state, ["a"], evaluator)
    assert evaluator.asked == 6


def test_a_change_of_policy_asks_everything_again() -> None:
    state = build.state_of(build.node("n1"), build.node("n2"), build.pod("a"))
    evaluator = Evaluator(state)
    assert run_cycle(state, ["a"], evaluator).placements[0].score_micro > 0
    apply(state, build.policy(device_policy="none", host_policy="none"), 4)
    assert run_cycle(state, ["a"], evaluator).placements[0].score_micro == 0


def proposal(state: ClusterState) -> Placement:
    found = place(state.pods["a"].fact, Evaluator(state))
    assert isinstance(found, Placement)
    return found


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (None, None),
        (build.node("n2"), None),
        (build.node(rv=2, unschedulable=True), reasons.NODE_CORDONED),
        (build.node(rv=2, cards=[build.card(0, memory_mib=100)]), reasons.INSUFFICIENT_GPU_MEMORY),
        (build.node(rv=2, cards=[build.card(7)]), reasons.NOT_ENOUGH_GPUS_ON_NODE),
        (build.pod("a", rv=2, node="n1"), reasons.STALE_LEDGER),
        (build.pod("a", rv=2, gated=True), reasons.STALE_LEDGER),
        (build.pod("a", build.request(build.wants(), cpu_milli=200), rv=2), reasons.STALE_LEDGER),
        (build.pod("a", build.request(build.wants(5_000)), rv=2), reasons.STALE_LEDGER),
        (
            build.pod("a", rv=2, problem=Problem("InvalidRequest", "", "")),
            reasons.INVALID_REQUEST,
        ),
        (build.pod("x", node="n1", holdings=(build.holding(memory_mib=14_000),)), "memory"),
    ],
)
def test_recheck(event: Any, code: str | None) -> None:
    state = build.state_of(build.node(cards=1), build.pod("a"))
    proposed = proposal(state)
    if event is not None:
        apply(state, event, 3)
    wanted = reasons.INSUFFICIENT_GPU_MEMORY if code == "memory" else code
    assert recheck(state, Trial(state), proposed) == wanted


def test_recheck_of_a_pod_that_is_gone_or_came_twice() -> None:
    state = build.state_of(build.node(), build.pod("a"))
    proposed = proposal(state)
    trial = Trial(state)
    assert recheck(state, trial, proposed) is None
    assert recheck(state, trial, proposed) == reasons.STALE_LEDGER
    other = msgspec.structs.replace(proposed, uid="unknown")
    assert recheck(state, trial, other) == reasons.POD_GONE
    elsewhere = msgspec.structs.replace(proposed, node="unknown")
    assert recheck(state, Trial(state), elsewhere) == reasons.STALE_LEDGER


def test_a_recheck_counts_on_what_it_let_through_before() -> None:
    half = build.request(build.wants(8_000, 0))
    state = build.state_of(build.node(cards=1), *(build.pod(uid, half) for uid in "abc"))
    held = build.holding(memory_mib=8_000, cores_pct=0)
    trial = Trial(state)
    codes = [recheck(state, trial, build.placement(uid, "n1", held)) for uid in "abc"]
    assert codes == [None, None, reasons.INSUFFICIENT_GPU_MEMORY]


def test_a_recheck_copies_only_nodes_that_are_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied: list[str] = []
    fork = Node.fork

    def forked(node: Node) -> Node:
        copied.append(node.name)
        return fork(node)

    monkeypatch.setattr(Node, "fork", forked)
    uids = "abcd"
    state = build.state_of(*(build.node(f"n{i}") for i in range(3)), *map(build.pod, uids))
    at = [build.placement(uid, on) for uid, on in zip(uids, ("n0", "n1", "n2", "n1"), strict=True)]
    assert recheck_all(state, at[:3], ()).kept == tuple(at[:3])
    assert copied == []
    assert len(recheck_all(state, at, ()).kept) == 4
    assert copied == ["n1"]


def test_what_a_trial_takes_back_is_forgotten() -> None:
    state = build.state_of(build.node("n1"), *map(build.pod, "abc"))
    trial = Trial(state)
    a, b, c = (build.placement(uid, "n1") for uid in "abc")
    trial.assume(a)
    trial.assume(b)
    assert trial.node("n1") is not None
    trial.take_back(b)
    trial.assume(c)
    node = trial.node("n1")
    assert node is not None
    assert list(node.allocations) == ["a", "c"]
    assert trial.placed == {"a", "c"}
    assert not state.nodes["n1"].allocations
    trial.take_back(c)
    assert [list(n.allocations) for n in trial.nodes()] == [["a"]]


def test_stamps_increase_per_node_and_never_lag() -> None:
    state = build.state_of(
        build.node("n1"), build.node("n2"), build.pod("z"),
        build.decided(build.placement("z", stamp_s=500)),
    )  # fmt: skip
    places = [build.placement(uid, on) for uid, on in (("a", "n1"), ("b", "n2"), ("c", "n1"))]
    assert [p.stamp_s for p in stamped(state, places, 100)] == [501, 100, 502]
    assert [p.stamp_s for p in stamped(state, places, 900)] == [900, 900, 901]


def test_runners_up_name_the_cards_that_a_node_has_now() -> None:
    """Also where nothing changed but the cards' ids: rank and slots are what they were."""
    state = build.state_of(build.node("n1"), build.node("n2"))
    board = Board(state)
    for rv, prefix in ((2, "GPU"), (3, "NEW")):
        cards = [build.card(index, id=f"{prefix}-{index}") for index in range(2)]
        apply(state, build.node("n2", cards, rv=rv), state.seq + 1)
        board.begin()
        (runner_up,) = board.rank(build.request(build.wants(1_000, 10))).runners_up
        board.end()
        assert (runner_up.node, runner_up.cards[0][:3]) == ("n2", prefix)
