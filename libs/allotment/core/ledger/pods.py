"""What observations of pods do, and corrections of what they hold: handlers of `state.apply`.

A pod that a decision placed holds what that booked, whatever its annotations say. One that others
bound holds what they claim.
"""

import msgspec

from allotment.core.ledger import evictions as fold_evictions
from allotment.core.ledger import groups as fold_groups
from allotment.core.ledger import health
from allotment.core.ledger.books import charge, note_single, release, sort_in, wait_no_more
from allotment.core.ledger.claims import agrees, claimed, confirmed, served_with
from allotment.core.ledger.model import (
    BOUND,
    ENDED,
    FORGED_NODES_MAX,
    OWNERS_MAX,
    Allocation,
    ClusterState,
    Pod,
    is_acknowledged,
)
from allotment_proto.events import Corrected, PodGone, PodObserved
from allotment_proto.volcano.keys import PHASE_ALLOCATING, PHASE_FAILED, PHASE_SUCCESS


def pod_observed(state: ClusterState, event: PodObserved, seq: int) -> None:
    """A pod as it is now; an observation older than the last one changes nothing."""
    pod = state.pods.get(event.uid)
    before = None if pod is None else pod.fact
    if pod is None:
        pod = state.pods[event.uid] = Pod(event, seq)
        fold_groups.join(state, event)
        state.note_company(event, 1)
    elif pod.fact.rv > event.rv:
        return
    else:
        if pod.fact.group != event.group:
            fold_groups.leave(state, pod.fact, seq)
            fold_groups.join(state, event)
            fold_groups.pass_on(state, pod, event, seq)
        if pod.fact.request != event.request:
            pod.changed_seq = seq
            was, now = pod.fact.request, event.request
            if (was.company, was.attachments) != (now.company, now.attachments):
                state.note_company(pod.fact, -1)
                state.note_company(event, 1)
        elif (pod.fact.problem, pod.fact.local_claims) != (event.problem, event.local_claims):
            pod.changed_seq = seq
        pod.fact = event
        note_single(state, pod)
    fold_groups.changed(state, event, seq)
    fold_evictions.forgive(state, event)
    fold_evictions.note_deleting(state, event, seq)
    _learn_start(state, pod, before, seq)
    _note_forged(state, pod, before, seq)
    health.learn(state, pod, before, seq)
    if event.phase in ENDED:
        fold_evictions.end_eviction(state, event.uid, seq)
        release(state, pod, seq)
        state.corrected.pop(event.uid, None)
    elif event.node:
        _hold(state, pod, seq)
    _look_again(state, pod)
    sort_in(state, pod)


def _note_forged(state: ClusterState, pod: Pod, before: PodObserved | None, seq: int) -> None:
    """Count how often a pod's annotations came to be what no scheduler wrote (`standing`), or stand
    again after they were served or erased. A pod that does so repeatedly differs from one
    that was made of another pod's manifest: nothing is placed on the node that it named last while
    that pod is there.
    Another scheduler writes its record before it binds a pod, so that counts only until it has.
    """
    fact = pod.fact
    found, was = fact.standing, None if before is None else before.standing
    is_anew = (
        before is not None
        and before.node == fact.node
        and before.bind_phase in (PHASE_SUCCESS, PHASE_FAILED)
        and fact.bind_phase == PHASE_ALLOCATING
    )
    if before is not None and before.card_resources and fact.node and found is None:
        _set_forged(state, pod, None)
    elif is_anew or (found is not None and found != was):
        name = fact.node if found is None else found.node
        counts = dict(pod.forged or {})
        counts[name] = counts.pop(name, 0) + 1
        if len(counts) > FORGED_NODES_MAX:
            del counts[next(iter(counts))]
        _set_forged(state, pod, counts)
        if fact.node or not fact.card_resources:  # it is not another scheduler's, on its way
            health.forged(state, name, seq)


def _set_forged(state: ClusterState, pod: Pod, counts: dict[str, int] | None) -> None:
    before = pod.forged_on
    pod.forged = counts
    if counts:
        state.forging[pod.fact.uid] = None
    else:
        state.forging.pop(pod.fact.uid, None)
    for name in {before, pod.forged_on} if before != pod.forged_on else ():
        node = state.nodes.get(name)
        if node is not None:
            node.note_forger(pod.fact.uid, name == pod.forged_on)
            state.touch(node)
            state.room_seq = state.seq


def _hold(state: ClusterState, pod: Pod, seq: int) -> None:
    """Book a pod seen on a node: what a decision gave it, or what it may claim (`claims`)."""
    fact, held = pod.fact, pod.allocation
    if held is None or held.node != fact.node:
        release(state, pod, seq)  # a pod never changes its node: no Binding of ours can land now
        state.corrected.pop(fact.uid, None)
        charge(state, pod, adopted(fact))
        return
    if held.seq:
        # Whose Binding took effect, a claim that differs does not tell: it stays reserved until
        # the binder, who asks the API server, has said how it ended.
        is_bound = held.phase == BOUND or (
            fact.broken is None and agrees(held.holdings, claimed(fact))
        )
        phase = BOUND if is_bound else held.phase
        more = () if held.acknowledged else served_with(fact)
        more = tuple(h for h in more if h not in held.holdings)
        if not held.broken and not more and _takes_of_host(held, fact):  # nearly all that is seen
            _confirm(state, held, phase)
            return
        seen = adopted(fact)
        seen.phase, seen.seq, seen.stamp_s = phase, held.seq, held.stamp_s
        seen.holdings, seen.broken = (*held.holdings, *more), False
        seen.volumes = held.volumes
    else:
        seen = adopted(fact)
        if not held.broken and (held.acknowledged or not served_with(fact)):
            if held.holdings:
                seen.holdings, seen.broken = confirmed(held.holdings, fact.holdings), False
            elif seen.broken:  # it was seen when its plugin could not have served it by that
                seen.holdings, seen.broken = (), False
    seen.acknowledged = seen.acknowledged or held.acknowledged
    seen.holdings = state.nodes[held.node].holdings_of(seen)
    if _is_as_booked(held, seen) and _takes_of_host(held, fact):
        _confirm(state, held, seen.phase)
        return
    release(state, pod, seq)
    charge(state, pod, seen)


def _confirm(state: ClusterState, held: Allocation, phase: str) -> None:
    """The books stay as they are; a reservation may be known to be bound by now."""
    if held.phase != phase:
        held.phase = BOUND
        state.reserved.pop(held.uid, None)


def adopted(fact: PodObserved) -> Allocation:
    """What a pod that others bound holds: what it claims (the watcher keeps that to its limits), or
    what its plugin will give it anyway."""
    served = served_with(fact)
    return Allocation(
        fact.uid,
        fact.node,
        served or fact.holdings,
        fact.request.cpu_milli,
        fact.request.memory_bytes,
        fact.request.extended,
        phase=BOUND,
        tags=fact.tags,
        broken=fact.broken is not None and not served,
        fact=fact,
        acknowledged=is_acknowledged(fact, fact.holdings),
    )


def _look_again(state: ClusterState, pod: Pod) -> None:
    """What a pod's allocation says of labels and of other pods is what was last seen."""
    held, fact = pod.allocation, pod.fact
    if held is None or held.fact is fact:
        return
    node, was = state.nodes[held.node], held.fact
    waited = node.awaits(held)
    held.see(fact)
    if waited and not node.awaits(held):
        node.backlog -= 1
        state.touch(node, held, 0)
    if was is not None and _seems_as(was, fact):
        return
    if was is not None:
        node.book_said(was, -1)
    node.book_said(fact, 1)
    if state.followers or state.keep_away:
        state.room_seq = state.seq
    state.touch(node)


def _seems_as(was: PodObserved, fact: PodObserved) -> bool:
    """Whether two observations of a pod are the same to other pods and to scores."""
    before, now = was.request, fact.request
    return (
        was.labels == fact.labels
        and was.deleting == fact.deleting
        and before.unrequested == now.unrequested
        and before.company == now.company
        and before.attachments == now.attachments
    )


def _learn_start(state: ClusterState, pod: Pod, before: PodObserved | None, seq: int) -> None:
    """The owner's next pods avoid the cards of one that could not start, until one could.

    Each tells it once: what is seen of the pod afterwards says nothing about its cards.
    """
    fact, held = pod.fact, pod.allocation
    if held is None or before is None:
        return
    if (before.bind_phase, before.reason) == (fact.bind_phase, fact.reason):
        return
    start = _start_of(fact)
    if _start_of(before) == start or (start == PHASE_SUCCESS and not state.avoided):
        return
    holdings = fact.holdings if held.unplaced else held.holdings  # where it may be says nothing
    cards = [(held.node, h.family, h.card) for h in holdings]
    if start == PHASE_SUCCESS:
        state.avoided = {
            owner: left
            for owner, avoided in state.avoided.items()
            if (left := {card: at for card, at in avoided.items() if card not in cards})
        }
    elif fact.owner and cards and start == PHASE_FAILED:
        avoided = state.avoided.pop(fact.owner, {})
        avoided.update(dict.fromkeys(cards, seq))
        state.avoided[fact.owner] = avoided
        if len(state.avoided) > OWNERS_MAX:
            del state.avoided[next(iter(state.avoided))]


def was_turned_away(fact: PodObserved) -> bool:
    """Whether the device plugin of a pod's node turned it away, or kubelet, which may refuse what
    the plugin has served."""
    return fact.bind_phase == PHASE_FAILED or fact.reason == health.NOT_ADMITTED


def _start_of(fact: PodObserved) -> str:
    """Whether the pod could start: `PHASE_SUCCESS`, `PHASE_FAILED`, or empty while unknown."""
    if was_turned_away(fact):
        return PHASE_FAILED
    return PHASE_SUCCESS if fact.bind_phase == PHASE_SUCCESS else ""


def _is_as_booked(held: Allocation, seen: Allocation) -> bool:
    """Whether the books of the cards stay as they are."""
    return (
        held.holdings == seen.holdings
        and held.broken == seen.broken
        and held.unplaced == seen.unplaced
        and (not held.unplaced or held.known_places == seen.known_places)
    )


def _takes_of_host(held: Allocation, fact: PodObserved) -> bool:
    """Whether a pod takes of its host what is booked, and counts as that to others on its cards. It
    may be resized in place: what it takes of its host changes while its cards do not.
    """
    request = fact.request
    return (
        held.tags == fact.tags
        and held.cpu_milli == request.cpu_milli
        and held.memory_bytes == request.memory_bytes
        and held.extended == request.extended
    )


def pod_gone(state: ClusterState, event: PodGone, seq: int) -> None:
    """A pod that is gone holds nothing and says nothing about others."""
    pod = state.pods.pop(event.uid, None)
    if pod is None:
        return
    state.deleting.pop(event.uid, None)
    release(state, pod, seq)
    _set_forged(state, pod, None)
    fold_groups.leave(state, pod.fact, seq)
    fold_evictions.forgive(state, pod.fact)
    state.note_company(pod.fact, -1)
    wait_no_more(state, event.uid)
    state.voided.pop(event.uid, None)
    state.corrected.pop(event.uid, None)
    fold_evictions.end_eviction(state, event.uid, seq)
    fold_evictions.preemptor_gone(state, event.uid, seq)


def pod_corrected(state: ClusterState, event: Corrected, seq: int) -> None:
    """A pod holds other devices than those that were decided: the books follow the devices."""
    pod = state.pods.get(event.uid)
    held = None if pod is None else pod.allocation
    if pod is None or held is None or not held.seq:
        return
    if (held.node, held.seq) != (event.node, event.decision):
        return
    if held.holdings != event.holdings:
        moved = msgspec.structs.replace(held, holdings=event.holdings, fact=pod.fact)
        release(state, pod, seq)
        charge(state, pod, moved)
    state.corrected[event.uid] = seq, event
