"""Preferences that no plugin weighs are reported: by doctor with the pods that have them, on the
pod itself, and for a policy before it is applied."""

import msgspec
import pytest

from allotment.core.explain.doctor import PLATFORM, TENANT, WARNING, findings
from allotment.core.explain.rows.preferences import ignored
from allotment_proto.events import PodObserved, PolicyLoaded
from allotment_proto.facts import (
    Company,
    Constraints,
    Expression,
    NodeTerm,
    PluginUse,
    PodPreference,
    PodTerm,
    Policy,
    Preference,
    Spread,
    Taint,
)
from tests import build

TERM = PodTerm("kubernetes.io/hostname", ("default",), (Expression("app", "In", ("a",)),))
NODE = Constraints(preferred=(Preference(100, NodeTerm((Expression("z", "In", ("b",)),))),))
PODS = Company(preferred=(PodPreference(-100, TERM),))
WITHOUT = Policy(tiers=((PluginUse("predicates"),),))
SPREAD = Company(spread=(Spread(TERM, 1, False, False),))


def pod(uid: str, constraints: Constraints, company: Company) -> PodObserved:
    request = build.request(company=company)
    return build.pod(uid, msgspec.structs.replace(request, constraints=constraints), name=uid)


def told(policy: Policy, *pods: PodObserved) -> list[tuple[str, str, str]]:
    loaded = PolicyLoaded(policy=policy, source="test", text_sha256="")
    state = build.state_of(loaded, build.node(), *pods)
    return [
        (each.severity, each.subject, each.message)
        for each in findings(state, 0)
        if each.code == "PreferencesIgnored"
    ]


@pytest.mark.parametrize(
    ("constraints", "company", "kind", "argument"),
    [
        (NODE, Company(), "preferred node affinity", "nodeaffinity.weight"),
        (Constraints(), PODS, "preferred pod affinity or anti-affinity", "podaffinity.weight"),
        (Constraints(), SPREAD, "soft topology spread", "podtopologyspread.weight"),
    ],
)
def test_what_has_no_effect_is_said(
    constraints: Constraints, company: Company, kind: str, argument: str
) -> None:
    wishes, plain = pod("wishes", constraints, company), build.pod("plain", name="plain")
    others = msgspec.structs.replace(wishes, uid="o", name="o", scheduler="default-scheduler")
    (found,) = told(WITHOUT, wishes, plain, others)
    assert found[:2] == (WARNING, "pod default/wishes")
    assert found[2] == f"{kind} of 1 pod: no effect, the policy has no plugin nodeorder"
    (found,) = told(Policy(), wishes)
    assert found[2] == f"{kind} of 1 pod: no effect, the built-in policy does not weigh them"
    assert told(Policy(tiers=((PluginUse("nodeorder"),),)), wishes, plain) == []
    zero = PluginUse("nodeorder", arguments=((argument, 0),))
    (found,) = told(Policy(tiers=((zero,),)), wishes)
    assert found[2].endswith("the policy gives them a weight of 0 in nodeorder")


def test_so_are_taints_that_nobody_weighs() -> None:
    tainted = build.node("n2", taints=(Taint("k", "v", "PreferNoSchedule"),))
    for policy, number in ((Policy(), 1), (Policy(tiers=((PluginUse("nodeorder"),),)), 0)):
        loaded = PolicyLoaded(policy=policy, source="test", text_sha256="")
        state = build.state_of(loaded, build.node(), tainted)
        found = [each for each in findings(state, 0) if each.code == "PreferencesIgnored"]
        assert [(each.subject, each.kind) for each in found] == [("node n2", PLATFORM)][:number]


def test_what_pods_prefer_is_no_fault_of_the_platform() -> None:
    wishes = pod("wishes", NODE, Company())
    loaded = PolicyLoaded(policy=WITHOUT, source="test", text_sha256="")
    found = findings(build.state_of(loaded, build.node(), wishes), 0)
    (about,) = (each for each in found if each.code == "PreferencesIgnored")
    assert (about.kind, about.namespaces) == (TENANT, ("default",))


def test_a_policy_ignores_what_it_gives_no_weight() -> None:
    assert len(ignored(WITHOUT)) == 4
    zero = PluginUse("nodeorder", arguments=(("tainttoleration.weight", 0),))
    assert ignored(Policy(tiers=((zero,),))) == ("PreferNoSchedule taints",)
    assert ignored(Policy(tiers=((PluginUse("nodeorder"),),))) == ()
