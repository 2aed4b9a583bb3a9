"""Pods that keep pods of other namespaces off most nodes, by required anti-affinity.

In Kubernetes a pod's anti-affinity may select pods of all namespaces, in whole zones. So one small
pod can close the cluster to all others. This names it.
"""

from collections.abc import Iterator

from allotment.core.explain.causes.obstacles import present
from allotment.core.explain.doctor.finding import (
    ERROR,
    PODS_MAX,
    Finding,
    about_pods,
    counted,
    names_of,
    namespaces_of,
    shown_names,
)
from allotment.core.ledger.model import ClusterState, Pod
from allotment.core.placement.rules.interpod import situated
from allotment.core.placement.rules.selectors import selects
from allotment.core.units import rfc3339
from allotment_proto.events import PodObserved

_CODE = "KeepsOthersOff"
_LOOKS_MAX = 256
"""How many different sets of labels of waiting pods are checked."""
_PART = 2
"""A pod that keeps others off fewer than one in this many nodes is not reported."""
_Look = tuple[str, tuple[tuple[str, str], ...]]


def of_keeping_off(state: ClusterState) -> Iterator[Finding]:
    """A finding for each namespace and topology key by which pods of others wait."""
    waiting: dict[_Look, list[PodObserved]] = {}
    for uid in state.pending:
        fact = state.pods[uid].fact
        if fact.problem is None and situated(fact, state).company.repelled:
            look = fact.namespace, fact.labels
            if look in waiting or len(waiting) < _LOOKS_MAX:
                waiting.setdefault(look, []).append(fact)
    if not waiting:
        return
    found: dict[tuple[str, str], tuple[list[PodObserved], set[str], dict[str, PodObserved]]] = {}
    for pod in state.pods.values():
        for key, domain in _closes(state, pod):
            looks = [look for look in waiting if _is_about(pod, key, look)]
            if looks:
                who, domains, kept = found.setdefault((pod.fact.namespace, key), ([], set(), {}))
                who.append(pod.fact)
                domains.add(domain)
                kept.update((fact.uid, fact) for look in looks for fact in waiting[look])
    nodes = present(state)
    for (_, key), (who, domains, kept) in sorted(found.items()):
        closed = sum(node.labels.get(key) in domains for node in nodes)
        if _PART * closed >= len(nodes):
            yield _finding(key, who, closed, len(nodes), list(kept.values()))


def _closes(state: ClusterState, pod: Pod) -> Iterator[tuple[str, str]]:
    """The topology keys of a placed pod's required anti-affinity, and its domain for each."""
    held = pod.allocation
    node = None if held is None else state.nodes.get(held.node)
    if node is not None:
        for key in dict.fromkeys(term.topology_key for term in pod.fact.request.company.away):
            if key in node.labels:
                yield key, node.labels[key]


def _is_about(pod: Pod, key: str, look: _Look) -> bool:
    """Whether a pod's anti-affinity keeps pods of another namespace with these labels off."""
    return look[0] != pod.fact.namespace and any(
        term.topology_key == key and selects(term, *look) for term in pod.fact.request.company.away
    )


def _finding(
    key: str, who: list[PodObserved], closed: int, nodes: int, kept: list[PodObserved]
) -> Finding:
    by, names = names_of(who), names_of(kept)
    oldest_ms = min(fact.created_ms for fact in kept)
    return Finding(
        severity=ERROR,
        code=_CODE,
        subject=about_pods(by),
        message=(
            f"required anti-affinity with topologyKey {key} keeps other namespaces off {closed} of "
            f"{counted(nodes, 'node')}; {counted(len(names), 'pod')} of others wait: "
            f"{shown_names(names)}"
        ),
        remedy="delete it, or give its anti-affinity a narrower selector or topologyKey; an "
        "admission policy can forbid such rules",
        since=rfc3339(oldest_ms) if oldest_ms else "",
        pods=tuple(names[:PODS_MAX]),
        pods_total=len(names),
        namespaces=namespaces_of([*who, *kept]),
    )
