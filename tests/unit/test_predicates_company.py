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


def test_the_binder_asks_again_for_ports_taken_meanwhile() -> None:
    port = HostPort("TCP", "0.0.0.0", 80)
    state = build.state_of(build.node(), pod("a", ports=(port,)))
    (placed,) = decide(state, "a").placements
    assert recheck(state, Trial(state), placed) is None
    apply(state, pod("x", ports=(port,), node="n1"), 9)
    assert recheck(state, Trial(state), placed) == reasons.HOST_PORT_TAKEN


# ---- affinity and anti-affinity


def test_labels_that_change_are_seen() -> None:
    state = build.state_of(*zones("1"), pod("w", node="n1"), pod("a", near=(near("zone", IS_WEB),)))
    board = Board(state)
    assert not run_cycle(state, ["a"], board).placements
    apply(state, pod("w", WEB, node="n1"), 9)
    assert run_cycle(state, ["a"], board).placements


# ---- spread


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
