"""At most one answer can be meant when a device plugin asks "whose are these n devices?"."""

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.explain.rows.acknowledgement import is_acknowledged, plugin_question, standing
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment_binder.records import Unserved
from allotment_proto.events import Bound, PodObserved
from allotment_proto.facts import Holding, Inventory
from tests import build
from tests.build import (
    card,
    decided,
    holding,
    node,
    placement,
    pod,
    policy,
    state_of,
)
from tests.pacing import bindable


def scene(*shares: tuple[str, str, tuple[Holding, ...]]) -> ClusterState:
    """Nodes n1 and n2, and pods reserved by one decision: (uid, node, holdings)."""
    state = state_of(policy(), node("n1", cards=4), node("n2", cards=4))
    for uid, _, _ in shares:
        apply(state, pod(uid), state.seq + 1)
    placements = [
        msgspec.structs.replace(placement(uid, on, stamp_s=stamp), holdings=held)
        for stamp, (uid, on, held) in enumerate(shares, 1)
    ]
    apply(state, decided(*placements), state.seq + 1)
    assert len(state.reserved) == len(shares)
    return state


def uids(state: ClusterState, in_flight: Iterable[str] = ()) -> list[str]:
    return [allocation.uid for allocation in bindable(state, set(in_flight))]


def tell(state: ClusterState, uid: str, on: str, held: Holding, **changes: Any) -> None:
    """The watcher sees the pod bound."""
    fact = pod(uid, rv=2, node=on, holdings=(held,), **changes)
    apply(state, fact, state.seq + 1)


def test_pods_of_different_nodes_do_not_wait_for_each_other() -> None:
    state = scene(("a", "n1", (holding("GPU-0"),)), ("b", "n2", (holding("GPU-1"),)))
    assert uids(state) == ["a", "b"]


def test_another_card_with_the_same_count_waits_until_the_first_is_acknowledged() -> None:
    first, second = holding("GPU-0"), holding("GPU-1")
    state = scene(("a", "n1", (first,)), ("b", "n1", (second,)))
    assert uids(state) == ["a"]
    assert uids(state, ["a"]) == []
    outcome = Bound(uid="a", namespace="default", name="pod-a", node="n1", decision=state.seq)
    apply(state, outcome, state.seq + 1)
    assert uids(state) == []
    tell(state, "a", "n1", first, bind_phase="allocating")
    assert uids(state) == []
    tell(state, "a", "n1", first, bind_phase="success")
    assert uids(state) == ["b"]


def test_pods_with_equal_assignments_wait_for_each_other_too() -> None:
    """Swapped they would mount each other's directories, which are cleared away with their pod."""
    state = scene(*((uid, "n1", (holding("GPU-0"),)) for uid in "abc"))
    assert uids(state) == ["a"]
    tell(state, "a", "n1", holding("GPU-0"), bind_phase="success")
    assert uids(state) == ["b"]
    assert uids(state, ["b"]) == []
    assert [a.uid for a in bindable(state, set(), swap_equal=True)] == ["b", "c"]
    assert [a.uid for a in bindable(state, {"b"}, swap_equal=True)] == ["c"]


def test_another_number_of_devices_does_not_wait() -> None:
    two = (holding("GPU-1"), holding("GPU-2"))
    state = scene(("a", "n1", (holding("GPU-0"),)), ("b", "n1", two))
    assert uids(state) == ["a", "b"]


def test_pods_without_devices_never_wait() -> None:
    state = scene(("a", "n1", ()), ("b", "n1", ()), ("c", "n1", (holding("GPU-0"),)))
    assert uids(state) == ["a", "b", "c"]
    assert uids(state, ["a", "c"]) == ["b"]


def test_pods_that_share_memory_wait_for_the_same_amount() -> None:
    cards = tuple(card(index, id=str(index)) for index in range(3))
    state = state_of(policy(), node("n1", inventories=(Inventory("gpushare", "", cards),)))
    shares = {
        "a": Holding("gpushare", 0, "0", 4_000, 0),
        "b": Holding("gpushare", 0, "1", 4_000, 0),
        "c": Holding("gpushare", 0, "1", 5_000, 0),
        "d": Holding("gpushare", 0, "0", 4_000, 0),
        "whole": Holding("gpushare", 0, "2", 16_000, 100),
    }
    for uid in shares:
        apply(state, pod(uid), state.seq + 1)
    placements = [
        placement(uid, "n1", held, stamp_s=n) for n, (uid, held) in enumerate(shares.items())
    ]
    apply(state, decided(*placements), state.seq + 1)
    assert uids(state) == ["a", "c", "whole"]
    tell(state, "a", "n1", shares["a"], phase="Running")
    assert uids(state, ["c", "whole"]) == ["b"]
    tell(state, "b", "n1", shares["b"], phase="Running")
    assert uids(state, ["c", "whole"]) == ["d"]


def test_ascend_pods_go_one_by_one_and_only_a_start_lets_the_next_go() -> None:
    """HAMi's plugin picks the first pending pod of the node, also one that it has served."""
    cards = tuple(card(index, id=f"npu-{index}", model="Ascend310P") for index in range(3))
    state = state_of(policy(), node("n1", inventories=(Inventory("ascend", "", cards),)))
    one = Holding("ascend", 0, "npu-0", 3_000, 10, "Ascend310P/vir01")
    two = tuple(msgspec.structs.replace(one, card=f"npu-{n}") for n in (1, 2))
    for uid in ("a", "b"):
        apply(state, pod(uid), state.seq + 1)
    both = (placement("a", "n1", one, stamp_s=1), placement("b", "n1", *two, stamp_s=2))
    apply(state, decided(*both), state.seq + 1)
    assert uids(state) == ["a"]
    tell(state, "a", "n1", one, bind_phase="success")
    assert uids(state) == []
    tell(state, "a", "n1", one, bind_phase="success", phase="Running")
    assert uids(state) == ["b"]


def test_nobody_waits_for_a_plugin_that_is_gone() -> None:
    state = scene(("a", "n1", (holding("GPU-0"),)), ("b", "n1", (holding("GPU-1"),)))
    tell(state, "a", "n1", holding("GPU-0"), bind_phase="allocating")
    assert uids(state) == []
    apply(state, node("n1", 0, rv=2), state.seq + 1)
    assert uids(state) == ["b"]
    apply(state, node("n1", 4, rv=3), state.seq + 1)
    assert uids(state) == []


def test_the_oldest_decision_goes_first_and_the_stamp_decides_within_one() -> None:
    state = scene(("z", "n1", (holding("GPU-0"),)), ("a", "n1", (holding("GPU-1"),)))
    apply(state, pod("b"), state.seq + 1)
    later = placement("b", "n1", holding("GPU-2"), stamp_s=1)
    apply(state, decided(later), state.seq + 1)
    assert uids(state) == ["z"]
    tell(state, "z", "n1", holding("GPU-0"), phase="Running")
    assert uids(state) == ["a"]


def test_what_counts_as_acknowledged() -> None:
    def acknowledged(**changes: Any) -> bool:
        state = state_of(node(), pod("a", **{"node": "n1", **changes}))
        return is_acknowledged(state.pods["a"])

    assert acknowledged(bind_phase="success")
    assert acknowledged(bind_phase="failed")
    assert acknowledged(phase="Running")
    assert acknowledged(phase="Failed")
    assert not acknowledged()
    assert not acknowledged(bind_phase="allocating")
    assert not acknowledged(node="", bind_phase="success")


def test_an_unacknowledged_pod_of_another_scheduler_counts() -> None:
    state = scene(("a", "n1", (holding("GPU-1"),)))
    theirs = pod("t", scheduler="volcano-elsewhere", node="n1", holdings=(holding("GPU-0"),))
    apply(state, theirs, state.seq + 1)
    assert uids(state) == []
    apply(state, pod("t", rv=2, node="n1", phase="Running"), state.seq + 1)
    assert uids(state) == ["a"]


def test_a_deleted_pod_lets_the_next_one_go() -> None:
    state = scene(("a", "n1", (holding("GPU-0"),)), ("b", "n1", (holding("GPU-1"),)))
    assert uids(state, ["a"]) == []
    tell(state, "a", "n1", holding("GPU-0"), phase="Failed")
    assert uids(state) == ["b"]


def test_whose_pod_was_served_once_cannot_hold_the_plugin_up_again() -> None:
    """Its owner may write its annotations anew for ever. What they say then is a record that would
    serve the next pod: it is erased first, as those of pods that ended are.
    """
    first, second = holding("GPU-0"), holding("GPU-1")
    state = scene(("a", "n1", (first,)), ("b", "n1", (second,)))
    tell(state, "a", "n1", first, bind_phase="success")
    for claimed in (first, second, None):
        held = () if claimed is None else (claimed,)
        fact = pod("a", rv=2, node="n1", holdings=held, bind_phase="allocating")
        apply(state, fact, state.seq + 1)
        assert is_acknowledged(state.pods["a"])
        assert state.nodes["n1"].backlog == 1, "b alone"
        assert uids(state) == ["b"]
    assert standing(state.pods["a"]) == ("n1", ("vgpu", "devices", 1))
    unserved = Unserved(lambda: 0.0)
    unserved.begin(state)
    assert uids(snapshot.decode(snapshot.encode(state))) == ["b"]
    assert [fact.uid for fact in unserved.due(state, swap_equal=False)] == ["a"]


def test_what_is_booked_says_whether_success_is_early_and_not_the_claim() -> None:
    chip, share = Holding("ascend", 0, "0", 8_000, 0), holding("GPU-0")
    for booked, claimed, is_final in ((chip, share, False), (share, chip, True)):
        state = state_of(node("n1", 1), pod("a"))
        ascend = Inventory("ascend", "", (card(0, id="0"),))
        vgpu = Inventory("vgpu", "hami-core", (card(0),))
        apply(state, node("n1", 0, rv=2, inventories=(ascend, vgpu)), 3)
        apply(state, decided(placement("a", "n1", booked)), 4)
        tell(state, "a", "n1", claimed, bind_phase="success")
        assert is_acknowledged(state.pods["a"]) == is_final
        assert state.nodes["n1"].backlog == (not is_final)


PLACES = st.tuples(st.sampled_from(["n1", "n2"]), st.integers(0, 3), st.integers(1, 2))


@given(st.lists(PLACES, max_size=8), st.sets(st.integers(0, 7)))
def test_never_two_pods_with_one_number_on_one_node(
    places: list[tuple[str, int, int]], flying: set[int]
) -> None:
    cards = [card(index, slots=100, memory_mib=10**6, cores_pct=10**4) for index in range(5)]
    state = state_of(policy(), node("n1", cards), node("n2", cards))
    for number in range(len(places)):
        apply(state, pod(str(number)), state.seq + 1)
    placements = [
        placement(
            str(number), on, *(holding(f"GPU-{first + k}") for k in range(count)), stamp_s=number
        )
        for number, (on, first, count) in enumerate(places)
    ]
    apply(state, decided(*placements), state.seq + 1)
    in_flight: set[str] = set()
    for _ in range(len(places) + 1):
        for allocation in bindable(state, in_flight):
            in_flight.add(allocation.uid)
        asked = []
        for uid in in_flight:
            held = state.pods[uid].allocation
            assert held is not None
            asked.append((held.node, plugin_question(held.holdings)))
        assert len(set(asked)) == len(asked)
        waiting = set(state.reserved) - in_flight
        assert not waiting or in_flight
        done = {uid for uid in in_flight if int(uid) in flying} or in_flight
        for uid in sorted(done):
            held = state.pods[uid].allocation
            assert held is not None
            fact: PodObserved = pod(
                uid, rv=2, node=held.node, holdings=held.holdings, bind_phase="success"
            )
            apply(state, fact, state.seq + 1)
        in_flight -= done
    assert not state.reserved


def test_the_record_of_a_pod_whose_owner_took_away_its_claim_is_erased_all_the_same() -> None:
    """The plugin serves by another annotation than the claim: it would serve the next pod so."""
    asks = build.request(build.wants(4_000, 25, 2))
    dead = build.pod("a", asks, node="n1", phase="Failed", bind_phase="allocating")
    assert standing(build.state_of(dead).pods["a"]) == ("n1", ("vgpu", "devices", 2))
    state = build.state_of(build.node("n1", 2), dead)
    unserved = Unserved(lambda: 0.0)
    unserved.begin(state)
    assert [fact.uid for fact in unserved.due(state, swap_equal=False)] == ["a"]
    assert unserved.places(state) == {("n1", ("vgpu", "devices", 2))}
