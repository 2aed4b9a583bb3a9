"""Rules about other pods: host ports, affinity and anti-affinity, required spread, volumes.

Everything is decided twice, by the board and by the evaluator that asks node by node.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.snapshot import decode, encode
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import Outcome, recheck, run_cycle
from allotment.core.placement.evaluator import Evaluator, Trial
from allotment.core.placement.rules.interpod import situated
from allotment.core.queues.order import is_due
from allotment_board.board import Board
from allotment_proto.events import NodeGone, NodeObserved, PodGone, PodObserved
from allotment_proto.facts import (
    Company,
    Constraints,
    Expression,
    HostPort,
    NodeTerm,
    PluginUse,
    PodPreference,
    PodTerm,
    Policy,
    Spread,
    Taint,
)
from tests import build

pytestmark = pytest.mark.usefixtures("scoring")

WEB, DB = (("app", "web"),), (("app", "db"),)
IS_WEB = (Expression("app", "In", ("web",)),)
IS_DB = (Expression("app", "In", ("db",)),)


def zones(*values: str, **changes: Any) -> list[NodeObserved]:
    """Nodes n1, n2, … in these zones; an empty one has no such label."""
    return [
        build.node(
            f"n{number}",
            labels=(("host", f"n{number}"), *((("zone", zone),) if zone else ())),
            **changes,
        )
        for number, zone in enumerate(values, 1)
    ]


def pod(uid: str = "a", labels: tuple[tuple[str, str], ...] = (), **rules: Any) -> PodObserved:
    """A pod with rules; `on` puts it on a node."""
    place = {name: rules.pop(name) for name in ("node", "namespace", "deleting") if name in rules}
    return build.pod(uid, build.request(company=Company(**rules)), labels=labels, **place)


def near(key: str, selector: tuple[Expression, ...], *namespaces: str) -> PodTerm:
    return PodTerm(key, namespaces or ("default",), selector)


def decide(state: ClusterState, *uids: str, policy: Policy | None = None) -> Outcome:
    if policy is not None:
        state.policy = policy
    wanted = run_cycle(state, uids, Evaluator(state))
    assert run_cycle(state, uids, Board(state)) == wanted
    return wanted


def places(state: ClusterState, *uids: str) -> dict[str, str]:
    return {placement.uid: placement.node for placement in decide(state, *uids).placements}


def refused(state: ClusterState, uid: str = "a", policy: Policy | None = None) -> dict[str, int]:
    outcome = decide(state, uid, policy=policy)
    return dict(outcome.refusals[0].reasons) if outcome.refusals else {}


# ---- host ports


@pytest.mark.parametrize(
    ("taken", "wanted", "conflict"),
    [
        (HostPort("TCP", "0.0.0.0", 80), HostPort("TCP", "0.0.0.0", 80), True),
        (HostPort("TCP", "0.0.0.0", 80), HostPort("TCP", "10.0.0.1", 80), True),
        (HostPort("TCP", "10.0.0.1", 80), HostPort("TCP", "0.0.0.0", 80), True),
        (HostPort("TCP", "10.0.0.1", 80), HostPort("TCP", "10.0.0.2", 80), False),
        (HostPort("TCP", "0.0.0.0", 80), HostPort("UDP", "0.0.0.0", 80), False),
        (HostPort("TCP", "0.0.0.0", 80), HostPort("TCP", "0.0.0.0", 81), False),
    ],
)
def test_host_ports(taken: HostPort, wanted: HostPort, conflict: bool) -> None:
    state = build.state_of(
        build.node(), pod("x", ports=(taken,), node="n1"), pod("a", ports=(wanted,))
    )
    assert refused(state) == ({reasons.HOST_PORT_TAKEN: 1} if conflict else {})


def test_two_pods_with_one_host_port_do_not_meet_in_one_cycle() -> None:
    port = HostPort("TCP", "0.0.0.0", 80)
    state = build.state_of(*zones("1", "1"), *(pod(uid, ports=(port,)) for uid in ("a", "b", "c")))
    outcome = decide(state, "a", "b", "c")
    assert {p.uid: p.node for p in outcome.placements} == {"a": "n1", "b": "n2"}
    assert outcome.refusals[0].reasons == ((reasons.HOST_PORT_TAKEN, 2),)


def test_the_binder_asks_again_for_ports_taken_meanwhile() -> None:
    port = HostPort("TCP", "0.0.0.0", 80)
    state = build.state_of(build.node(), pod("a", ports=(port,)))
    (placed,) = decide(state, "a").placements
    assert recheck(state, Trial(state), placed) is None
    apply(state, pod("x", ports=(port,), node="n1"), 9)
    assert recheck(state, Trial(state), placed) == reasons.HOST_PORT_TAKEN


# ---- affinity and anti-affinity


def test_required_affinity() -> None:
    state = build.state_of(
        *zones("1", "2", "", "2"),
        pod("w", WEB, node="n2"),
        pod("a", near=(near("zone", IS_WEB),)),
    )
    assert places(state, "a")["a"] in ("n2", "n4")
    apply(state, PodGone(uid="w", namespace="default", name="pod-w", rv=2), 9)
    assert refused(state) == {reasons.POD_AFFINITY_MISMATCH: 4}


def test_affinity_wants_one_pod_that_meets_all_terms() -> None:
    both = (near("zone", IS_WEB), near("host", (Expression("tier", "Exists", ()),)))
    state = build.state_of(
        *zones("1", "1"),
        pod("w", WEB, node="n1"),
        pod("t", (("tier", "1"),), node="n1"),
        pod("a", near=both),
    )
    assert refused(state) == {reasons.POD_AFFINITY_MISMATCH: 2}
    apply(state, pod("wt", (*WEB, ("tier", "1")), node="n2"), 9)
    assert places(state, "a") == {"a": "n2"}


def test_the_first_of_pods_that_want_each_other_may_go_anywhere_the_label_is() -> None:
    rule = {"near": (near("zone", IS_WEB),), "near_self": True}
    state = build.state_of(
        *zones("", "1", "2", "2", pods=1), *(pod(uid, WEB, **rule) for uid in ("a", "b"))
    )
    outcome = decide(state, "a", "b")
    assert {p.uid: p.node for p in outcome.placements} == {"a": "n2"}
    assert dict(outcome.refusals[0].reasons) == {
        reasons.POD_AFFINITY_MISMATCH: 3,
        reasons.POD_LIMIT_REACHED: 1,
    }


def test_required_anti_affinity() -> None:
    state = build.state_of(
        *zones("1", "1", "2", ""),
        pod("w", WEB, node="n1"),
        pod("a", away=(near("zone", IS_WEB),)),
        pod("b", away=(near("host", IS_WEB),)),
    )
    assert places(state, "a") == {"a": "n3"}
    assert places(state, "b") == {"b": "n2"}


def test_anti_affinity_of_pods_that_run_keeps_others_away() -> None:
    state = build.state_of(
        *zones("1", "1"),
        pod("x", away=(near("zone", IS_DB),), node="n1"),
        pod("a", DB),
        pod("b", DB, namespace="other"),
        pod("c", WEB),
    )
    outcome = decide(state, "a", "b", "c")
    assert {p.uid for p in outcome.placements} == {"b", "c"}
    assert outcome.refusals[0].reasons == ((reasons.REPELLED_BY_POD, 2),)


def test_replicas_that_repel_each_other_spread_within_one_cycle() -> None:
    rule = {"away": (near("host", IS_WEB),)}
    state = build.state_of(*zones("1", "1"), *(pod(uid, WEB, **rule) for uid in "abc"))
    outcome = decide(state, "a", "b", "c")
    assert {p.uid: p.node for p in outcome.placements} == {"a": "n1", "b": "n2"}
    assert outcome.refusals[0].reasons == ((reasons.POD_ANTI_AFFINITY, 2),)


def test_a_pod_that_says_it_no_more_repels_no_more() -> None:
    x = pod("x", away=(near("zone", IS_DB),), node="n1")
    state = build.state_of(*zones("1"), x, pod("a", DB))
    assert refused(state) == {reasons.REPELLED_BY_POD: 1}
    apply(state, pod("x", node="n1"), 9)
    assert state.keep_away == {}
    assert places(state, "a") == {"a": "n1"}


def test_every_namespace_and_those_that_are_named() -> None:
    everywhere = PodTerm("zone", (), IS_WEB)
    state = build.state_of(
        *zones("1"),
        pod("w", WEB, namespace="other", node="n1"),
        pod("a", near=(everywhere,)),
        pod("b", near=(near("zone", IS_WEB),)),
        pod("c", near=(near("zone", IS_WEB, "default", "other"),)),
    )
    assert set(places(state, "a", "b", "c")) == {"a", "c"}


def test_labels_that_change_are_seen() -> None:
    state = build.state_of(*zones("1"), pod("w", node="n1"), pod("a", near=(near("zone", IS_WEB),)))
    board = Board(state)
    assert not run_cycle(state, ["a"], board).placements
    apply(state, pod("w", WEB, node="n1"), 9)
    assert run_cycle(state, ["a"], board).placements


# ---- spread


def spread(key: str = "zone", **changes: Any) -> Spread:
    values: dict[str, Any] = {"max_skew": 1, "is_required": True, "counts_self": True, **changes}
    return Spread(near(key, IS_WEB), **values)


def test_required_spread_fills_zones_evenly() -> None:
    rule = {"spread": (spread(),)}
    state = build.state_of(*zones("1", "2", "", pods=5), *(pod(uid, WEB, **rule) for uid in "abcd"))
    found = decide(state, *"abcd")
    assert sorted(p.node for p in found.placements) == ["n1", "n1", "n2", "n2"]
    assert found.placements[0].node != found.placements[1].node


def test_a_zone_without_room_holds_the_others_back() -> None:
    rule = {"spread": (spread(),)}
    state = build.state_of(
        *zones("1"),
        *zones("1", "2")[1:],
        pod("w", WEB, node="n1"),
        pod("a", WEB, **rule),
    )
    apply(state, build.node("n2", pods=0, labels=(("zone", "2"),), rv=2), 9)
    assert refused(state) == {reasons.SPREAD_MISMATCH: 1, reasons.POD_LIMIT_REACHED: 1}


@pytest.mark.parametrize(
    ("changes", "node_changes", "wanted"),
    [
        ({}, {}, "refused"),
        ({"max_skew": 2}, {}, "fits"),
        ({"counts_self": False}, {}, "fits"),
        ({}, {"taints": (Taint("k", "", "NoSchedule"),)}, "refused"),
        ({"honors_taints": True}, {"taints": (Taint("k", "", "NoSchedule"),)}, "fits"),
        (
            {"honors_taints": True, "min_domains": 2},
            {"taints": (Taint("k", "", "NoSchedule"),)},
            "refused",
        ),
    ],
)
def test_which_domains_count(
    changes: dict[str, Any], node_changes: dict[str, Any], wanted: str
) -> None:
    """One web pod in zone 1, none in zone 2, where there is no room (or a taint)."""
    full = build.node("n2", pods=0, labels=(("zone", "2"),), **node_changes)
    state = build.state_of(
        *zones("1"), full, pod("w", WEB, node="n1"), pod("a", WEB, spread=(spread(**changes),))
    )
    found = refused(state)
    assert ("refused" if found else "fits") == wanted, found


def test_pods_that_end_are_not_counted_in_a_spread() -> None:
    state = build.state_of(
        *zones("1"),
        build.node("n2", pods=0, labels=(("zone", "2"),)),
        pod("w", WEB, node="n1"),
        pod("a", WEB, spread=(spread(),)),
    )
    assert refused(state)
    apply(state, pod("w", WEB, node="n1", deleting=True), 9)
    assert places(state, "a") == {"a": "n1"}


# ---- volumes


def test_volumes_are_reached_from_where_they_all_are() -> None:
    in_zone = [NodeTerm((Expression("zone", "In", (zone,)),)) for zone in "123"]
    wanted = build.request(
        constraints=Constraints(volumes=((in_zone[0], in_zone[1]), (in_zone[1], in_zone[2])))
    )
    state = build.state_of(*zones("1", "2", "3"), build.pod("a", wanted))
    assert places(state, "a") == {"a": "n2"}
    apply(state, build.node("n2", labels=(), rv=2), 9)
    assert refused(state) == {reasons.VOLUME_OUT_OF_REACH: 3}


# ---- switches


@pytest.mark.parametrize(
    ("argument", "rules", "code"),
    [
        (
            "predicate.NodePortsEnable",
            {"ports": (HostPort("TCP", "", 80),)},
            reasons.HOST_PORT_TAKEN,
        ),
        (
            "predicate.PodAffinityEnable",
            {"near": (near("zone", IS_DB),)},
            reasons.POD_AFFINITY_MISMATCH,
        ),
        (
            "predicate.PodAffinityEnable",
            {"away": (near("zone", IS_WEB),)},
            reasons.POD_ANTI_AFFINITY,
        ),
        (
            "predicate.PodTopologySpreadEnable",
            {"spread": (spread("absent"),)},
            reasons.SPREAD_MISMATCH,
        ),
    ],
)
def test_switches(argument: str, rules: dict[str, Any], code: str) -> None:
    state = build.state_of(
        *zones("1"), pod("x", WEB, ports=(HostPort("TCP", "", 80),), node="n1"), pod("a", **rules)
    )
    off = PluginUse("predicates", arguments=((argument, False),))
    assert refused(state) == {code: 1}
    assert refused(state, policy=Policy(tiers=((off,),))) == {}
    all_off = PluginUse("predicates", off=("enablePredicate",))
    assert refused(state, policy=Policy(tiers=((all_off,),))) == {}


@pytest.mark.parametrize(
    ("argument", "node", "constraints", "code"),
    [
        (
            "predicate.TaintTolerationEnable",
            {"taints": (Taint("k", "", "NoSchedule"),)},
            {},
            reasons.TAINT_NOT_TOLERATED,
        ),
        (
            "predicate.NodeAffinityEnable",
            {},
            {"node_selector": (("zone", "x"),)},
            reasons.SELECTOR_MISMATCH,
        ),
        (
            "predicate.VolumeBindingEnable",
            {},
            {"volumes": ((NodeTerm(()),),)},
            reasons.VOLUME_OUT_OF_REACH,
        ),
    ],
)
def test_switches_of_what_nodes_say(
    argument: str, node: dict[str, Any], constraints: dict[str, Any], code: str
) -> None:
    wanted = build.request(constraints=Constraints(**constraints))
    state = build.state_of(build.node(**node), build.pod("a", wanted))
    off = PluginUse("predicates", arguments=((argument, False),))
    assert refused(state) == {code: 1}
    assert refused(state, policy=Policy(tiers=((off,),))) == {}


# ---- the fold


def test_a_snapshot_keeps_what_pods_say_of_others() -> None:
    events: Sequence[Any] = (
        *zones("1"),
        pod("x", WEB, away=(near("zone", IS_DB),), node="n1"),
        pod("a", DB),
    )
    state = build.state_of(*events)
    again = decode(encode(state))
    assert encode(again) == encode(state)
    assert again.keep_away == state.keep_away
    assert refused(again) == {reasons.REPELLED_BY_POD: 1}


# ---- what others' rules cost


def hostile(number: int) -> PodObserved:
    """A pod that fits nowhere, whose rules are about every pod of every namespace."""
    everybody = [
        PodTerm("host", (), (Expression("app", "NotIn", (f"{number}-{n}",)),)) for n in range(16)
    ]
    preferred = tuple(PodPreference(1, term) for term in everybody)
    company = Company(away=tuple(everybody), preferred=preferred)
    wanted = build.request(build.wants(10**6), company=company)
    return build.pod(f"h{number}", wanted, namespace="hostile")


def test_many_rules_of_others_are_one_question_of_a_pod() -> None:
    """What a pod is asked grows with the topology keys of others' rules, not with the rules."""
    policy = Policy(tiers=((PluginUse("predicates"), PluginUse("nodeorder")),))
    state = build.state_of(*zones("a", "a"), *(hostile(n) for n in range(50)))
    state.policy = policy
    asked = situated(pod("a", WEB), state).company
    assert len(state.keep_away) == len(state.preferences) == 800
    assert (len(asked.repelled), len(asked.wanted)) == (1, 1)
    assert asked.repelled == situated(pod("b", WEB), state).company.repelled
    board = Board(state)
    outcome = run_cycle(state, [f"h{n}" for n in range(50)], board)
    assert len(outcome.refusals) == 50
    apply(state, pod("a", WEB), state.seq + 1)
    assert places(state, "a") == {"a": "n1"}


def test_labels_that_only_another_rule_looks_at_count_as_well() -> None:
    """The first rule is about the pod, the second is not, because of a label of its own."""
    first = PodTerm("host", ("default",), IS_WEB)
    second = PodTerm("host", ("default",), (Expression("tier", "DoesNotExist", ()),))
    state = build.state_of(
        *zones("a", "a"),
        pod("one", away=(first,)),
        pod("two", away=(second,), node="n1"),
    )
    labels = (*WEB, ("tier", "front"), ("hash", "4711"))
    (subject,) = situated(pod("a", labels), state).company.repelled
    assert subject.labels == (("app", "web"), ("tier", "front"))
    apply(state, pod("a", labels), state.seq + 1)
    assert refused(state, "a") == {}
    apply(state, pod("bare", WEB), state.seq + 1)
    assert places(state, "bare") == {"bare": "n2"}


def test_what_rules_say_is_found_out_anew_when_there_is_another_rule() -> None:
    """A replica more with the rule that the others have changes nothing for anybody."""
    away = Company(away=(PodTerm("host", (), IS_WEB),))
    state = build.state_of(*zones("a"), build.pod("a", build.request(company=away)))
    web = build.pod("w", labels=WEB)
    found = situated(web, state).company.repelled
    assert found
    known = dict(state.memo.rules_about)
    apply(state, build.pod("b", build.request(company=away)), state.seq + 1)
    assert state.memo.rules_about == known != {}
    more = Company(away=(PodTerm("zone", (), IS_WEB),))
    apply(state, build.pod("c", build.request(company=more)), state.seq + 1)
    assert [each.topology_key for each in situated(web, state).company.repelled] == ["host", "zone"]
    for uid in "ab":
        gone = PodGone(uid=uid, namespace="default", name=uid, rv=9)
        apply(state, gone, state.seq + 1)
    assert [each.topology_key for each in situated(web, state).company.repelled] == ["zone"]


def test_a_place_whose_last_node_goes_holds_nobody_back() -> None:
    """Two more than in zone z2 are too many, and nobody else can go there: until its node goes."""
    full, free = zones("z2", cpu_milli=0)[0], zones("", "z1")[1]
    waiting = pod("a", WEB, spread=(Spread(near("zone", IS_WEB), 1, True, True),))
    state = build.state_of(full, free, pod("x", WEB, node=free.name), waiting)
    (refused,) = decide(state, "a").refusals
    assert reasons.SPREAD_MISMATCH in dict(refused.reasons)
    apply(state, build.decided(batch=("a",), refusals=(refused,), basis=state.seq), state.seq + 1)
    assert not is_due(state, state.pods["a"], state.pods["a"].refused_basis)
    apply(state, NodeGone(name=full.name, uid=full.uid, rv=2), state.seq + 1)
    assert is_due(state, state.pods["a"], state.pods["a"].refused_basis)
    assert [p.node for p in decide(state, "a").placements] == [free.name]
