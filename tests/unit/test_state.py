"""The fold, one transition at a time. Each story is told by events; the state says how it ended."""

from typing import Any

import pytest

from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check, oversold
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply, apply_all, covers
from allotment_proto.events import BindFailed, Bound, NodeGone, PodGone, Refusal
from allotment_proto.facts import Holding
from tests import build


def bound(decision: int = 3, uid: str = "a") -> Bound:
    return Bound(uid=uid, namespace="default", name="", node="n1", decision=decision)


def failed(decision: int = 3, uid: str = "a") -> BindFailed:
    return BindFailed(
        uid=uid, namespace="", name="", node="n1", decision=decision, code="APIError", message=""
    )


def pod_gone(uid: str = "a") -> PodGone:
    return PodGone(uid=uid, namespace="", name="", rv=9)


def node_gone(uid: str = "uid-n1") -> NodeGone:
    return NodeGone(name="n1", uid=uid, rv=9)


RESERVED = (build.node(), build.pod("a"), build.decided(build.placement("a")))
HELD = (build.holding(),)
BUSY = (build.holding(memory_mib=1, cores_pct=90),)


def how(state: ClusterState, uid: str = "a") -> str:
    """One word for where a pod is in its life."""
    pod = state.pods.get(uid)
    if pod is None:
        return "unknown"
    if pod.allocation is not None:
        return f"{pod.allocation.phase} on {pod.allocation.node}"
    return "pending" if uid in state.pending else "neither"


@pytest.mark.parametrize(
    ("events", "ends"),
    [
        ((build.pod("a"),), "pending"),
        ((build.pod("a", gated=True),), "neither"),
        ((build.pod("a", deleting=True),), "neither"),
        ((build.pod("a", scheduler="other"),), "neither"),
        ((build.pod("a", phase="Running"),), "neither"),
        (RESERVED, "reserved on n1"),
        ((*RESERVED, bound()), "bound on n1"),
        ((*RESERVED, bound(), bound()), "bound on n1"),
        ((*RESERVED, bound(99)), "reserved on n1"),
        ((*RESERVED, failed()), "pending"),
        ((*RESERVED, failed(), failed()), "pending"),
        ((*RESERVED, failed(99)), "reserved on n1"),
        ((*RESERVED, bound(), failed()), "bound on n1"),
        ((*RESERVED, build.pod("a", rv=2, node="n1", holdings=HELD)), "bound on n1"),
        ((*RESERVED, build.pod("a", rv=2, node="n1", holdings=HELD), failed()), "bound on n1"),
        ((*RESERVED, build.pod("a", rv=2, node="n2")), "bound on n2"),
        ((*RESERVED, build.pod("a", rv=2, phase="Failed")), "neither"),
        ((*RESERVED, build.pod("a", rv=2, deleting=True)), "reserved on n1"),
        ((*RESERVED, build.pod("a", rv=2, deleting=True), failed()), "neither"),
        ((*RESERVED, pod_gone()), "unknown"),
        ((*RESERVED, pod_gone(), bound(), failed()), "unknown"),
        ((*RESERVED, node_gone()), "reserved on n1"),
        ((*RESERVED, node_gone(), failed()), "pending"),
        ((*RESERVED, build.policy(scheduler_names=("x",)), failed(3)), "neither"),
        ((build.pod("a"), build.policy(scheduler_names=("x",))), "neither"),
        (
            (build.pod("a", scheduler="x"), build.policy(scheduler_names=("x",))),
            "pending",
        ),
        ((build.pod("a", rv=5), build.pod("a", rv=4, gated=True)), "pending"),
        ((build.pod("a"), build.pod("a", rv=2, gated=True)), "neither"),
        ((pod_gone(), bound(), failed(), node_gone()), "unknown"),
    ],
)
def test_life_of_a_pod(events: tuple[Any, ...], ends: str) -> None:
    state = build.state_of(*events)
    assert how(state) == ends
    assert check(state) == []
    assert state.seq == len(events)


@pytest.mark.parametrize(
    "before",
    [
        (build.pod("a"),),
        (build.node(cards=0), build.pod("a")),
        (build.node(cards=[build.card(7)]), build.pod("a")),
        (build.node(cards=[build.card(0, memory_mib=3_999)]), build.pod("a")),
        (build.node(cards=[build.card(0, slots=0)]), build.pod("a")),
        (build.node(pods=0), build.pod("a")),
        (build.node(cpu_milli=99), build.pod("a")),
        (build.node(), build.pod("a"), node_gone()),
        (build.node(), build.pod("a", node="n1")),
        (build.node(), build.pod("a", scheduler="other")),
        (build.node(cards=1), build.pod("x", node="n1", holdings=BUSY), build.pod("a")),
    ],
)  # fmt: skip
def test_void_placements(before: tuple[Any, ...]) -> None:
    """A fact landed first: nothing is reserved, and the binder can see that it is void."""
    state = build.state_of(*before)
    seq = state.seq + 1
    was = how(state)
    apply(state, build.decided(build.placement("a")), seq)
    assert how(state) == was
    assert state.voided == {"a": seq}
    assert check(state) == []


def test_a_good_placement_beside_a_void_one_stands() -> None:
    state = build.state_of(
        build.node(), build.pod("a"), build.pod("b"),
        build.decided(build.placement("a", "n9"), build.placement("b")),
    )  # fmt: skip
    assert (how(state), how(state, "b")) == ("pending", "reserved on n1")
    apply(state, build.decided(build.placement("a")), 5)
    assert state.voided == {}


def test_a_placement_that_comes_twice_is_charged_once() -> None:
    state = build.state_of(*RESERVED, build.decided(build.placement("a")))
    assert state.nodes["n1"].ledgers["vgpu"].cards[0].used_slots == 1
    held = state.pods["a"].allocation
    assert held is not None
    assert held.seq == 3


def test_covers_adds_up_what_one_placement_takes_of_one_card() -> None:
    node = build.state_of(build.node(cards=1)).nodes["n1"]
    two = [Holding("vgpu", i, "GPU-0", 8_000, 50) for i in (0, 1)]
    assert covers(node, build.placement("a", "n1", *two))
    three = [*two, Holding("vgpu", 2, "GPU-0", 1, 0)]
    assert not covers(node, build.placement("a", "n1", *three))


def test_covers_does_not_ask_for_what_is_not_wanted() -> None:
    state = build.state_of(
        build.node(), build.pod("x", build.request(cpu_milli=9_000, memory_bytes=0), node="n1")
    )
    node = state.nodes["n1"]
    assert not covers(node, build.placement("a"))
    assert covers(node, build.placement("a", cpu_milli=0))


def test_foreign_pods_are_charged_even_beyond_capacity() -> None:
    much = Holding("vgpu", 0, "GPU-0", 20_000, 0)
    state = build.state_of(build.node(), build.pod("a", node="n1", holdings=(much,)))
    assert oversold(state) == ["n1/GPU-0"]
    assert check(state) == []
    held = state.pods["a"].allocation
    assert held is not None
    assert held.seq == 0, "nobody here decided it"


def test_a_pod_seen_on_another_node_than_decided_is_adopted_where_it_is() -> None:
    other = (build.holding("GPU-1"),)
    seen = build.pod("a", rv=2, node="n2", holdings=other)
    state = build.state_of(*RESERVED, build.node("n2"), seen)
    cards = [card for name in ("n1", "n2") for card in state.nodes[name].ledgers["vgpu"].cards]
    assert [card.used_slots for card in cards] == [0, 0, 0, 1]
    assert state.reserved == {}


def test_a_pod_that_others_bound_to_the_same_node_is_adopted_when_its_binding_failed() -> None:
    other = (build.holding("GPU-1"),)
    state = build.state_of(*RESERVED, build.pod("a", rv=2, node="n1", holdings=other))
    cards = state.nodes["n1"].ledgers["vgpu"].cards
    assert [card.used_slots for card in cards] == [1, 0], "whose Binding it was is not known yet"
    assert list(state.reserved) == ["a"]
    apply(state, build.bind_failed("a", 3), 5)
    assert [card.used_slots for card in cards] == [0, 1]
    assert state.reserved == {}
    assert check(state) == []


def test_index_annotations_carry_no_memory_and_still_mean_our_placement() -> None:
    seen = (Holding("vgpu", 0, "GPU-0", 0, 25),)
    state = build.state_of(*RESERVED, build.pod("a", rv=2, node="n1", holdings=seen))
    held = state.pods["a"].allocation
    assert held is not None
    assert (held.seq, held.holdings) == (3, HELD)


def test_a_card_that_shrinks_under_its_holder_is_oversold_and_recovers() -> None:
    state = build.state_of(*RESERVED, build.node(rv=2, cards=[build.card(0, memory_mib=1_000)]))
    assert oversold(state) == ["n1/GPU-0"]
    apply(state, build.node(rv=3), 5)
    assert oversold(state) == []
    assert state.nodes["n1"].ledgers["vgpu"].cards[0].used_memory_mib == 4_000


def test_a_node_that_goes_keeps_its_holders_and_returns_with_them() -> None:
    state = build.state_of(*RESERVED, node_gone())
    assert state.nodes["n1"].fact is None
    assert check(state) == []
    apply(state, build.node(uid="another", rv=1), 5)
    assert state.nodes["n1"].ledgers["vgpu"].cards[0].used_slots == 1
    apply(state, node_gone("uid-n1"), 6)
    assert state.nodes["n1"].fact is not None, "the node of that uid was replaced"


def test_an_empty_node_that_goes_leaves_nothing() -> None:
    state = build.state_of(build.node(), node_gone())
    assert state.nodes == {}
    apply(state, build.node(), 3)
    assert list(state.nodes) == ["n1"]
    assert check(state) == []


def test_the_last_holder_takes_a_gone_node_with_it() -> None:
    state = build.state_of(*RESERVED, node_gone(), pod_gone())
    assert state.nodes == {}
    assert check(state) == []


def test_an_older_observation_of_the_same_node_is_ignored() -> None:
    state = build.state_of(build.node(rv=5), build.node(rv=4, unschedulable=True))
    fact = state.nodes["n1"].fact
    assert fact is not None
    assert not fact.unschedulable
    apply(state, build.node(rv=1, uid="reborn", unschedulable=True), 3)
    fact = state.nodes["n1"].fact
    assert fact is not None
    assert fact.unschedulable, "another node under the same name"


def test_a_pod_observed_after_it_was_gone_is_back() -> None:
    """The log cannot tell a late record from a new one: who appends facts must not reorder them."""
    state = build.state_of(build.pod("a"), pod_gone(), build.pod("a"))
    assert how(state) == "pending"


def test_a_refusal_is_remembered_only_while_the_pod_waits() -> None:
    refusal = Refusal("a", "default", "pod-a", 1, (("NoGPU", 1),))
    state = build.state_of(build.pod("a"), build.decided(refusals=(refusal,), basis=1))
    assert (state.pods["a"].refusal, state.pods["a"].refused_basis) == (refusal, 1)
    state = build.state_of(*RESERVED, build.decided(refusals=(refusal,), basis=1))
    assert state.pods["a"].refusal is None


def test_a_placement_ends_the_refusal() -> None:
    refusal = Refusal("a", "default", "pod-a", 0, ())
    state = build.state_of(
        build.node(), build.pod("a"), build.decided(refusals=(refusal,)),
        build.decided(build.placement("a")),
    )  # fmt: skip
    assert state.pods["a"].refusal is None


@pytest.mark.parametrize("cut", range(6))
def test_a_snapshot_anywhere_ends_in_the_same_bytes(cut: int) -> None:
    story = (*RESERVED, bound(), build.node("n2", cards=1), build.pod("b", rv=3))
    whole = build.state_of(*story)
    first = build.state_of(*story[:cut])
    second = snapshot.decode(snapshot.encode(first))
    for seq, event in enumerate(story[cut:], start=cut + 1):
        apply(second, event, seq)
    assert snapshot.encode(second) == snapshot.encode(whole)


@pytest.mark.parametrize("payload", [b"", b"junk", b"\x80", b"\x81\xa1v\x01"])
def test_what_is_no_snapshot(payload: bytes) -> None:
    with pytest.raises(snapshot.SnapshotError):
        snapshot.decode(payload)


def test_the_check_sees_a_forgotten_allocation() -> None:
    state = build.state_of(*RESERVED)
    state.nodes["n1"].allocations.clear()
    assert any("has no record of it" in problem for problem in check(state))


def test_a_record_without_events_moves_where_the_log_stands_and_nothing_else() -> None:
    state = build.state_of(*RESERVED)
    before = snapshot.encode(state)
    apply_all(state, (), 9)
    assert state.seq == 9
    state.seq = len(RESERVED)
    assert snapshot.encode(state) == before
