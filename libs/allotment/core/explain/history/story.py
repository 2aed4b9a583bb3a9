"""Each event of the log in one line of text."""

from collections.abc import Callable, Collection
from typing import Any

from allotment.core.explain.history.concerned import gaining
from allotment.core.explain.rows.pod_views import asks_text
from allotment.core.explain.rows.views import plain
from allotment.core.ledger.claims import claim_text, difference
from allotment.core.ledger.model import ENDED, SINGLE, ClusterState
from allotment.core.placement.devices import FAMILIES
from allotment.core.reasons import problem_text, refusal_text
from allotment.core.units import rfc3339
from allotment_proto import subjects
from allotment_proto.events import (
    BindFailed,
    Bound,
    CheckpointPart,
    ConfigurationChecked,
    Corrected,
    Decided,
    DevicesConfigured,
    Event,
    Evicted,
    Eviction,
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

_PARTS_SHOWN = 3


class Claims:
    """Remembers what was booked for each pod, and says where its annotations claim another thing.

    `note` every event, in log order.
    """

    def __init__(self) -> None:
        self._booked: dict[str, tuple[str, int, tuple[Holding, ...]]] = {}
        """By uid: the node, the decision (0 if others bound the pod), the cards."""

    def begin(self, state: ClusterState) -> None:
        """Begin with the record after a state's."""
        for uid, pod in state.pods.items():
            if (held := pod.allocation) is not None:
                self._booked[uid] = held.node, held.seq, held.holdings

    def note(self, event: Event, seq: int) -> str:
        """What is to be added to the event's line; empty if nothing is."""
        match event:
            case Decided():
                for placement in event.placements:
                    self._booked[placement.uid] = placement.node, seq, placement.holdings
            case PodGone() | BindFailed():
                self._booked.pop(event.uid, None)
            case Corrected():
                self._booked[event.uid] = event.node, event.decision, event.holdings
            case PodObserved() if event.node and event.phase not in ENDED:
                node, decision, booked = self._booked.get(event.uid, ("", 0, ()))
                if node != event.node or not (decision or booked):
                    decision, booked = 0, event.holdings
                    self._booked[event.uid] = event.node, decision, booked
                found = difference(decision, booked, event) if event.broken is None else None
                return "" if found is None else f"; {problem_text(found)}"
            case _:
                pass
        return ""


def line(event: Event, only: Collection[str] | None = None) -> str:
    """One event in one line. With `only`, a decision shows its parts about these pods (by uid) and
    groups alone.
    """
    return _decided_line(event, only) if isinstance(event, Decided) else _LINES[type(event)](event)


def of_no_event(topic: str, by: str) -> tuple[str, str]:
    """What a record without events is and says, by its subject in the log: a binder writes one on
    each of its subjects where it begins and after it closed a segment, so that what another one
    has under way is refused.
    """
    what = {
        subjects.DECISION: "decides",
        subjects.OUTCOME: "binds",
        subjects.SEGMENT: "closes segments",
    }.get(topic)
    if not what:
        return "Empty", "it holds no event"
    return "Fence", f"{by} {what}; what another binder had under way is refused"


def corrected_text(event: Corrected, *, is_named: bool = True) -> str:
    """What a pod holds instead of what was decided, or that this is unknown. `is_named`: include
    the name of the pod whose record was used, which the owner of this pod need not know.
    """
    said = event.message if is_named else "its device plugin served it with another pod's record"
    if not event.served:
        return f"{said}; the books still say {claim_text(event.was)}"
    return f"{said}; it holds {claim_text(event.holdings)}, not {claim_text(event.was)}"


def _devices_line(event: DevicesConfigured) -> str:
    config = event.config
    words = [word for family in FAMILIES.values() for word in family.configured(config)]
    if config.nodes:
        words.append(f"{len(config.nodes)} nodes of their own")
    return f"devices from {event.source}: {', '.join(words)}"


def _checked_line(event: ConfigurationChecked) -> str:
    subject = f"{event.kind} configuration from {event.source}"
    found = event.problems or event.warnings
    if not found:
        return f"{subject}: active as written"
    first, more = found[0], len(found) - 1
    others = f" (and {more} more)" if more else ""
    verdict = "refused" if event.problems else "active, with warnings"
    return f"{subject} {verdict}: {problem_text(first)}{others}"


def _node_line(event: NodeObserved) -> str:
    cards = [card for inventory in event.inventories for card in inventory.cards]
    words = ["ready" if event.ready else "not ready"]
    if event.unschedulable:
        words.append("cordoned")
    if cards:
        words.append(f"{len(cards)} cards ({', '.join(sorted({c.model for c in cards}))})")
    broken = sum(not card.healthy for card in cards)
    if broken:
        words.append(f"{broken} unhealthy")
    words += [f"{name}: {amount}" for name, amount in event.extended if name.endswith("/gpu")]
    words += [problem_text(problem) for problem in event.problems]
    return f"node {event.name}: {', '.join(words)}"


def _pod_line(event: PodObserved) -> str:
    words = [event.phase + (f" on {event.node}" if event.node else "")]
    if event.deleting:
        words.append("being deleted")
    if event.gated:
        words.append("gated")
    if event.problem is not None:
        words.append(problem_text(event.problem))
    elif event.phase not in ENDED and not event.node:
        asks = asks_text(event.request.devices, event.request.extended)
        words.append(f"asks {asks}" if asks else "asks for no device")
    if event.bind_phase:
        words.append(f"device plugin: {event.bind_phase}")
    words += _ending_words(event)
    return f"pod {event.namespace}/{event.name}: {', '.join(words)}"


def _ending_words(event: PodObserved) -> list[str]:
    ending = event.ending
    words = [event.reason] if event.reason else []
    if ending is None:
        return words
    if ending.container:
        why = f" ({ending.exit_reason})" if ending.exit_reason else ""
        words.append(f"container {ending.container} exited with {ending.exit_code}{why}")
    if ending.message:
        words.append(ending.message)
    if ending.disruption:
        words.append(f"{ending.disruption}: {ending.disruption_message}")
    return words


def _decided_line(event: Decided, only: Collection[str] | None) -> str:
    def shows(*who: str) -> bool:
        return only is None or any(one in only for one in who)

    parts = [_placed_text(p) for p in event.placements if shows(p.uid)]
    parts += [
        f"{d.placement.namespace}/{d.placement.name} dropped from {d.placement.node}: {d.code}"
        for d in event.dropped
        if shows(d.placement.uid)
    ]
    parts += [
        f"{r.namespace}/{r.name} waits: {refusal_text(r).removesuffix('.')}"
        for r in event.refusals
        if shows(r.uid)
    ]
    parts += [
        f"evicts {e.namespace}/{e.name} from {e.node} to {e.action} for {_for_whom(event, e)}"
        for e in event.evictions
        if shows(e.uid, e.preemptor)
    ]
    parts += [
        f"{n.namespace}/{n.name} nominated for {n.node}" for n in event.nominations if shows(n.uid)
    ]
    parts += [f"group {s.group} short: {s.code}" for s in event.shorts if shows(s.group)]
    parts += [
        f"group {a.group} held: {a.code}" if a.code else f"group {a.group} admitted"
        for a in event.admissions
        if shows(a.group)
    ]
    shown = parts if only is not None else parts[:_PARTS_SHOWN]
    more = f"; {len(parts) - len(shown)} more" if len(parts) > len(shown) else ""
    said = "; ".join(shown) or "all wait as before"
    return f"decided {event.cycle} on {event.basis}: {said}{more}"


def _for_whom(event: Decided, eviction: Eviction) -> str:
    """The pod or group that gets the room of an evicted pod, by its name."""
    if not eviction.preemptor.startswith(SINGLE):
        return eviction.preemptor
    named = (f"pod {n.namespace}/{n.name}" for n in gaining(event, eviction))
    return next(named, eviction.preemptor)


def _placed_text(placement: Placement) -> str:
    cards = ", ".join(h.card for h in placement.holdings)
    cards = cards or ", ".join(f"{name}: {n}" for name, n in plain(placement.extended).items())
    where = f"{placement.node} ({cards})" if cards else placement.node
    return f"{placement.namespace}/{placement.name} → {where}"


def _group_line(event: GroupObserved) -> str:
    return (
        f"group {event.namespace}/{event.name}: {event.phase or 'new'} in queue "
        f"{event.queue}, at least {event.min_member}"
    )


def _evicted_line(event: Evicted) -> str:
    who = f"pod {event.namespace}/{event.name}"
    to = f" to {event.action} for {event.for_whom}" if event.for_whom else ""
    by = f"decision {event.decision}"
    if event.code:
        why = f"{event.code}: {event.message}"
        return f"{who} not evicted from {event.node}{to} ({by}): {why}"
    return f"{who} evicted from {event.node}{to} ({by})"


def _policy_line(event: PolicyLoaded) -> str:
    policy = event.policy
    return (
        f"policy from {event.source}: cards {policy.device_policy} × "
        f"{policy.device_weight}, fit × {policy.fit_weight}, "
        f"hosts {policy.host_policy} × {policy.host_weight}"
    )


def _mix_line(event: MixLearned) -> str:
    shapes = f"{len(event.mix)} typical shapes learned from {event.pods} pods"
    return f"mix for {event.policy}: {shapes}"


def _bind_failed_line(event: BindFailed) -> str:
    return (
        f"pod {event.namespace}/{event.name} not bound to {event.node}: "
        f"{event.code}: {event.message}"
    )


def _corrected_line(event: Corrected) -> str:
    said = corrected_text(event)
    return f"pod {event.namespace}/{event.name} on {event.node} corrected: {said}"


_CLOSED_FOR = {"size": "it is large enough", "age": "it is old enough", "asked": "as asked"}


def _closing_line(event: SegmentClosing) -> str:
    return f"segment {event.number} ends with this record: {_CLOSED_FOR[event.cause]}"


def _closed_line(event: SegmentClosed) -> str:
    records = event.last_seq - event.first_seq + 1
    return (
        f"segment {event.number} is closed: records {event.first_seq} to {event.last_seq} "
        f"({records}), checkpoint of {event.image_bytes} bytes"
    )


_LINES: dict[type, Callable[[Any], str]] = {
    NodeObserved: _node_line,
    NodeGone: lambda event: f"node {event.name} is gone",
    PodObserved: _pod_line,
    PodGone: lambda event: f"pod {event.namespace}/{event.name} is gone",
    GroupObserved: _group_line,
    GroupGone: lambda event: f"group {event.namespace}/{event.name} is gone",
    QueueObserved: lambda event: f"queue {event.name}: {event.state}, weight {event.weight}",
    QueueGone: lambda event: f"queue {event.name} is gone",
    PriorityClassObserved: lambda event: f"priority class {event.name}: {event.value}",
    PriorityClassGone: lambda event: f"priority class {event.name} is gone",
    PolicyLoaded: _policy_line,
    MixLearned: _mix_line,
    DevicesConfigured: _devices_line,
    ConfigurationChecked: _checked_line,
    TimePassed: lambda event: f"it is {rfc3339(event.at_ms)}",
    Decided: lambda event: _decided_line(event, None),
    Bound: lambda event: f"pod {event.namespace}/{event.name} bound to {event.node} as decided",
    BindFailed: _bind_failed_line,
    Evicted: _evicted_line,
    Corrected: _corrected_line,
    SegmentClosing: _closing_line,
    CheckpointPart: lambda event: f"part {event.index + 1} of the checkpoint at {event.closing}",
    SegmentClosed: _closed_line,
    SegmentArchived: lambda event: (
        f"segment {event.number} is archived: {event.uri} ({event.size_bytes} bytes)"
    ),
    SegmentsDropped: lambda event: (
        f"the records up to {event.last_seq} leave the stream; they are archived"
    ),
    LevelRaised: lambda event: f"records may be of level {event.level} from here on",
}
check_complete(f"{__name__}._LINES", _LINES)
