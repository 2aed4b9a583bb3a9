"""Pods and nodes whose preferences have no effect, because the policy does not weigh them."""

from collections.abc import Iterator

from allotment.core.explain.doctor.finding import (
    PODS_MAX,
    TENANT,
    WARNING,
    Finding,
    about_pods,
    counted,
    names_of,
    namespaces_of,
    shown_names,
)
from allotment.core.explain.rows.preferences import TAINTS, ignored, ignored_of, why_ignored
from allotment.core.ledger.model import ENDED, ClusterState

_CODE = "PreferencesIgnored"
_AVOIDED = "PreferNoSchedule"


def of_preferences(state: ClusterState) -> Iterator[Finding]:
    """One finding about all such pods, and one about nodes that are to be avoided."""
    kinds, why = ignored(state.policy), why_ignored(state.policy)
    tainted = sorted(
        node.name
        for node in state.nodes.values()
        if node.fact is not None and any(t.effect == _AVOIDED for t in node.fact.taints)
    )
    if tainted and TAINTS in kinds:
        nodes = "nodes" if len(tainted) > 1 else "node"
        yield Finding(
            severity=WARNING,
            code=_CODE,
            subject=f"{nodes} {shown_names(tainted)}",
            message=f"{TAINTS}: no effect, {why}",
            remedy="add plugin nodeorder to the policy's tiers, or remove the taints",
        )
    ours = (
        pod.fact
        for pod in state.pods.values()
        if pod.fact.scheduler in state.policy.scheduler_names and pod.fact.phase not in ENDED
    )
    by_pod = [(fact, found) for fact in ours if (found := ignored_of(state.policy, fact))]
    if not by_pod:
        return
    about = [fact for fact, _ in by_pod]
    names = names_of(about)
    shown = [kind for kind in kinds if any(kind in found for _, found in by_pod)]
    yield Finding(
        severity=WARNING,
        code=_CODE,
        subject=about_pods(names),
        message=f"{', '.join(shown)} of {counted(len(names), 'pod')}: no effect, {why}",
        remedy="add plugin nodeorder to the policy's tiers, or remove the preferences",
        pods=tuple(names[:PODS_MAX]),
        pods_total=len(names),
        kind=TENANT,
        namespaces=namespaces_of(about),
    )
