"""Where many wait for one device plugin, the next pod goes elsewhere."""

from typing import Any

import msgspec

from allotment.core.explain.causes.nodes import node_steps
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.least_busy import patience
from allotment_board.board import Board
from allotment_proto.events import GroupObserved, PodGone
from tests.build import decided, holding, node, placement, pod, policy, request, state_of, wants
from tests.unit.both_rankers import chosen

SMALL = request(wants(1_000, 5))


def cluster(most: int, nodes: int = 2) -> ClusterState:
    names = [f"n{number}" for number in range(1, nodes + 1)]
    return state_of(policy(plugin_backlog=most), *(node(name, 4) for name in names))


def put(state: ClusterState, *uids: str, wanted: Any = SMALL) -> list[str]:
    """Place these pods in one decision; their nodes."""
    for uid in uids:
        apply(state, pod(uid, wanted), state.seq + 1)
    found = run_cycle(state, uids, Board(state)).placements
    apply(state, decided(*found), state.seq + 1)
    return [placement.node for placement in found]


def see(state: ClusterState, uid: str, **changes: Any) -> None:
    """The watcher sees the pod on its node."""
    was, held = state.pods[uid].fact, state.pods[uid].allocation
    assert held is not None
    values = {"rv": was.rv + 1, "node": held.node, "holdings": held.holdings, **changes}
    apply(state, msgspec.structs.replace(was, **values), state.seq + 1)


def test_a_burst_goes_to_as_many_nodes_as_it_needs_and_then_they_are_filled() -> None:
    state = cluster(2)
    assert put(state, *"abcd") == ["n1", "n1", "n2", "n2"]
    assert put(state, "e") == ["n1"], "all have as many waiting: the best takes it"
    for uid in "abe":
        see(state, uid, bind_phase="success")
    assert put(state, *"fg") == ["n1", "n1"], "binpack is back where it was"


def test_where_all_are_busy_a_burst_is_not_sent_to_one_node() -> None:
    state = cluster(1)
    found = put(state, *"abcdefghijkl")
    assert "".join(name[1] for name in found) == "121211221111", "1, 2, 4, then up to 8"


def test_every_way_out_of_the_count() -> None:
    state = cluster(4, 1)
    put(state, *"abcdef")
    n1 = state.nodes["n1"]
    assert n1.backlog == 6
    see(state, "a", bind_phase="allocating")
    assert n1.backlog == 6, "bound, and not served yet"
    see(state, "a", bind_phase="success")
    see(state, "a", bind_phase="success", phase="Running")
    see(state, "b", bind_phase="failed")
    see(state, "c", bind_phase="allocating", phase="Running")
    see(state, "d", bind_phase="allocating", phase="Failed")
    apply(state, PodGone(uid="e", namespace="default", name="e", rv=9), state.seq + 1)
    assert n1.backlog == 1


def test_nobody_waits_for_a_plugin_that_is_gone() -> None:
    """So the binder says as well: a node without its devices is not busy when they come back."""
    state = cluster(4, 1)
    put(state, "a", "b")
    n1 = state.nodes["n1"]
    apply(state, node("n1", 0, rv=2), state.seq + 1)
    assert n1.backlog == 0
    see(state, "a", bind_phase="success")
    assert n1.backlog == 0
    apply(state, node("n1", 4, rv=3), state.seq + 1)
    assert n1.backlog == 1
    assert check(state) == []


def test_pods_without_devices_neither_count_nor_care() -> None:
    state, plain = cluster(1), request()
    assert put(state, "a", "b", wanted=plain) == ["n1", "n1"]
    assert state.nodes["n1"].backlog == 0
    assert put(state, "c", "d") == ["n1", "n2"]
    assert put(state, "e", wanted=plain) == ["n1"]


def test_counted_cards_are_not_passed_over() -> None:
    whole = request(extended=(("nvidia.com/gpu", 1),))
    listed = (("nvidia.com/gpu", 8),)
    state = state_of(
        policy(plugin_backlog=1), *(node(name, 4, extended=listed) for name in ("n1", "n2"))
    )
    assert put(state, "a") == ["n1"]
    assert put(state, "b", "c", wanted=whole) == ["n1", "n1"]


def test_without_the_setting_pods_wait_behind_any_number() -> None:
    state = state_of(policy(plugin_backlog=0), node("n1", 4), node("n2", 4))
    assert put(state, *"abcdef") == ["n1"] * 6


def test_a_gang_that_fits_on_busy_nodes_only_is_placed() -> None:
    state = cluster(1, 1)
    put(state, "a", "b")
    assert len(put(state, "m1", "m2", "m3")) == 3


def test_both_rankers_take_the_busy_node_when_there_is_no_other() -> None:
    state = cluster(1)
    put(state, "a", "b")
    big = request(wants(12_000, 50, 3))
    apply(state, node("n2", 1, rv=7), state.seq + 1)
    apply(state, pod("big", big), state.seq + 1)
    assert chosen(state, state.pods["big"].fact).node == "n1"  # type: ignore[union-attr]


def test_an_explanation_says_how_many_wait() -> None:
    state = cluster(2)
    put(state, "a", "b")
    apply(state, pod("c", SMALL), state.seq + 1)
    fact = state.pods["c"].fact
    steps = node_steps(state, state.nodes["n1"], SMALL, fact)
    said = {step.step: step.detail for step in steps.host}
    assert said["pluginBacklog"] == (
        "2 pods wait for its device plugin, so another node is preferred while one fits"
    )
    assert steps.verdict == "fits"
    assert "pluginBacklog" not in {
        step.step for step in node_steps(state, state.nodes["n2"], SMALL, fact).host
    }


def in_use(*served: str, most: int = 4) -> ClusterState:
    """Four nodes, on some of which a pod has devices and nobody waits."""
    names = ("n1", "n2", "n3", "n4")
    loaded = policy(plugin_backlog=most)
    state = state_of(loaded, *(node(name, 4) for name in names))
    for name in served:
        uid = f"on-{name}"
        apply(state, pod(uid, SMALL), state.seq + 1)
        given = placement(uid, name, holding(memory_mib=1_000, cores_pct=5))
        apply(state, decided(given), state.seq + 1)
        see(state, uid, bind_phase="success")
    return state


def gang(state: ClusterState, name: str, members: int) -> list[str]:
    """Pods of a group that start together; their uids."""
    group = GroupObserved(
        uid=name, namespace="default", name=name, rv=1, phase="Inqueue", min_member=members
    )
    apply(state, group, state.seq + 1)
    uids = [f"{name}-{number}" for number in range(members)]
    for uid in uids:
        apply(state, pod(uid, SMALL, group=f"default/{name}"), state.seq + 1)
    return uids


def test_a_lone_pod_starts_where_the_plugin_is_idle_if_the_node_is_in_use() -> None:
    state = in_use("n2", "n3")
    assert put(state, *"abcdefghijklm") == [
        *("n2", "n3"),  # idle and in use
        *("n2", "n2", "n2", "n3", "n3", "n3"),  # four on each, as the policy wants
        *("n1", "n1", "n1", "n1", "n4"),  # then the next node is opened
    ]
    for uid in "bgh":
        see(state, uid, bind_phase="success")
    assert state.nodes["n3"].backlog == 1
    see(state, "f", bind_phase="success")
    assert put(state, "z") == ["n3"]


def test_replicas_on_an_empty_cluster_are_packed() -> None:
    assert put(in_use(), *"abcdefgh") == ["n1"] * 4 + ["n2"] * 4


def test_who_may_wait_for_one_pod_only_looks_for_an_idle_plugin_anyway() -> None:
    assert put(in_use("n3", most=1), *"abcd") == ["n3", "n1", "n2", "n4"]


def test_a_gang_stays_together_longer() -> None:
    state = in_use("n1", "n2", "n3", "n4")
    found = run_cycle(state, gang(state, "g", 8), Board(state)).placements
    assert [placement.node for placement in found] == ["n1"] * 8
    assert put(in_use("n1", "n2"), *"abcdef")[:2] == ["n1", "n2"], "who comes alone does not"
    alone = gang(state, "alone", 1)
    assert patience(state.pods[alone[0]].fact, state).idle_first


def test_an_explanation_says_that_an_idle_plugin_comes_first() -> None:
    state = in_use("n1", "n2")
    apply(state, pod("a", SMALL), state.seq + 1)
    put(state, "b")
    fact = state.pods["a"].fact
    steps = node_steps(state, state.nodes["n1"], SMALL, fact)
    said = {step.step: step.detail for step in steps.host}
    assert said["pluginBacklog"] == (
        "1 pod waits for its device plugin, "
        "so a node in use whose device plugin is idle comes first"
    )
