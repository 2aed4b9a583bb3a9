"""What events do to evictions, and to the places that are kept for those whom others make room for.

A preemptor's pods are nominated for nodes by the decision that evicts for them. The places are
theirs until the last victim is gone (or stays for good) and a decision tried them on that state: by
then they are there, or cannot be. A decision whose placements did not stand tried nothing. A pod
nominated where others make room, without victims of its own, waits for the victims of the others.

A pod that is being deleted frees its devices soon only if the deadline that Kubernetes writes on
it is near. Until then a slowly deleted pod counts as running: no preemptor waits for it, and it may
be evicted like any other pod. A pod that remains long after its deadline, because its node does not
answer or a finalizer keeps it, may stay for ever, so preemptors that wait for it look elsewhere.
"""

from collections.abc import Iterator

from allotment.core.ledger.groups import changed
from allotment.core.ledger.model import ClusterState, Nominated
from allotment.core.reasons import OTHER_VICTIM_STAYS
from allotment_proto.events import Decided, Evicted, Nomination, PodObserved

NEAR_S = 60
"""A pod that is deleted is waited for from so long before its deadline to so long after it."""
GRACE_MOST_S = 600
"""A pod that is evicted gets its own grace period, but no more than this (as much as the cluster
autoscaler gives by default)."""


def evictions_decided(state: ClusterState, event: Decided, seq: int) -> None:
    """What a decision says about evictions, after its placements took effect."""
    if state.nominated:
        _settle_nominated(state, event, seq)
    if not (event.evictions or event.nominations):
        return
    for eviction in event.evictions:
        pod = state.pods.get(eviction.uid)
        if pod is not None:
            state.evicting[eviction.uid] = eviction
            changed(state, pod.fact, seq)
    places: dict[str, list[Nomination]] = {}
    for nomination in event.nominations:
        if nomination.uid in state.pending:
            places.setdefault(nomination.preemptor, []).append(nomination)
    for preemptor, found in places.items():
        nodes = {each.uid: each.node for each in found}
        awaited = _awaited(state, preemptor, set(nodes.values()))
        holdings = {each.uid: each.holdings for each in found}
        state.nominated[preemptor] = Nominated(nodes, holdings, awaited, 0 if awaited else seq)
        state.trails.jobs.add(preemptor)  # a pod that others are evicted for passed its gate


def _awaited(state: ClusterState, preemptor: str, nodes: set[str]) -> set[str]:
    """Who makes room for a preemptor: its own victims; on nodes where it has none, others'."""
    going = state.evicting.values()
    own = [each for each in going if each.preemptor == preemptor]
    ridden = nodes - {each.node for each in own}
    return {each.uid for each in own} | {each.uid for each in going if each.node in ridden}


def _settle_nominated(state: ClusterState, event: Decided, seq: int) -> None:
    undone = {p.uid for p in event.placements} | {d.placement.uid for d in event.dropped}
    for preemptor, nominated in list(state.nominated.items()):
        is_tried = nominated.is_tried(event.batch, event.basis)
        for uid in [uid for uid in nominated.nodes if uid not in state.pending]:
            del nominated.nodes[uid], nominated.holdings[uid]
        if not nominated.nodes or (is_tried and undone.isdisjoint(nominated.nodes)):
            del state.nominated[preemptor]
            state.trails.jobs.add(preemptor)
            state.order_seq = seq  # what was kept is there for others


def is_leaving(state: ClusterState, fact: PodObserved) -> bool:
    """Whether a pod is on its way out: evicted, or deleted and not far from its deadline."""
    if fact.uid in state.evicting:
        return True
    is_slow = fact.grace_s > NEAR_S and state.time_ms < fact.deadline_ms - NEAR_S * 1000
    return fact.deleting and not is_slow


def ending(state: ClusterState) -> Iterator[str]:
    """The pods that hold something which is free soon."""
    for uid in sorted({*state.deleting, *state.evicting}):
        pod = state.pods.get(uid)
        if (
            pod is not None
            and pod.allocation is not None
            and is_leaving(state, pod.fact)
            and not _is_overdue(state, pod.fact)
        ):
            yield uid


def turning_points(fact: PodObserved) -> Iterator[int]:
    """The moments (ms) at which a pod that is being deleted begins to be waited for, if it was not
    from the beginning, and at which it no longer is.
    """
    if fact.deadline_ms:
        if fact.grace_s > NEAR_S:
            yield fact.deadline_ms - NEAR_S * 1000
        yield fact.deadline_ms + NEAR_S * 1000


def _is_overdue(state: ClusterState, fact: PodObserved) -> bool:
    return 0 < fact.deadline_ms <= state.time_ms - NEAR_S * 1000


def note_deleting(state: ClusterState, fact: PodObserved, seq: int) -> None:
    """A pod was observed: it is being deleted, or not."""
    if not fact.deleting:
        state.deleting.pop(fact.uid, None)
        return
    state.deleting[fact.uid] = None
    if _is_overdue(state, fact):
        end_eviction(state, fact.uid, seq)


def time_passed(state: ClusterState, before_ms: int, seq: int) -> None:
    """Pods that are being deleted come near their deadlines, and miss them."""
    for uid in sorted(state.deleting):
        fact = state.pods[uid].fact
        if any(before_ms < at_ms <= state.time_ms for at_ms in turning_points(fact)):
            changed(state, fact, seq)
            if _is_overdue(state, fact):
                end_eviction(state, uid, seq)


def end_eviction(state: ClusterState, uid: str, seq: int) -> bool:
    """A pod that had to make room is gone, or stays; whether there was one."""
    if state.evicting.pop(uid, None) is None:
        return False
    for nominated in state.nominated.values():
        if uid not in nominated.awaited:
            continue
        nominated.awaited.remove(uid)
        if nominated.awaited:
            continue
        nominated.ripe_seq = seq
        for waiting in nominated.nodes:
            pod = state.pods.get(waiting)
            if pod is not None:  # it is its turn, whether or not room appeared
                pod.changed_seq = seq
                changed(state, pod.fact, seq)
    return True


def preemptor_gone(state: ClusterState, uid: str, seq: int) -> None:
    """A nominated pod is gone: what was kept for it is free for others."""
    if any(uid in nominated.nodes for nominated in state.nominated.values()):
        state.order_seq = seq


def evicted(state: ClusterState, event: Evicted, seq: int) -> None:
    """A pod that may not go stays, and others may have to go in its place. One that stays only
    because another one does may be asked again, for another preemptor.
    """
    if event.code and end_eviction(state, event.uid, seq):
        pod = state.pods.get(event.uid)
        if pod is not None:
            if event.code != OTHER_VICTIM_STAYS:
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
