"""Pods that wait in vain: those that cannot start as they are, by cause, and those that nobody
schedules.

A pod is counted once, under the first cause that is found; what follows from it is not said again.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from allotment.core.explain.doctor.finding import (
    ERROR,
    PODS_MAX,
    WARNING,
    Finding,
    about_pods,
    names_of,
)
from allotment.core.explain.lacks import lacks
from allotment.core.explain.nodes import FITS, emptied, group_short_even_empty, present
from allotment.core.explain.pod_views import asks_text, group_cause
from allotment.core.ledger.model import ACTIVE, ClusterState, Node, Pod
from allotment.core.placement.rules.bounds import by_itself
from allotment.core.placement.rules.predicates import fits
from allotment.core.placement.unserved import misread, nearest, unserved
from allotment.core.queues.round.verdict import ShutOut
from allotment.core.reasons import (
    CARD_UNREADABLE,
    CURED_BY_ROOM,
    EMPTY_CAPABILITY,
    GROUP_MISSING,
    INSUFFICIENT_CPU,
    INSUFFICIENT_MEMORY,
    NO_NODES,
    QUEUE_NOT_LEAF,
    QUOTA_UNREADABLE,
    REASONS,
    problem_text,
    shown_cause,
)
from allotment.core.units import cpu_text, mib_text, rfc3339
from allotment_proto.events import PodObserved
from allotment_proto.facts import PodRequest

_NOT_OFFERED, _NEVER_FITS = "NotOffered", "NeverFits"
_OTHER_SCHEDULER = "NotOurs"
_KUBERNETES_OWN = "default-scheduler"
_GROUP_COMES_MS = 10_000
"""A pod is often made before its PodGroup."""
_REQUESTS_MAX = 256
"""So many different requests are tried on empty nodes."""
_ALIKE_MAX = 20
"""So many findings have the same code; those of fewer pods are one."""
_MIB = 1 << 20
_OFFER = "do what the message says, or make the pods again with what nodes offer"
_LASTING = frozenset((QUEUE_NOT_LEAF, EMPTY_CAPABILITY, CARD_UNREADABLE, QUOTA_UNREADABLE))
"""Reasons of a queue that last until somebody changes it."""


class _Cause(NamedTuple):
    """Why pods cannot start, in words that hold for all of them."""

    code: str
    message: str
    remedy: str


def of_waiting(state: ClusterState, time_ms: int) -> list[Finding]:
    """A finding for each cause, about all pods that it keeps from starting."""
    found: dict[_Cause, list[PodObserved]] = {}
    empty, shut = _Empty(state), ShutOut(state)
    for uid in state.pending:
        cause = _cause(state, state.pods[uid], time_ms, empty, shut)
        if cause is not None:
            found.setdefault(cause, []).append(state.pods[uid].fact)
    findings = [_finding(cause, pods, empty) for cause, pods in found.items()]
    return list(_capped([*findings, *_of_others(state), *_of_misread(state)]))


def _capped(findings: list[Finding]) -> Iterator[Finding]:
    """Of findings with one code those about the most pods, and one about the rest."""
    by_code: dict[str, list[Finding]] = {}
    for each in findings:
        by_code.setdefault(each.code, []).append(each)
    for found in by_code.values():
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


def _finding(cause: _Cause, pods: list[PodObserved], empty: "_Empty") -> Finding:
    names = names_of(pods)
    oldest_ms = min(fact.created_ms for fact in pods)
    more, lacking = "", ""
    if cause.code == _NEVER_FITS:
        more = f": allot explain pod {names[0]}"
        first = next(fact for fact in pods if f"{fact.namespace}/{fact.name}" == names[0])
        of_first = f"; {names[0]}: " if len(names) > 1 else "; "
        lacking = "".join(f"{of_first}{text}" for text in empty.lacks(first.request)[:1])
    is_without_nodes = cause.code == NO_NODES
    return Finding(
        severity=ERROR if is_without_nodes else WARNING,
        code=cause.code,
        subject=about_pods(names),
        message=cause.message + lacking,
        remedy=cause.remedy + more,
        since=rfc3339(oldest_ms) if oldest_ms else "",
        pods=tuple(names[:PODS_MAX]),
        pods_total=len(names),
        never_start=0 if is_without_nodes else len(names),  # they start as they are
    )


def _cause(
    state: ClusterState, pod: Pod, time_ms: int, empty: "_Empty", shut: ShutOut
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
    asked = PodRequest(extended=fact.request.extended, devices=fact.request.devices)
    texts = unserved(state, asked)
    if texts:
        return _Cause(_NOT_OFFERED, texts[0], _OFFER)
    code = empty.refuses(fact.request)
    if not code:
        return empty.holds_back(fact.group)
    why = REASONS[code].text if code in REASONS else code
    what = f"asks for {_ask(fact.request, code)}, and " if code in CURED_BY_ROOM else ""
    message = f"{code}: {what}no node would take it, not even an empty one: {why}"
    return _Cause(_NEVER_FITS, message, "change the request, or add such a node")


def _advice(code: str) -> str:
    reason = REASONS.get(code)
    return "correct what the message names" if reason is None else reason.advice


def _ask(request: PodRequest, code: str) -> str:
    """The part of a request that a node refuses for."""
    if code == INSUFFICIENT_CPU:
        return f"{cpu_text(request.cpu_milli)} CPU"
    if code == INSUFFICIENT_MEMORY:
        return f"{mib_text(request.memory_bytes // _MIB)} of host memory"
    return asks_text(request.devices, request.extended) or "what it asks for"


class _Empty:
    """The nodes as if nobody held anything of them, and what they answered."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._nodes: list[Node] = []
        self._known: dict[PodRequest, str] = {}
        self._groups: dict[str, _Cause | None] = {}

    def refuses(self, request: PodRequest) -> str:
        """The main reason for which every empty node refuses; empty if one would take it."""
        bare = by_itself(request)
        if bare not in self._known:
            if len(self._known) == _REQUESTS_MAX:
                return ""
            self._known[bare] = self._ask(bare)
        return self._known[bare]

    def lacks(self, request: PodRequest) -> list[str]:
        """What is in the way on empty nodes that all refuse, by name, what matters most first."""
        bare, policy = by_itself(request), self._state.policy
        answers = [fits(node, bare, policy) for node in self._empty_nodes()]
        codes = [answer if isinstance(answer, str) else FITS for answer in answers]
        return [lack.text for lack in lacks(self._state, bare, codes)]

    def holds_back(self, key: str) -> _Cause | None:
        """That empty nodes do not hold the minimum of a group, if that is so."""
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

    def _ask(self, request: PodRequest) -> str:
        counts: dict[str, int] = {}
        for node in self._empty_nodes():
            answer = fits(node, request, self._state.policy)
            if not isinstance(answer, str):
                return ""
            counts[answer] = counts.get(answer, 0) + 1
        return shown_cause(tuple(counts.items())) if counts else ""

    def _empty_nodes(self) -> list[Node]:
        if not self._nodes:
            self._nodes = [emptied(node) for node in present(self._state)]
        return self._nodes


def _of_misread(state: ClusterState) -> Iterator[Finding]:
    """Pods with annotations that nobody reads, by annotation: also of pods that run by now, for
    they run as if nothing had been asked.
    """
    found: dict[str, list[PodObserved]] = {}
    for pod in state.pods.values():
        for text in misread(pod.fact):
            found.setdefault(text, []).append(pod.fact)
    for text, facts in sorted(found.items()):
        names = names_of(facts)
        yield Finding(
            severity=WARNING,
            code="AnnotationNotRead",
            subject=about_pods(names),
            message=text,
            remedy="correct the key and make the pods again: they are treated as if it was absent",
            pods=tuple(names[:PODS_MAX]),
            pods_total=len(names),
        )


def _of_others(state: ClusterState) -> Iterator[Finding]:
    """Pods that wait for another scheduler and were probably meant for us: its name is almost one
    that we answer to, or it is Kubernetes' own and they ask for cards.
    """
    ours = set(state.policy.scheduler_names)
    found: dict[tuple[str, str], list[PodObserved]] = {}
    near_of: dict[str, str] = {}
    for pod in state.pods.values():
        fact = pod.fact
        if fact.node or fact.phase != ACTIVE or fact.deleting or fact.scheduler in ours:
            continue
        near = near_of.setdefault(fact.scheduler, nearest(fact.scheduler, ours))
        if near:
            found.setdefault((fact.scheduler, f"did you mean {near}?"), []).append(fact)
        elif fact.scheduler == _KUBERNETES_OWN and fact.card_resources:
            asks = f"kube-scheduler gives no card for {', '.join(fact.card_resources)}"
            found.setdefault((fact.scheduler, asks), []).append(fact)
    answers = ", ".join(sorted(ours))
    for (scheduler, more), facts in sorted(found.items()):
        names = names_of(facts)
        oldest_ms = min(fact.created_ms for fact in facts)
        yield Finding(
            severity=WARNING,
            code=_OTHER_SCHEDULER,
            subject=about_pods(names),
            message=f"schedulerName is {scheduler}; this scheduler answers to {answers}; {more}",
            remedy="make the pods again with a schedulerName that is answered to",
            since=rfc3339(oldest_ms) if oldest_ms else "",
            pods=tuple(names[:PODS_MAX]),
            pods_total=len(names),
            never_start=len(names),
        )
