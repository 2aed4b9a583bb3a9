"""Waiting work outside the order: groups without their queue, pods without their PodGroup.

Each gets one cycle, which refuses it, and another only after it or the order changed.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from allotment.core.ledger.model import SINGLE, ClusterState, Pod
from allotment.core.queues.model import WAITING, JobView
from allotment.core.queues.round.outcome import waiting_in
from allotment.core.queues.session import Session
from allotment.core.reasons import GROUP_MISSING, QUEUE_UNKNOWN


class Orphan(NamedTuple):
    """A group or single pod to refuse, by the name of its job, and its pods that are refused."""

    key: str
    pods: tuple[str, ...]


def orphans(state: ClusterState, session: Session, tried: Mapping[str, int]) -> Iterator[Orphan]:
    """Whom to refuse; `tried` is at which sequence jobs were last in a batch."""
    if not state.is_batched:
        return  # pods are placed one by one, whatever group they name
    for key, view in sorted(session.unplaced.items()):
        if key in state.groups:
            yield from _without_queue(state, key, view, tried.get(key, 0))
        elif view.is_single:
            yield from _single_without_queue(state, key, view, tried.get(key, 0))
    for uid in without_group(state):
        pod, key = state.pods[uid], SINGLE + uid
        changed_seq = max(pod.changed_seq, state.groups[pod.fact.group].changed_seq)
        if not tried.get(key) or tried[key] < changed_seq:
            yield Orphan(key, (uid,))


def without_group(state: ClusterState) -> Iterator[str]:
    """Pods that wait for a PodGroup that does not exist, and were not refused for it."""
    for key in state.unseen:
        for uid in state.groups[key].members:
            if uid in state.pending and not _is_refused(state.pods[uid]):
                yield uid


def _without_queue(
    state: ClusterState, key: str, view: JobView, tried_seq: int
) -> Iterator[Orphan]:
    """At the gate the group itself is refused, later its pods that wait; pods that run go on."""
    group, pods = state.groups[key], tuple(waiting_in(view))
    known_seq = tried_seq
    if view.phase in WAITING and (not pods or "enqueue" in state.policy.actions):
        if group.gate is not None and group.gate.code == QUEUE_UNKNOWN:
            return
        pods = ()
    elif not pods:
        return
    else:
        known_seq = max(tried_seq, group.short_basis)
    if known_seq < max(state.order_seq, group.changed_seq):
        yield Orphan(key, pods)


def _single_without_queue(
    state: ClusterState, key: str, view: JobView, tried_seq: int
) -> Iterator[Orphan]:
    """A pod without a group whose queue does not exist."""
    for uid in waiting_in(view):
        pod = state.pods[uid]
        if max(tried_seq, pod.refused_basis) < max(state.order_seq, pod.changed_seq):
            yield Orphan(key, (uid,))


def _is_refused(pod: Pod) -> bool:
    refusal = pod.refusal
    return (
        refusal is not None
        and refusal.problem is not None
        and refusal.problem.code == GROUP_MISSING
    )
