"""Pods and nodes whose preferences have no effect, because the policy does not weigh them.

Preferred affinity and anti-affinity, soft spread constraints and PreferNoSchedule taints are points
of plugin nodeorder. Without it, or with a weight of 0, they are read and go for nothing.
"""

from collections.abc import Iterator

from allotment.core.explain.doctor.finding import (
    PODS_MAX,
    WARNING,
    Finding,
    about_pods,
    counted,
    names_of,
    shown_names,
)
from allotment.core.ledger.model import ENDED, ClusterState
from allotment.core.placement.rules.terms import weights_of
from allotment_proto.events import PodObserved

_CODE = "PreferencesIgnored"
_AVOIDED = "PreferNoSchedule"


def of_preferences(state: ClusterState) -> Iterator[Finding]:
    """One finding about all such pods, and one about nodes that are to be avoided."""
    order = weights_of(state.policy).nodeorder
    why = "has no plugin nodeorder" if order is None else "gives them a weight of 0 in nodeorder"
    tainted = sorted(
        node.name
        for node in state.nodes.values()
        if node.fact is not None and any(t.effect == _AVOIDED for t in node.fact.taints)
    )
    if tainted and not (order and order.taints):
        nodes = "nodes" if len(tainted) > 1 else "node"
        yield Finding(
            severity=WARNING,
            code=_CODE,
            subject=f"{nodes} {shown_names(tainted)}",
            message=f"{_AVOIDED} taints: no effect, the policy {why}",
            remedy="add plugin nodeorder to the policy's tiers, or remove the taints",
        )
    ignored = (
        ("preferred node affinity", not (order and order.affinity), _of_nodes),
        ("preferred pod affinity or anti-affinity", not (order and order.pods), _of_pods),
        ("soft topology spread", not (order and order.spread), _of_spread),
    )
    facts = [
        pod.fact
        for pod in state.pods.values()
        if pod.fact.scheduler in state.policy.scheduler_names and pod.fact.phase not in ENDED
    ]
    about: dict[str, PodObserved] = {}
    kinds = []
    for name, is_ignored, has in ignored:
        found = {fact.uid: fact for fact in facts if is_ignored and has(fact)}
        if found:
            kinds.append(name)
            about.update(found)
    if not about:
        return
    names = names_of(about.values())
    yield Finding(
        severity=WARNING,
        code=_CODE,
        subject=about_pods(names),
        message=f"{', '.join(kinds)} of {counted(len(names), 'pod')}: no effect, the policy {why}",
        remedy="add plugin nodeorder to the policy's tiers, or remove the preferences",
        pods=tuple(names[:PODS_MAX]),
        pods_total=len(names),
    )


def _of_nodes(fact: PodObserved) -> bool:
    return bool(fact.request.constraints.preferred)


def _of_pods(fact: PodObserved) -> bool:
    return bool(fact.request.company.preferred)


def _of_spread(fact: PodObserved) -> bool:
    return any(not rule.is_required for rule in fact.request.company.spread)
