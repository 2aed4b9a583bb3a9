"""Why a group runs or waits, at one sequence: its members are tried once more on this very state.

Nothing is guessed: the round itself gives its verdict on the group (`group_verdict`).
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from allotment.core.explain.causes.advice import empty_advice, gang_advice
from allotment.core.explain.causes.nodes import group_short_even_empty
from allotment.core.explain.causes.obstacles import present
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.made_groups import place_in_queue
from allotment.core.explain.pod import fits_empty_cluster, is_barred
from allotment.core.explain.rows.pod_views import request_of
from allotment.core.explain.rows.schema import (
    GANG_SCHEMA,
    AsOf,
    Counterfactual,
    GangExplanation,
    GangStatus,
    Gate,
    Leaving,
    Member,
    Reason,
    Said,
    Subject,
    Wanted,
    kept_of,
    place_among,
    quota_of,
    reason_of,
)
from allotment.core.ledger.model import ClusterState, Group
from allotment.core.placement.devices import memory_units
from allotment.core.queues.round.verdict import (
    ANYWHERE,
    BLOCKED,
    PLACEABLE,
    GroupVerdict,
    MemberVerdict,
    Outside,
    group_verdict,
)
from allotment.core.reasons import NO_NODES, REASONS
from allotment.core.units import rfc3339
from allotment_proto.events import GroupObserved
from allotment_proto.facts import PodRequest


def explain_gang(
    state: ClusterState, key: str, as_of_ms: int, *, advised: bool = True
) -> GangExplanation:
    """Explain the group ``<namespace>/<name>``. Without `advised` it does not try changes that
    would let the group start, which may take long on many nodes: `advise` does that alone. Raises
    KeyError for a group that neither a PodGroup nor a pod names.
    """
    group = state.groups[key]
    namespace, _, name = key.partition("/")
    as_of = AsOf(seq=state.seq, time=rfc3339(as_of_ms), time_ms=as_of_ms)
    fact = group.fact
    subject = Subject(
        kind="PodGroup", namespace=namespace, name=name, uid="" if fact is None else fact.uid
    )
    if fact is None:
        return GangExplanation(
            schema=GANG_SCHEMA,
            subject=subject,
            as_of=as_of,
            status=GangStatus(phase="Unseen"),
            min_member=0,
            members=tuple(_plain_members(state, group)),
        )
    found = group_verdict(state, key)
    ruled = found if isinstance(found, GroupVerdict) else None
    since_s = max(as_of_ms - fact.created_ms, 0) // 1000 if fact.created_ms else 0
    if isinstance(found, Outside):
        members: tuple[Member, ...] = tuple(_plain_members(state, group))
        status = _outside(found, fact, since_s)
        counts = Counter(member.state for member in members)
    else:
        members = tuple(map(_member, found.members))
        status = _status(state, found, fact, group, members, since_s)
        counts = Counter(found.counts)
    queue = state.queues.get(fact.queue)
    waiting = () if ruled is None else ruled.waiting
    return GangExplanation(
        schema=GANG_SCHEMA,
        subject=subject,
        as_of=as_of,
        status=status,
        min_member=fact.min_member,
        min_task_member=dict(fact.min_task_member),
        counts={name: number for name, number in sorted(counts.items()) if number},
        priority=0 if ruled is None else ruled.priority,
        priority_class=fact.priority_class,
        preemptable=fact.preemptable,
        never_preempts=found.never_preempts,
        queue=fact.queue,
        queue_state="" if queue is None else queue.state,
        wants=() if ruled is None else tuple(_wants(state, group, ruled)),
        units=memory_units(state.devices),
        min_resources={} if ruled is None else dict(ruled.least),
        problem=None
        if fact.problem is None
        else Reason(code=fact.problem.code, message=f"{fact.problem.place} {fact.problem.message}"),
        gate=None if ruled is None else _gate(ruled, group),
        said=_said(group),
        members=members,
        in_queue=place_in_queue(state, waiting, key, Whys(state)),
        queues=place_among(ruled.queues, fact.queue)
        if ruled is not None and key in waiting
        else None,
        counterfactuals=_advice(state, key, ruled).changes if ruled is not None and advised else (),
        kept=() if ruled is None else kept_of(ruled.holds),
        in_the_way=() if ruled is None else kept_of(ruled.in_the_way),
        leaving=tuple(
            Leaving(namespace=e.namespace, name=e.name, node=e.node, action=e.action)
            for e in state.evicting.values()
            if e.preemptor == key
        ),
    )


class GangAdvice(NamedTuple):
    """What would let a group start. With `member` it is about that pod alone, and those like it:
    not even empty nodes take it as it is, so each change would fit those.
    """

    changes: tuple[Counterfactual, ...]
    member: str = ""


def advise(state: ClusterState, key: str) -> GangAdvice:
    """What would let a waiting group start, each change tried on this state."""
    group = state.groups[key]
    found = None if group.fact is None else group_verdict(state, key)
    return _advice(state, key, found) if isinstance(found, GroupVerdict) else GangAdvice(())


def _advice(state: ClusterState, key: str, ruled: GroupVerdict) -> GangAdvice:
    never = _never_fits(state, state.groups[key], ruled)
    if never is None:
        return GangAdvice(tuple(each.shown() for each in gang_advice(state, key, ruled)))
    asked, pod_name = never
    return GangAdvice(tuple(each.shown() for each in empty_advice(state, asked)), pod_name)


def _wants(state: ClusterState, group: Group, ruled: GroupVerdict) -> Iterator[Wanted]:
    """What its waiting pods request, including pods with an invalid request: for the round these
    request nothing.
    """
    counts = Counter(dict(ruled.wants))
    facts = (state.pods[uid].fact for uid in group.members if uid in state.pending)
    for asks in (fact.asks for fact in facts if fact.asks is not None):
        counts[PodRequest()] -= 1
        counts[asks] += 1
    for request, pods in counts.items():
        if pods > 0:
            yield Wanted(pods=pods, request=request_of(request))


def _never_fits(
    state: ClusterState, group: Group, ruled: GroupVerdict
) -> tuple[PodRequest, str] | None:
    """What a waiting pod asks for that not even an empty cluster takes, and the pod's name; None if
    there is none, or if the group has its minimum without such pods.
    """
    able, never = 0, []
    for asked, (request, pods) in zip(ruled.asked, ruled.wants, strict=True):
        if fits_empty_cluster(state, asked) is not False:
            able += pods
        else:
            never.append((asked, request))
    has_roles = group.fact is not None and bool(group.fact.min_task_member)
    if not never or (0 < ruled.wanted <= able and not has_roles):
        return None
    asked, request = never[0]
    facts = (state.pods[uid].fact for uid in group.members if uid in state.pending)
    return asked, next((fact.name for fact in facts if fact.request == request), "")


def _said(group: Group) -> Said | None:
    short = group.short
    if short is None:
        return None
    return Said(
        code=short.code,
        message=short.message,
        together=short.together,
        wanted=short.wanted,
        waiting=short.waiting,
        tried=short.tried,
        since=group.short_since,
        basis=group.short_basis,
        passed=group.passed,
    )


def _outside(found: Outside, fact: GroupObserved, since_s: int) -> GangStatus:
    """The status of a group whose queue does not exist, or where no queue does."""
    cause = None if found.no is None else reason_of(found.no)
    phase = "NotInUse" if cause is None else "NoQueue"
    return GangStatus(phase=phase, cause=cause, since_seconds=since_s, group_phase=fact.phase)


def _gate(found: GroupVerdict, group: Group) -> Gate:
    last = group.gate
    return Gate(
        let_in=found.is_let_in,
        decision=group.admitted_seq,
        said=None
        if last is None or not last.code
        else Reason(code=last.code, message=last.message),
        now=None if found.gate is None else reason_of(found.gate),
    )


def _status(
    state: ClusterState,
    found: GroupVerdict,
    fact: GroupObserved,
    group: Group,
    members: tuple[Member, ...],
    since_s: int,
) -> GangStatus:
    together = sum(member.state in (PLACEABLE, ANYWHERE) for member in members)
    blocked = next((member.reason for member in members if member.state == BLOCKED), None)
    cause: Reason | None = None
    if found.is_completed:
        phase = "Completed"
    elif not found.is_let_in and "enqueue" in state.policy.actions:
        phase, cause = "AtGate", None if found.gate is None else reason_of(found.gate)
    elif found.invalid is not None:
        phase, cause = "Incomplete", reason_of(found.invalid)
    elif together or blocked is not None:
        phase, cause = ("Growing" if found.is_ready else "Waiting"), blocked
    else:
        phase = "Placed" if found.is_ready else "Waiting"
    if cause is None and phase == "Waiting" and together < found.wanted and group.short is not None:
        cause = Reason(code=group.short.code, message=group.short.message)
    if phase in ("AtGate", "Waiting") and not present(state) and not is_barred(found.no):
        cause = Reason(code=NO_NODES, message=REASONS[NO_NODES].text)
    most = group_short_even_empty(state, group)
    return GangStatus(
        phase=phase,
        cause=cause,
        quota=() if cause is not None and cause.code == NO_NODES else quota_of(found.short),
        since_seconds=since_s,
        group_phase=fact.phase,
        wanted=found.wanted,
        together=together if found.asked else None,
        fits_empty_cluster=most is None and _never_fits(state, group, found) is None
        if found.asked and present(state)
        else None,
        at_most_empty=most,
    )


def _member(found: MemberVerdict) -> Member:
    return Member(
        name=found.name,
        role=found.role,
        state=found.state,
        node=found.node,
        reason=None if found.no is None else reason_of(found.no),
        reasons=dict(found.reasons),
    )


def _plain_members(state: ClusterState, group: Group) -> Iterator[Member]:
    for uid in group.members:
        pod = state.pods.get(uid)
        if pod is not None:
            node = pod.fact.node or (pod.allocation.node if pod.allocation else "")
            yield Member(name=pod.fact.name, role=pod.fact.role, state=pod.fact.phase, node=node)
