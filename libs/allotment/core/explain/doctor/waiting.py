"""Pods that cannot start as they are, by cause and namespace, and pods that no scheduler handles.

A pod is counted once, under the first cause that is found.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from allotment.core.explain.causes.nodes import group_short_even_empty
from allotment.core.explain.causes.obstacles import present
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.doctor.finding import (
    ERROR,
    PLATFORM,
    PODS_MAX,
    TENANT,
    WARNING,
    Finding,
    about_pods,
    names_of,
    namespaces_of,
)
from allotment.core.explain.rows.pod_views import group_cause
from allotment.core.ledger.model import ACTIVE, ClusterState, Pod
from allotment.core.placement.unserved import misread, nearest, unserved
from allotment.core.queues.round.verdict import ShutOut
from allotment.core.reasons import (
    ANNOTATION_NOT_READ,
    CARD_UNREADABLE,
    EMPTY_CAPABILITY,
    GROUP_MISSING,
    NO_NODES,
    POD_AFFINITY_MISMATCH,
    QUEUE_NOT_LEAF,
    QUOTA_UNREADABLE,
    REASONS,
    answers_to,
    problem_text,
)
from allotment.core.units import rfc3339
from allotment_proto.events import PodObserved
from allotment_proto.facts import PodRequest

_NOT_OFFERED, _NEVER_FITS = "NotOffered", "NeverFits"
_OTHER_SCHEDULER = "NotOurs"
_KUBERNETES_OWN = "default-scheduler"
_GROUP_COMES_MS = 10_000
"""A pod is often made before its PodGroup."""
_ALIKE_MAX = 20
"""At most this many findings of a namespace have the same code; the rest are one."""
_OFFER = "fix the resource name and recreate the pods, or add nodes that offer it"
_LASTING = frozenset((QUEUE_NOT_LEAF, EMPTY_CAPABILITY, CARD_UNREADABLE, QUOTA_UNREADABLE))
"""Reasons of a queue that last until the queue is changed."""


class _Cause(NamedTuple):
    """Why pods cannot start, in words that hold for all of them."""

    code: str
    message: str
    remedy: str


def of_waiting(state: ClusterState, time_ms: int, whys: Whys) -> list[Finding]:
    """A finding for each cause and namespace, about all pods that it keeps from starting."""
    found: dict[tuple[_Cause, str], list[PodObserved]] = {}
    groups, shut = _Groups(state), ShutOut(state)
    for uid in state.pending:
        cause = _cause(state, state.pods[uid], time_ms, whys, groups, shut)
        if cause is not None:
            fact = state.pods[uid].fact
            namespace = "" if cause.code == NO_NODES else fact.namespace
            found.setdefault((cause, namespace), []).append(fact)
    findings = [_finding(cause, pods) for (cause, _), pods in found.items()]
    return list(_capped([*findings, *_of_others(state), *_of_misread(state)]))


def _capped(findings: list[Finding]) -> Iterator[Finding]:
    """A namespace's findings with one code: those about the most pods, and one about the rest."""
    alike: dict[tuple[str, tuple[str, ...]], list[Finding]] = {}
    for each in findings:
        alike.setdefault((each.code, each.namespaces), []).append(each)
    for found in alike.values():
        found.sort(key=lambda each: (-each.pods_total, each.message))
        yield from found[:_ALIKE_MAX]
        rest = found[_ALIKE_MAX:]
        if rest:
            names = sorted({name for each in rest for name in each.pods})
            total = sum(each.pods_total for each in rest)
            yield msgspec.structs.replace(
                rest[0],
                subject=f"the other {total} pods",
                message=f"{len(rest)} more of this kind; the first: {rest[0].message}",
                since=min((each.since for each in rest if each.since), default=""),
                pods=tuple(names[:PODS_MAX]),
                pods_total=total,
                never_start=sum(each.never_start for each in rest),
            )


def _finding(cause: _Cause, pods: list[PodObserved]) -> Finding:
    names = names_of(pods)
    oldest_ms = min(fact.created_ms for fact in pods)
    more = f": allot explain pod {names[0]}" if cause.code == _NEVER_FITS else ""
    is_without_nodes = cause.code == NO_NODES
    return Finding(
        severity=ERROR if is_without_nodes else WARNING,
        code=cause.code,
        subject=about_pods(names),
        message=cause.message,
        remedy=cause.remedy + more,
        since=rfc3339(oldest_ms) if oldest_ms else "",
        pods=tuple(names[:PODS_MAX]),
        pods_total=len(names),
        never_start=0 if is_without_nodes else len(names),  # they start as they are
        kind=PLATFORM if is_without_nodes else TENANT,
        namespaces=namespaces_of(pods),
    )


def _cause(
    state: ClusterState, pod: Pod, time_ms: int, whys: Whys, groups: "_Groups", shut: ShutOut
) -> _Cause | None:
    """The first cause for which a pod of ours cannot start. Without nodes they all wait for one."""
    fact = pod.fact
    if fact.problem is not None:
        code = fact.problem.code
        return _Cause(code, problem_text(fact.problem).removeprefix(f"{code}: "), _advice(code))
    no = shut.why(fact)
    if no is not None:
        is_early = no.code == GROUP_MISSING and time_ms - fact.created_ms < _GROUP_COMES_MS
        return None if is_early else _Cause(no.code, no.message, _advice(no.code))
    code, message = group_cause(state, pod)
    if code in _LASTING:
        return _Cause(code, message, _advice(code))
    if not present(state):
        return _Cause(
            NO_NODES, f"{REASONS[NO_NODES].text}, so nothing can start", _advice(NO_NODES)
        )
    asked = PodRequest(
        extended=fact.request.extended,
        devices=fact.request.devices,
        selection=fact.request.selection,
    )
    texts = unserved(state, asked)
    if texts:
        return _Cause(_NOT_OFFERED, texts[0], _OFFER)
    found = whys.nodes_of(fact)
    if found is None or found.ever is not False:
        return groups.holds_back(fact.group)
    first = found.lacks[0]
    message = f"{first.code}: {first.text}; no node would fit the pod even if no other pod ran"
    remedy = "change the request, or add such a node"
    if first.code == POD_AFFINITY_MISMATCH:
        message, remedy = f"{first.code}: {first.text}", "start such a pod first"
    return _Cause(_NEVER_FITS, message, remedy)


def _advice(code: str) -> str:
    reason = REASONS.get(code)
    return "fix what is named above" if reason is None else reason.advice


class _Groups:
    """Groups whose minimum does not fit even on empty nodes."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._groups: dict[str, _Cause | None] = {}

    def holds_back(self, key: str) -> _Cause | None:
        """That the minimum of a group does not fit on empty nodes; None if it does."""
        if key not in self._groups:
            group = self._state.groups.get(key)
            most = None if group is None else group_short_even_empty(self._state, group)
            least = 0 if group is None or group.fact is None else group.fact.min_member
            said = (
                f"group {key} can never start: at most {most} of {least} pods, even on empty nodes"
            )
            remedy = "lower its minimum or what its pods ask for, or add nodes"
            self._groups[key] = None if most is None else _Cause(_NEVER_FITS, said, remedy)
        return self._groups[key]


def _of_misread(state: ClusterState) -> Iterator[Finding]:
    """Pods with annotations that are ignored, by namespace and annotation: also pods that run, for
    they run as if the annotation was absent.
    """
    found: dict[tuple[str, str], list[PodObserved]] = {}
    for pod in state.pods.values():
        for text in misread(pod.fact):
            found.setdefault((pod.fact.namespace, text), []).append(pod.fact)
    for (namespace, text), facts in sorted(found.items()):
        names = names_of(facts)
        yield Finding(
            severity=WARNING,
            code=ANNOTATION_NOT_READ,
            subject=about_pods(names),
            message=text,
            remedy=_advice(ANNOTATION_NOT_READ),
            pods=tuple(names[:PODS_MAX]),
            pods_total=len(names),
            kind=TENANT,
            namespaces=(namespace,),
        )


def _of_others(state: ClusterState) -> Iterator[Finding]:
    """Pods that wait for another scheduler and were probably meant for this one: its name is almost
    one of ours, or it is Kubernetes' own and the pods request cards.
    """
    ours = set(state.policy.scheduler_names)
    if not ours:
        return
    found: dict[tuple[str, str, str], list[PodObserved]] = {}
    near_of: dict[str, str] = {}
    for pod in state.pods.values():
        fact = pod.fact
        if fact.node or fact.phase != ACTIVE or fact.deleting or fact.scheduler in ours:
            continue
        near = near_of.setdefault(fact.scheduler, nearest(fact.scheduler, ours))
        if near:
            key = fact.namespace, fact.scheduler, f"did you mean {near}?"
            found.setdefault(key, []).append(fact)
        elif fact.scheduler == _KUBERNETES_OWN and fact.card_resources:
            asks = f"kube-scheduler assigns no card for {', '.join(fact.card_resources)}"
            found.setdefault((fact.namespace, fact.scheduler, asks), []).append(fact)
    answers = answers_to(sorted(ours))
    for (namespace, scheduler, more), facts in sorted(found.items()):
        names = names_of(facts)
        oldest_ms = min(fact.created_ms for fact in facts)
        yield Finding(
            severity=WARNING,
            code=_OTHER_SCHEDULER,
            subject=about_pods(names),
            message=f"schedulerName is {scheduler}; {answers}; {more}",
            remedy=f"recreate the pods with schedulerName {min(ours)}",
            since=rfc3339(oldest_ms) if oldest_ms else "",
            pods=tuple(names[:PODS_MAX]),
            pods_total=len(names),
            never_start=len(names),
            kind=TENANT,
            namespaces=(namespace,),
        )
