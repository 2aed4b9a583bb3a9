"""What events do to groups, queues and priority classes: handlers of `state.apply`.

A group is known by its pods as well as by its PodGroup, whichever is seen first, and forgotten when
both are gone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from allotment.core.jobs.keys import DEFAULT_QUEUE, MADE_GROUP
from allotment.core.ledger.model import SINGLE, ClusterState, Group, Pod
from allotment.core.reasons import NOT_ENOUGH_PODS_OF_TASK, NOT_ENOUGH_TASKS
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

NOT_ADMITTED = frozenset(("", "Pending"))
"""Phases of a PodGroup that has not passed the gate of its queue."""
_PROMISED_FOR = 2
"""For so many moments a group counts for what it was admitted for: its pods have to be made. The
first may be recorded at once, so it is as long as the time between two, or up to twice that."""
_PODS_TO_COME = frozenset((NOT_ENOUGH_TASKS, NOT_ENOUGH_PODS_OF_TASK))
"""Why a group is short if some of its pods do not exist: whether it fits is unknown yet."""


def join(state: ClusterState, fact: PodObserved) -> None:
    if fact.group:
        group = state.groups.setdefault(fact.group, Group())
        group.members[fact.uid] = None
        if group.fact is None:
            state.unseen[fact.group] = None


def pass_on(state: ClusterState, pod: Pod, fact: PodObserved, seq: int) -> None:
    """A pod that was judged by its own words has the PodGroup that was made for it: what was
    decided for the pod holds for that. If it has a place, or others go for it, it passed the gate.
    """
    before, now = SINGLE + fact.uid, fact.group
    if not pod.fact.queue or now != f"{fact.namespace}/{MADE_GROUP}{fact.uid}":
        return
    nominated = state.nominated.pop(before, None)
    if nominated is not None:
        state.nominated[now] = nominated
    for uid, eviction in state.evicting.items():
        if eviction.preemptor == before:
            state.evicting[uid] = msgspec.structs.replace(eviction, preemptor=now)
    if nominated is not None or pod.allocation is not None:
        state.groups[now].admitted_seq = seq


def leave(state: ClusterState, fact: PodObserved, seq: int) -> None:
    changed(state, fact, seq)
    group = state.groups.get(fact.group) if fact.group else None
    if group is not None:
        group.members.pop(fact.uid, None)
        _forget_group_if_empty(state, fact.group, group)


def _forget_group_if_empty(state: ClusterState, key: str, group: Group) -> None:
    if group.fact is None and not group.members:
        del state.groups[key]
        state.short.pop(key, None)
        state.promised.pop(key, None)
        state.unseen.pop(key, None)


def _touch(state: ClusterState, key: str, group: Group, seq: int) -> None:
    """Note that something about a group changed."""
    group.changed_seq = seq
    state.trails.jobs.add(key)


def group_observed(state: ClusterState, event: GroupObserved, seq: int) -> None:
    key = f"{event.namespace}/{event.name}"
    group = state.groups.setdefault(key, Group())
    known = group.fact
    if known is not None and known.uid == event.uid and known.rv > event.rv:
        return
    if known is not None and known.uid != event.uid:  # recreated under the same name
        _forget_decisions(state, key, group)
    elif (
        known is not None and known.phase not in NOT_ADMITTED and event.phase in NOT_ADMITTED
    ):  # sent back: it has to pass the gate again
        group.admitted_seq = 0
        _end_promise(state, key, group)
    if known is not None and msgspec.structs.replace(known, rv=event.rv) != event:
        state.order_seq = seq  # one that is new helps no other
    group.fact, group.queue = event, event.queue
    state.unseen.pop(key, None)
    _touch(state, key, group, seq)


def _forget_decisions(state: ClusterState, key: str, group: Group) -> None:
    state.nominated.pop(key, None)
    group.admitted_seq, group.gate = 0, None
    _end_promise(state, key, group)
    group.short, group.short_basis, group.short_since, group.passed = None, 0, 0, 0
    state.short.pop(key, None)


def group_gone(state: ClusterState, event: GroupGone, seq: int) -> None:
    key = f"{event.namespace}/{event.name}"
    group = state.groups.get(key)
    if group is not None and group.fact is not None and group.fact.uid == event.uid:
        group.fact = None
        state.unseen[key] = None
        _touch(state, key, group, seq)
        _forget_decisions(state, key, group)
        state.order_seq = seq
        _forget_group_if_empty(state, key, group)


def queue_observed(state: ClusterState, event: QueueObserved, seq: int) -> None:
    known = state.queues.get(event.name)
    if known is None or known.uid != event.uid or known.rv <= event.rv:
        if not state.queues:
            state.trails.jobs.break_off()  # without queues only groups leave a trail
        state.queues[event.name] = event
        state.order_seq = seq


def queue_gone(state: ClusterState, event: QueueGone, seq: int) -> None:
    known = state.queues.get(event.name)
    if known is not None and known.uid == event.uid:
        del state.queues[event.name]
        state.order_seq = seq
        if not state.queues:
            state.trails.jobs.break_off()


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
    if not (state.is_batched or event.shorts or event.admissions) and event.holds is None:
        return
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
    for admission in event.admissions:
        found = state.groups.get(admission.group)
        if found is not None:
            found.gate = admission
            state.trails.told.add(admission.group)
            if not admission.code:
                found.admitted_seq, found.promised_for = seq, _PROMISED_FOR
                state.promised[admission.group] = None
                _touch(state, admission.group, found, seq)
    has_room = False
    for short in event.shorts:
        found = state.groups.get(short.group)
        if found is not None:
            if found.short is None:
                found.short_since = seq
            found.short, found.short_basis = short, event.basis
            state.short[short.group] = None
            state.trails.told.add(short.group)
            if found.promised_for and short.code not in _PODS_TO_COME:
                _end_promise(state, short.group, found)
                has_room = True
    for key in started & state.promised.keys():
        _end_promise(state, key, state.groups[key])
    if has_room:
        _try_refused_at_gates(state, seq)
    held = state.holds if event.holds is None else event.holds
    if any(hold not in held or hold.group in started for hold in state.holds):
        state.order_seq = seq  # what was held is there for others
    state.holds = held


def _end_promise(state: ClusterState, key: str, group: Group) -> None:
    """A group no longer counts for what it was admitted for and does not hold."""
    if group.promised_for:
        group.promised_for = 0
        state.promised.pop(key, None)
        state.trails.jobs.add(key)


def promises_age(state: ClusterState) -> None:
    """A moment passed: a group admitted two moments ago had time for its pods to be made."""
    for key in tuple(state.promised):
        group = state.groups[key]
        if group.promised_for > 1:
            group.promised_for -= 1
        else:
            _end_promise(state, key, group)


def _try_refused_at_gates(state: ClusterState, seq: int) -> None:
    """Note that the groups that were not admitted have to be considered again."""
    for key, group in state.groups.items():
        if group.gate is not None and group.gate.code:
            _touch(state, key, group, seq)


class _Standing(NamedTuple):
    """Whose pods count as passing whom: those of a lower rank, or of an equal one."""

    queue: str
    rank: tuple[int, int]
    """The priority of the queue, then that of the group or pod."""


def _count_passed(state: ClusterState, placed: Iterable[PodObserved], started: set[str]) -> None:
    """Pods were placed: who is short saw those pass that do not outrank it, in the queue whose
    quota was short, or anywhere if it was room.
    """
    for key in started & state.groups.keys():
        group = state.groups[key]
        group.short, group.passed, group.short_since = None, 0, 0
        state.short.pop(key, None)
    usual = _usual(state)
    passing = Counter(_standing(state, fact, usual) for fact in placed)
    chains = {each.queue: _chain(state, each.queue) for each in passing}
    passed: dict[tuple[_Standing, str], int] = {}
    for key in state.short:
        group = state.groups[key]
        if group.short is None:
            continue
        waiting = _standing_of(state, group, usual), group.short.queue
        if waiting not in passed:  # many wait alike
            (_, rank), queue = waiting
            passed[waiting] = sum(
                count
                for each, count in passing.items()
                if each.rank <= rank and (not queue or queue in chains[each.queue])
            )
        group.passed += passed[waiting]


class _Usual(NamedTuple):
    """The priority without a PriorityClass, or with one that does not exist, and the lowest."""

    priority: int
    lowest: int


def _standing(state: ClusterState, fact: PodObserved, usual: _Usual) -> _Standing:
    group = state.groups.get(fact.group)
    if group is not None:
        return _standing_of(state, group, usual)
    if fact.queue:
        priority = _class_priority(state, fact.priority_class, usual)
        return _Standing(fact.queue, (_queue_priority(state, fact.queue), priority))
    return _Standing(DEFAULT_QUEUE, (_queue_priority(state, DEFAULT_QUEUE), fact.priority))


def _standing_of(state: ClusterState, group: Group, usual: _Usual) -> _Standing:
    queue, priority = group.queue or DEFAULT_QUEUE, group_priority(state, group, usual)
    return _Standing(queue, (_queue_priority(state, queue), priority))


def group_priority(state: ClusterState, group: Group, usual: _Usual | None = None) -> int:
    """The priority of a group among others: that of the class that its PodGroup names, and no more
    than each of its pods has. What classes a namespace may use Kubernetes says as it admits pods;
    anybody may write any class into a PodGroup.
    """
    fact = group.fact
    if fact is None:
        return 0
    usual = usual or _usual(state)
    priority = _class_priority(state, fact.priority_class, usual)
    if priority <= usual.lowest:
        return priority
    classes = {state.pods[uid].fact.priority_class for uid in group.members if uid in state.pods}
    return min([priority, *(_class_priority(state, name, usual) for name in classes)])


def _class_priority(state: ClusterState, name: str, usual: _Usual) -> int:
    known = state.classes.get(name)
    return usual.priority if known is None else known.value


def _queue_priority(state: ClusterState, name: str) -> int:
    queue = state.queues.get(name)
    return 0 if queue is None else queue.priority


def _usual(state: ClusterState) -> _Usual:
    classes = state.classes.values()
    priority = max((known.value for known in classes if known.is_default), default=0)
    return _Usual(priority, min([priority, *(known.value for known in classes)]))


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
    if fact.group:
        group = state.groups.get(fact.group)
        if group is not None:
            _touch(state, fact.group, group, seq)
    elif state.queues:
        state.trails.jobs.add(SINGLE + fact.uid)
