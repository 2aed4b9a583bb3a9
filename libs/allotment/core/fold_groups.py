"""What events do to groups, queues and priority classes: the handlers of `state.apply`.

A group is known by its pods as well as by its PodGroup, whichever is seen first, and forgotten when
both are gone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from allotment.core.model import ClusterState, Group
from allotment_proto.events import (
    Decided,
    Evicted,
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
    group = state.groups.get(fact.group)
    if group is not None:
        group.members.pop(fact.uid, None)
        group.changed_seq = seq
        _forget_group_if_empty(state, fact.group, group)


def _forget_group_if_empty(state: ClusterState, key: str, group: Group) -> None:
    if group.fact is None and not group.members:
        del state.groups[key]


def group_observed(state: ClusterState, event: GroupObserved, seq: int) -> None:
    group = state.groups.setdefault(f"{event.namespace}/{event.name}", Group())
    known = group.fact
    if known is not None and known.uid == event.uid and known.rv > event.rv:
        return
    if known is not None and known.uid != event.uid:  # made anew under the same name
        _forget_decisions(group)
    elif (
        known is not None and known.phase not in NOT_ADMITTED and event.phase in NOT_ADMITTED
    ):  # sent back: it has to pass the gate again
        group.admitted_seq = 0
    if known is not None and msgspec.structs.replace(known, rv=event.rv) != event:
        state.order_seq = seq  # one that is new helps no other
    group.fact, group.queue, group.changed_seq = event, event.queue, seq


def _forget_decisions(group: Group) -> None:
    group.admitted_seq, group.gate = 0, None
    group.short, group.short_basis, group.short_since, group.passed = None, 0, 0, 0


def group_gone(state: ClusterState, event: GroupGone, seq: int) -> None:
    key = f"{event.namespace}/{event.name}"
    group = state.groups.get(key)
    if group is not None and group.fact is not None and group.fact.uid == event.uid:
        group.fact, group.changed_seq = None, seq
        _forget_decisions(group)
        state.order_seq = seq
        _forget_group_if_empty(state, key, group)


def queue_observed(state: ClusterState, event: QueueObserved, seq: int) -> None:
    known = state.queues.get(event.name)
    if known is None or known.uid != event.uid or known.rv <= event.rv:
        state.queues[event.name] = event
        state.order_seq = seq


def queue_gone(state: ClusterState, event: QueueGone, seq: int) -> None:
    known = state.queues.get(event.name)
    if known is not None and known.uid == event.uid:
        del state.queues[event.name]
        state.order_seq = seq


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
    placed = [
        pod.fact
        for placement in (event.placements if state.is_batched else ())
        if (pod := state.pods.get(placement.uid)) is not None
        and pod.allocation is not None
        and pod.allocation.seq == seq
    ]
    started = {fact.group for fact in placed if fact.group}
    if placed:
        _count_passed(state, placed, started)
    for short in event.shorts:
        found = state.groups.get(short.group)
        if found is not None:
            if found.short is None:
                found.short_since = seq
            found.short, found.short_basis = short, event.basis
    for admission in event.admissions:
        found = state.groups.get(admission.group)
        if found is not None:
            found.gate = admission
            if not admission.code:
                found.admitted_seq = found.changed_seq = seq
    held = state.holds if event.holds is None else event.holds
    if any(hold not in held or hold.group in started for hold in state.holds):
        state.order_seq = seq  # what was held is there for others
    state.holds = held
    for eviction in event.evictions:
        pod = state.pods.get(eviction.uid)
        if pod is not None:
            state.evicting[eviction.uid] = eviction
            changed(state, pod.fact, seq)


class _Standing(NamedTuple):
    """Whose pods count as passing whom: those of a lower rank, or of an equal one."""

    queue: str
    rank: tuple[int, int]
    """The priority of the queue, then that of the group or pod."""


def _count_passed(state: ClusterState, placed: Iterable[PodObserved], started: set[str]) -> None:
    """Pods were placed: who is short saw those pass that do not outrank it, in the queue whose
    quota was short, or anywhere if it was room.
    """
    usual = usual_priority(state)
    passing = Counter(_standing(state, fact, usual) for fact in placed)
    chains = {each.queue: _chain(state, each.queue) for each in passing}
    for key, group in state.groups.items():
        if key in started:
            group.short, group.passed, group.short_since = None, 0, 0
        elif group.short is not None:
            rank, queue = _standing_of(state, group, usual).rank, group.short.queue
            group.passed += sum(
                count
                for each, count in passing.items()
                if each.rank <= rank and (not queue or queue in chains[each.queue])
            )


def _standing(state: ClusterState, fact: PodObserved, usual: int) -> _Standing:
    group = state.groups.get(fact.group)
    if group is not None:
        return _standing_of(state, group, usual)
    return _Standing(DEFAULT_QUEUE, (_queue_priority(state, DEFAULT_QUEUE), fact.priority))


def _standing_of(state: ClusterState, group: Group, usual: int) -> _Standing:
    queue, fact = group.queue or DEFAULT_QUEUE, group.fact
    known = None if fact is None else state.classes.get(fact.priority_class)
    priority = 0 if fact is None else usual if known is None else known.value
    return _Standing(queue, (_queue_priority(state, queue), priority))


def _queue_priority(state: ClusterState, name: str) -> int:
    queue = state.queues.get(name)
    return 0 if queue is None else queue.priority


def usual_priority(state: ClusterState) -> int:
    """The priority of who names no PriorityClass, or one that is not there."""
    return max((known.value for known in state.classes.values() if known.is_default), default=0)


def _chain(state: ClusterState, name: str) -> list[str]:
    """A queue and those above it. A circle is cut where it closes."""
    found: list[str] = []
    while name and name not in found:
        found.append(name)
        queue = state.queues.get(name)
        name = queue.parent if queue is not None else ""
    return found


def changed(state: ClusterState, fact: PodObserved, seq: int) -> None:
    """Note that something about a group's pod changed."""
    group = state.groups.get(fact.group)
    if group is not None:
        group.changed_seq = seq


def end_eviction(state: ClusterState, uid: str) -> bool:
    """A pod that had to make room is gone, or stays; whether there was one.

    Its node is kept for the preemptor as long as others have still to go.
    """
    eviction = state.evicting.pop(uid, None)
    if eviction is None:
        return False
    preemptor = eviction.preemptor
    if any(other.preemptor == preemptor for other in state.evicting.values()):
        state.cleared.setdefault(preemptor, {})[eviction.node] = None
    else:
        state.cleared.pop(preemptor, None)
    return True


def evicted(state: ClusterState, event: Evicted, seq: int) -> None:
    """A pod that may not go stays, and others may have to go in its place."""
    if event.code and end_eviction(state, event.uid):
        pod = state.pods.get(event.uid)
        if pod is not None:
            state.spared[event.uid] = pod.fact.owner
            changed(state, pod.fact, seq)
        state.order_seq = seq


def forgive(state: ClusterState, fact: PodObserved) -> None:
    """Something happened to a pod: those that it kept from being evicted may go now."""
    if state.spared:
        owner = fact.owner
        state.spared = {
            uid: of
            for uid, of in state.spared.items()
            if uid != fact.uid and not (owner and of == owner)
        }
