"""What events do to groups, queues and priority classes: the handlers of `state.apply`.

A group is known by its pods as well as by its PodGroup, whichever is seen first, and forgotten when
both are gone.
"""

from collections import Counter

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

NOT_ADMITTED = frozenset(("", "Pending"))
"""Phases of a PodGroup that has not passed the gate of its queue."""


def join(state: ClusterState, fact: PodObserved) -> None:
    if fact.group:
        state.groups.setdefault(fact.group, Group()).members[fact.uid] = None


def leave(state: ClusterState, fact: PodObserved) -> None:
    group = state.groups.get(fact.group)
    if group is not None:
        group.members.pop(fact.uid, None)
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
        group.admitted_seq, group.gate, group.short, group.passed = 0, None, None, 0
    elif (
        known is not None and known.phase not in NOT_ADMITTED and event.phase in NOT_ADMITTED
    ):  # sent back: it has to pass the gate again
        group.admitted_seq = 0
    group.fact, group.changed_seq = event, seq
    state.order_seq = seq


def group_gone(state: ClusterState, event: GroupGone, seq: int) -> None:
    key = f"{event.namespace}/{event.name}"
    group = state.groups.get(key)
    if group is not None and group.fact is not None and group.fact.uid == event.uid:
        group.fact, group.changed_seq = None, seq
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


def groups_decided(state: ClusterState, event: Decided, seq: int) -> None:
    """What a decision says about groups, after its placements took effect."""
    placed: Counter[str] = Counter()
    for placement in event.placements:
        pod = state.pods.get(placement.uid)
        if pod is not None and pod.allocation is not None and pod.allocation.seq == seq:
            placed[pod.fact.group] += 1
    total = placed.total()
    if total:
        for key, group in state.groups.items():
            if key in placed:
                group.short, group.passed, group.short_since = None, 0, 0
            elif group.short is not None:
                group.passed += total
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
    if event.holds is not None:
        state.holds = event.holds
    for eviction in event.evictions:
        pod = state.pods.get(eviction.uid)
        if pod is not None:
            state.evicting[eviction.uid] = eviction
            changed(state, pod.fact, seq)


def changed(state: ClusterState, fact: PodObserved, seq: int) -> None:
    """Note that something about a group's pod changed."""
    group = state.groups.get(fact.group)
    if group is not None:
        group.changed_seq = seq


def evicted(state: ClusterState, event: Evicted, seq: int) -> None:
    if event.code:
        state.evicting.pop(event.uid, None)
        pod = state.pods.get(event.uid)
        if pod is not None:
            changed(state, pod.fact, seq)
