"""What events do to groups, queues and priority classes: handlers of `state.apply`.

A group is known by its pods as well as by its PodGroup, whichever is seen first, and forgotten when
both are gone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from allotment.core.model import SINGLE, ClusterState, Group
from allotment_proto.events import (
    Decided,
    GroupGone,
    GroupObserved,
    PodObserved,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
)

DEFAULT_QUEUE = "default"
"""The queue of pods without a group."""
NOT_ADMITTED = frozenset(("", "Pending"))
"""Phases of a PodGroup that has not passed the gate of its queue."""


def join(state: ClusterState, fact: PodObserved) -> None:
    if fact.group:
        state.groups.setdefault(fact.group, Group()).members[fact.uid] = None


def leave(state: ClusterState, fact: PodObserved, seq: int) -> None:
    changed(state, fact, seq)
    group = state.groups.get(fact.group)
    if group is not None:
        group.members.pop(fact.uid, None)
        _forget_group_if_empty(state, fact.group, group)


def _forget_group_if_empty(state: ClusterState, key: str, group: Group) -> None:
    if group.fact is None and not group.members:
        del state.groups[key]
        state.short.pop(key, None)


def _touch(state: ClusterState, key: str, group: Group, seq: int) -> None:
    """Note that something about a group changed."""
    group.changed_seq = seq
    state.jobs_trail.add(key)


def group_observed(state: ClusterState, event: GroupObserved, seq: int) -> None:
    key = f"{event.namespace}/{event.name}"
    group = state.groups.setdefault(key, Group())
    known = group.fact
    if known is not None and known.uid == event.uid and known.rv > event.rv:
        return
    if known is not None and known.uid != event.uid:  # made anew under the same name
        _forget_decisions(state, key, group)
    elif (
        known is not None and known.phase not in NOT_ADMITTED and event.phase in NOT_ADMITTED
    ):  # sent back: it has to pass the gate again
        group.admitted_seq = 0
    if known is not None and msgspec.structs.replace(known, rv=event.rv) != event:
        state.order_seq = seq  # one that is new helps no other
    group.fact, group.queue = event, event.queue
    _touch(state, key, group, seq)


def _forget_decisions(state: ClusterState, key: str, group: Group) -> None:
    state.nominated.pop(key, None)
    group.admitted_seq, group.gate = 0, None
    group.short, group.short_basis, group.short_since, group.passed = None, 0, 0, 0
    state.short.pop(key, None)


def group_gone(state: ClusterState, event: GroupGone, seq: int) -> None:
    key = f"{event.namespace}/{event.name}"
    group = state.groups.get(key)
    if group is not None and group.fact is not None and group.fact.uid == event.uid:
        group.fact = None
        _touch(state, key, group, seq)
        _forget_decisions(state, key, group)
        state.order_seq = seq
        _forget_group_if_empty(state, key, group)


def queue_observed(state: ClusterState, event: QueueObserved, seq: int) -> None:
    known = state.queues.get(event.name)
    if known is None or known.uid != event.uid or known.rv <= event.rv:
        if not state.queues:
            state.jobs_trail.break_off()  # without queues only groups leave a trail
        state.queues[event.name] = event
        state.order_seq = seq


def queue_gone(state: ClusterState, event: QueueGone, seq: int) -> None:
    known = state.queues.get(event.name)
    if known is not None and known.uid == event.uid:
        del state.queues[event.name]
        state.order_seq = seq
        if not state.queues:
            state.jobs_trail.break_off()


def class_observed(state: ClusterState, event: PriorityClassObserved, seq: int) -> None:
    known = state.classes.get(event.name)
    if known is None or known.uid != event.uid or known.rv <= event.rv:
        state.classes[event.name] = event
        state.order_seq = seq


def class_gone(state: ClusterState, event: PriorityClassGone, seq: int) -> None:
    known = state.classes.get(event.name)
    if known is not None and known.uid == event.uid:
        del state.classes[event.name]
        state.order_seq = seq


def wholes_of(state: ClusterState, event: Decided) -> tuple[dict[str, int], dict[str, int]]:
    """Pods → the number of the whole that they are in, and → that of the whole without which they
    cannot be placed: those that a decision gives their group beyond its minimum.
    """
    if not event.wholes:
        return {}, {}
    return wholes_among(
        event.wholes,
        {p.uid: pod.fact.group for p in event.placements if (pod := state.pods.get(p.uid))},
    )


def wholes_among(
    wholes: Iterable[tuple[str, ...]], groups: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, int]]:
    """The same from the pods' groups by uid."""
    minimum = {uid: number for number, whole in enumerate(wholes) for uid in whole}
    started = {key: minimum[uid] for uid, key in groups.items() if key and uid in minimum}
    surplus = {
        uid: started[key] for uid, key in groups.items() if uid not in minimum and key in started
    }
    return minimum, surplus


def groups_decided(state: ClusterState, event: Decided, seq: int) -> None:
    """What a decision says about groups, after its placements took effect."""
    placed: Counter[str] = Counter()
    for placement in event.placements if state.is_batched else ():
        pod = state.pods.get(placement.uid)
        if pod is not None and pod.allocation is not None and pod.allocation.seq == seq:
            placed[pod.fact.group] += 1
    if placed:
        _count_passed(state, placed)
    for short in event.shorts:
        found = state.groups.get(short.group)
        if found is not None:
            if found.short is None:
                found.short_since = seq
            found.short, found.short_basis = short, event.basis
            state.short[short.group] = None
            state.told_trail.add(short.group)
    for admission in event.admissions:
        found = state.groups.get(admission.group)
        if found is not None:
            found.gate = admission
            state.told_trail.add(admission.group)
            if not admission.code:
                found.admitted_seq = seq
                _touch(state, admission.group, found, seq)
    held = state.holds if event.holds is None else event.holds
    if any(hold not in held or hold.group in placed for hold in state.holds):
        state.order_seq = seq  # what was held is there for others
    state.holds = held


def _count_passed(state: ClusterState, placed: Counter[str]) -> None:
    """Pods were placed, by their groups: who is short saw so many pass, in the queue whose quota
    was short, or anywhere if it was room.
    """
    queues: Counter[str] = Counter()
    for key, count in placed.items():
        group = state.groups.get(key)
        for name in _chain(state, (group.queue if group is not None else "") or DEFAULT_QUEUE):
            queues[name] += count
    for key in placed.keys() & state.groups.keys():
        group = state.groups[key]
        group.short, group.passed, group.short_since = None, 0, 0
        state.short.pop(key, None)
    total = placed.total()
    for key in state.short:
        group = state.groups[key]
        if group.short is not None:
            group.passed += queues[group.short.queue] if group.short.queue else total


def _chain(state: ClusterState, name: str) -> list[str]:
    """A queue and those above it. A circle is cut where it closes."""
    found: list[str] = []
    while name and name not in found:
        found.append(name)
        queue = state.queues.get(name)
        name = queue.parent if queue is not None else ""
    return found


def changed(state: ClusterState, fact: PodObserved, seq: int) -> None:
    """Note that something about a pod changed, for its group."""
    group = state.groups.get(fact.group)
    if group is not None:
        _touch(state, fact.group, group, seq)
    elif state.queues and not fact.group:
        state.jobs_trail.add(SINGLE + fact.uid)
