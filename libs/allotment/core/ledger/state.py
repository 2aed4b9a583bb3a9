"""The state of the cluster as the log tells it, and the one door through which it changes.

    apply(state, event, seq)

is pure of clocks, dice and I/O, accepts every event in log order, and raises for none: two
processes at the same sequence hold the same state, byte for byte (`snapshot.encode` shows it).

Life of an allocation: reserved (`Decided`) → bound (`Bound`, or the pod is seen bound) → released
(`BindFailed`, the pod ended or is gone). A decision is checked once more here, against every fact
that landed before it: a placement that its node's books no longer cover is *void*: nothing is
reserved, the pod stays pending, the binder does not bind it. That arithmetic (`covers`) never
changes between releases, so that old logs fold to what they always meant.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from allotment.core.ledger import evictions as fold_evictions
from allotment.core.ledger import groups as fold_groups
from allotment.core.ledger import health, segments
from allotment.core.ledger.books import charge, forget_if_empty, node_of, release, sort_in
from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import (
    BOUND,
    NAMESPACES_MAX,
    RESERVED,
    Allocation,
    ClusterState,
    Node,
)
from allotment.core.ledger.pods import adopted, pod_corrected, pod_gone, pod_observed
from allotment.core.ledger.volumes import clashes, taken
from allotment_proto.events import (
    DEVICE_CONFIG,
    SCHEDULER_CONFIG,
    BindFailed,
    Bound,
    CheckpointPart,
    ConfigurationChecked,
    Corrected,
    Decided,
    DevicesConfigured,
    Event,
    Evicted,
    GroupGone,
    GroupObserved,
    LevelRaised,
    MixLearned,
    NodeGone,
    NodeObserved,
    Placement,
    PodGone,
    PodObserved,
    PolicyLoaded,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
    SegmentArchived,
    SegmentClosed,
    SegmentClosing,
    SegmentsDropped,
    TimePassed,
)
from allotment_proto.facts import Holding
from allotment_proto.registry import check_complete


def apply(state: ClusterState, event: Event, seq: int) -> None:
    """Let one event, stored at log sequence `seq`, take effect. The only mutator of the state."""
    state.seq = seq
    _HANDLERS[type(event)](state, event, seq)


def covers(node: Node, placement: Placement) -> bool:
    """Whether the node's books cover a placement's amounts: the safety arithmetic of the fold."""
    if (
        node.fact is None
        or placement.cpu_milli > max(node.cpu_milli_free, 0)
        or placement.memory_bytes > max(node.memory_bytes_free, 0)
        or node.pods_free < 1
    ):
        return False
    for name, amount in placement.extended:
        if amount > max(node.extended_free.get(name, 0), 0):
            return False
    holdings = placement.holdings
    if len(holdings) > 1 and len({(h.family, h.card) for h in holdings}) < len(holdings):
        return _covers_sums(node, holdings)
    for held in holdings:
        ledger = node.ledgers.get(held.family)
        card = None if ledger is None else ledger.by_id.get(held.card)
        if card is None or card.free_slots < 1 or card.free_cores_pct < held.cores_pct:
            return False
        if card.partitioner is None:
            if card.free_memory_mib < held.memory_mib:
                return False
        elif card.free_memory_mib < card.charged_mib(held) or not card.admits((held.instance,)):
            return False
    return True


def _covers_sums(node: Node, holdings: tuple[Holding, ...]) -> bool:
    """The same for containers that share cards: each card must cover the sum."""
    taken: dict[tuple[str, str], list[int]] = {}
    pieces: dict[tuple[str, str], list[str]] = {}
    for held in holdings:
        card = _card(node, held)
        if card is None:
            return False
        sums = taken.setdefault((held.family, held.card), [0, 0, 0])
        sums[0] += 1
        sums[1] += card.charged_mib(held)
        sums[2] += held.cores_pct
        instances = pieces.setdefault((held.family, held.card), [])
        instances.append(held.instance)
        if (
            card.free_slots < sums[0]
            or card.free_memory_mib < sums[1]
            or card.free_cores_pct < sums[2]
            or not card.admits(instances)
        ):
            return False
    return True


def _card(node: Node, held: Holding) -> Card | None:
    ledger = node.ledgers.get(held.family)
    return ledger.by_id.get(held.card) if ledger is not None else None


def allocation_of(
    placement: Placement, seq: int, tags: tuple[str, ...] = (), fact: PodObserved | None = None
) -> Allocation:
    """The reservation that a placement makes, for a pod with these tags."""
    return Allocation(
        placement.uid,
        placement.node,
        placement.holdings,
        placement.cpu_milli,
        placement.memory_bytes,
        placement.extended,
        phase=RESERVED,
        seq=seq,
        stamp_s=placement.stamp_s,
        tags=tags,
        fact=fact,
        volumes=placement.volumes,
    )


def _node_observed(state: ClusterState, event: NodeObserved, seq: int) -> None:
    node = node_of(state, event.name)
    if node.fact is not None and node.fact.uid == event.uid and node.fact.rv > event.rv:
        return
    if node.fact is not None and (
        node.fact.uid != event.uid or (node.fact.unschedulable and not event.unschedulable)
    ):
        health.forget(state, event.name)
    if node.fact is None:
        node.forgers = {u for u in state.forging if state.pods[u].forged_on == event.name}
    _rebuild(state, node, event)
    state.room_seq = state.nodes_seq = seq


def _node_gone(state: ClusterState, event: NodeGone, seq: int) -> None:
    node = state.nodes.get(event.name)
    if node is None or node.fact is None or node.fact.uid != event.uid:
        return
    health.forget(state, event.name)
    state.forged_at.pop(event.name, None)
    _rebuild(state, node, None)
    state.nodes_seq = seq
    # A place without nodes is none that others may be ahead of, and a word may now mean the models
    # of which it is a part.
    state.room_seq = seq
    forget_if_empty(state, node)


def _rebuild(state: ClusterState, node: Node, fact: NodeObserved | None) -> None:
    changed = node.rebuild(fact)
    state.touch(node)
    for allocation in changed:
        state.touch(node, allocation, -1)
        state.touch(node, allocation, 1)


def _policy_loaded(state: ClusterState, event: PolicyLoaded, seq: int) -> None:
    is_same = event.policy.device_policy == state.policy.device_policy
    mix = state.policy.mix if is_same else ()  # another policy learns another one
    state.policy = msgspec.structs.replace(event.policy, mix=mix)
    state.policy_seq = seq
    state.config_sources[SCHEDULER_CONFIG] = event.source
    state.room_seq = seq
    for pod in state.pods.values():
        sort_in(state, pod)


def _mix_learned(state: ClusterState, event: MixLearned, seq: int) -> None:
    if event.policy == state.policy.device_policy:
        state.policy = msgspec.structs.replace(state.policy, mix=event.mix)


def _devices_configured(state: ClusterState, event: DevicesConfigured, seq: int) -> None:
    state.devices, state.devices_seq = event.config, seq
    state.config_sources[DEVICE_CONFIG] = event.source


def _time_passed(state: ClusterState, event: TimePassed, seq: int) -> None:
    before_ms, state.time_ms = state.time_ms, max(state.time_ms, event.at_ms)
    fold_groups.promises_age(state)
    state.order_seq = seq
    fold_evictions.time_passed(state, before_ms, seq)
    health.time_passed(state, seq)
    for uid in event.unserved:
        health.not_served(state, uid, seq)


def _configuration_checked(state: ClusterState, event: ConfigurationChecked, seq: int) -> None:
    if event.problems or event.warnings:
        state.config_checks[event.kind] = (seq, event)
    else:
        state.config_checks.pop(event.kind, None)


def _decided(state: ClusterState, event: Decided, seq: int) -> None:
    state.decision_seq = seq
    minimum, surplus = fold_groups.wholes_of(state, event)
    broken: set[int] = set()
    all_stand = not event.dropped
    for placement in event.placements:
        uid = placement.uid
        number = minimum.get(uid, surplus.get(uid))
        if number in broken or not _reserve(state, placement, seq):
            all_stand = False
            _avoid(state, uid, seq)
            if uid in minimum and number is not None and number not in broken:
                broken.add(number)
                for other in event.placements:
                    if number in (minimum.get(other.uid), surplus.get(other.uid)):
                        _take_back(state, other.uid, seq)
    if state.turns is not None:
        _note_turns(state, event, seq)
    fold_groups.groups_decided(state, event, seq)
    fold_evictions.evictions_decided(state, event, seq)
    for dropped in event.dropped:
        if dropped.placement.uid in state.pending:
            _avoid(state, dropped.placement.uid, seq)
    for refusal in event.refusals:
        pod = state.pods.get(refusal.uid)
        if pod is not None and refusal.uid in state.pending:
            pod.refusal = refusal
            pod.refused_basis = event.basis
    if not all_stand:
        _try_again(state, event, seq)


def _try_again(state: ClusterState, event: Decided, seq: int) -> None:
    """Not all that a decision placed stands: who waits may have lacked what that was to take.

    The batch names them and not the refusals: those that repeat a pod's last one are left out.
    """
    for uid in event.batch:
        if uid in state.pending:
            _avoid(state, uid, seq)


def _note_turns(state: ClusterState, event: Decided, seq: int) -> None:
    """Namespaces whose pods were placed or whose groups were admitted used their turn."""
    placed = (
        pod.fact.namespace
        for placement in event.placements
        if (pod := state.pods.get(placement.uid)) is not None
        and pod.allocation is not None
        and pod.allocation.seq == seq
    )
    let_in = (
        admission.group.partition("/")[0]
        for admission in event.admissions
        if not admission.code and admission.group in state.groups
    )
    served = state.served
    for namespace in (*let_in, *placed):
        number = next(reversed(served.values()), 0) + 1
        served.pop(namespace, None)
        served[namespace] = number
    while len(served) > NAMESPACES_MAX:
        del served[next(iter(served))]


def _avoid(state: ClusterState, uid: str, seq: int) -> None:
    """Note that a pod, and its group, have to be retried: its placement did not stand, or one
    that it was refused behind."""
    pod = state.pods.get(uid)
    if pod is not None:
        state.voided[uid] = seq
        fold_groups.changed(state, pod.fact, seq)


def _reserve(state: ClusterState, placement: Placement, seq: int) -> bool:
    """Reserve what a placement says, if its pod waits and its node's books cover it."""
    pod, node = state.pods.get(placement.uid), state.nodes.get(placement.node)
    if (
        pod is None
        or placement.uid not in state.pending
        or node is None
        or not covers(node, placement)
        or (placement.volumes and clashes(placement.namespace, placement.volumes, taken(state)))
    ):
        return False
    charge(state, pod, allocation_of(placement, seq, pod.fact.tags, pod.fact))
    if placement.stamp_s > node.last_stamp_s:
        node.last_stamp_s = placement.stamp_s
    pod.refusal = None
    state.voided.pop(placement.uid, None)
    fold_groups.changed(state, pod.fact, seq)
    del state.pending[placement.uid]
    return True


def _take_back(state: ClusterState, uid: str, seq: int) -> None:
    """Undo what this very decision reserved for a pod whose group is not placed as a whole."""
    pod = state.pods.get(uid)
    if pod is not None and pod.allocation is not None and pod.allocation.seq == seq:
        release(state, pod, seq)
        state.voided[uid] = seq
        sort_in(state, pod)


def _bound(state: ClusterState, event: Bound, seq: int) -> None:
    pod = state.pods.get(event.uid)
    if pod is not None and pod.allocation is not None and pod.allocation.seq == event.decision:
        pod.allocation.phase = BOUND
        state.reserved.pop(event.uid, None)
        fold_groups.changed(state, pod.fact, seq)


def _bind_failed(state: ClusterState, event: BindFailed, seq: int) -> None:
    """Not bound as decided; a pod that is seen on a node nevertheless was bound by others."""
    pod = state.pods.get(event.uid)
    if pod is None or pod.allocation is None:
        return
    if pod.allocation.seq == event.decision and pod.allocation.phase == RESERVED:
        pod.bind_failures += 1
        release(state, pod, seq)
        state.corrected.pop(event.uid, None)
        if pod.fact.node:
            charge(state, pod, adopted(pod.fact))
        sort_in(state, pod)


def _of_segments(
    handle: Callable[[segments.Segments, Any, int], segments.Segments],
) -> Callable[[ClusterState, Any, int], None]:
    def apply_to(state: ClusterState, event: Event, seq: int) -> None:
        state.segments = handle(state.segments, event, seq)

    return apply_to


_HANDLERS: dict[type, Callable[[ClusterState, Any, int], None]] = {
    NodeObserved: _node_observed,
    NodeGone: _node_gone,
    PodObserved: pod_observed,
    PodGone: pod_gone,
    PolicyLoaded: _policy_loaded,
    MixLearned: _mix_learned,
    DevicesConfigured: _devices_configured,
    ConfigurationChecked: _configuration_checked,
    TimePassed: _time_passed,
    Decided: _decided,
    Bound: _bound,
    BindFailed: _bind_failed,
    GroupObserved: fold_groups.group_observed,
    GroupGone: fold_groups.group_gone,
    QueueObserved: fold_groups.queue_observed,
    QueueGone: fold_groups.queue_gone,
    PriorityClassObserved: fold_groups.class_observed,
    PriorityClassGone: fold_groups.class_gone,
    Evicted: fold_evictions.evicted,
    Corrected: pod_corrected,
    SegmentClosing: _of_segments(segments.closing),
    CheckpointPart: _of_segments(segments.part),
    SegmentClosed: _of_segments(segments.closed),
    SegmentArchived: _of_segments(segments.archived),
    SegmentsDropped: _of_segments(segments.dropped),
    LevelRaised: _of_segments(segments.raised),
}
check_complete(f"{__name__}._HANDLERS", _HANDLERS)


def apply_all(
    state: ClusterState, events: Iterable[Event], seq: int, *, is_decision: bool | None = None
) -> None:
    """All events of the record at `seq`, in order.

    `is_decision` says whether the record is on the decision subject: its place there is what the
    next decision must follow, whatever the record holds. None: go by the events.
    """
    for failed in apply_record(state, events, seq, is_decision=is_decision):
        raise failed.error


class FailedEvent(NamedTuple):
    """An event whose handler raised, which is a defect of this release."""

    event: Event
    error: Exception


def apply_record(
    state: ClusterState, events: Iterable[Event], seq: int, *, is_decision: bool | None = None
) -> tuple[FailedEvent, ...]:
    """As `apply_all`, for followers of a log: it does not raise for an event, but says which
    failed, and the others take effect.

    No handler is known to raise. Should one, every service would end at this record, at every
    start. What a handler did before it raised stays: that depends on the state and the event alone,
    so every fold of the log with this release holds the same state. Whether its books
    still balance is for the caller to check before anything is decided on them. What depends on the
    process and not on the log, memory and the depth of its stack, is raised.
    """
    before = state.decision_seq
    state.seq = seq
    failed: list[FailedEvent] = []
    for event in events:
        try:
            _HANDLERS[type(event)](state, event, seq)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            failed.append(FailedEvent(event, error))
    if is_decision is not None:
        state.decision_seq = seq if is_decision else before
    return tuple(failed)


def pass_over(state: ClusterState, seq: int, *, is_decision: bool) -> None:
    """A record that cannot be read changes nothing but where the log stands.

    Its place still counts: the next decision must be appended after it.
    """
    state.seq = seq
    if is_decision:
        state.decision_seq = seq
