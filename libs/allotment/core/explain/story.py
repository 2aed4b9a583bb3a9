"""The log filtered into one object's story, and each event in one line of text.

A pod, a node and a card are spoken of by events of several kinds: `Subject.takes` knows which, and
remembers what it must (which uids carried the pod's name, who held the card). Feed it every event
in log order.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from allotment.core.explain.pod_views import asks_text
from allotment.core.explain.views import plain
from allotment.core.ledger.claims import claim_text, difference
from allotment.core.ledger.model import ENDED
from allotment.core.placement.devices import FAMILIES
from allotment.core.reasons import problem_text, refusal_text
from allotment.core.units import rfc3339
from allotment_proto.events import (
    BindFailed,
    Bound,
    ConfigurationChecked,
    Corrected,
    Decided,
    DevicesConfigured,
    Event,
    Evicted,
    GroupGone,
    GroupObserved,
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
    TimePassed,
)
from allotment_proto.facts import Holding
from allotment_proto.registry import check_complete

PARTS_SHOWN = 3


class Everything:
    """No filter: the whole log."""

    uids: Collection[str] | None = None

    def takes(self, event: Event) -> bool:
        return True


class PodSubject:
    """Every event about pods of one name; `uids` are those that carried it, the latest last."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self._uids: dict[str, None] = {}

    @property
    def uids(self) -> Collection[str] | None:
        return self._uids

    def takes(self, event: Event) -> bool:
        if isinstance(event, PodObserved) and self._named(event.namespace, event.name):
            self._uids.setdefault(event.uid)
        return not self._uids.keys().isdisjoint(uids_of(event))

    def _named(self, namespace: str, name: str) -> bool:
        return (namespace, name) == (self.namespace, self.name)


class NodeSubject:
    """Every event about one node and about the pods while they are on it, or on one card of it.

    `card` is an index or an id. A pod belongs to the story from the decision or observation that
    puts it there until it ended or is gone.
    """

    def __init__(self, node: str, card: str | None = None) -> None:
        self.node = node
        self._card = card
        self._ids: set[str] = set()
        self._uids: dict[str, None] = {}

    @property
    def uids(self) -> Collection[str] | None:
        return self._uids

    def takes(self, event: Event) -> bool:
        match event:
            case NodeObserved():
                return event.name == self.node and self._observed(event)
            case NodeGone():
                return event.name == self.node
            case Decided():
                here = [p.uid for p in event.placements if self._here(p.node, p.holdings)]
                self._uids.update(dict.fromkeys(here))
                return bool(here)
            case PodObserved():
                if self._here(event.node, event.holdings):
                    self._uids.setdefault(event.uid)
                return event.uid in self._uids
            case Corrected():
                if self._here(event.node, (*event.holdings, *event.was)):
                    self._uids.setdefault(event.uid)
                return event.uid in self._uids
            case PodGone() | Bound() | BindFailed() | Evicted():
                return event.uid in self._uids
            case _:
                return False

    def _observed(self, event: NodeObserved) -> bool:
        """A card's story has its node's observations only where the card itself is seen."""
        if self._card is None:
            return True
        found = {
            card.id
            for inventory in event.inventories
            for card in inventory.cards
            if self._card in (card.id, str(card.index))
        }
        self._ids |= found
        return bool(found)

    def _here(self, node: str, holdings: Iterable[Holding]) -> bool:
        return node == self.node and (
            self._card is None or any(h.card in self._ids for h in holdings)
        )


Subject = Everything | PodSubject | NodeSubject


class Claims:
    """Remembers what was booked for each pod, and says where its annotations claim another thing.

    `note` every event, in log order.
    """

    def __init__(self) -> None:
        self._booked: dict[str, tuple[str, int, tuple[Holding, ...]]] = {}
        """By uid: the node, the decision (0 if others bound the pod), the cards."""

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


def uids_of(event: Event) -> list[str]:
    """The pods that an event says something about."""
    match event:
        case PodObserved() | PodGone() | Bound() | BindFailed() | Evicted() | Corrected():
            return [event.uid]
        case Decided():
            return list(event.batch)
        case _:
            return []


def line(event: Event, only: Collection[str] | None = None) -> str:
    """One event in one line. With `only`, a decision shows its parts about these uids alone."""
    return _decided_line(event, only) if isinstance(event, Decided) else _LINES[type(event)](event)


def corrected_text(event: Corrected) -> str:
    """What a pod holds in place of what was decided, or that nobody knows."""
    if not event.served:
        return f"{event.message}; the books still say {claim_text(event.was)}"
    return f"{event.message}; it holds {claim_text(event.holdings)}, not {claim_text(event.was)}"


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
        return f"{subject}: in force as written"
    first, more = found[0], len(found) - 1
    others = f" (and {more} more)" if more else ""
    verdict = "refused" if event.problems else "in force, with warnings"
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
    return f"pod {event.namespace}/{event.name}: {', '.join(words)}"


def _decided_line(event: Decided, only: Collection[str] | None) -> str:
    parts = [placed_text(p) for p in event.placements if only is None or p.uid in only]
    parts += [
        f"{d.placement.namespace}/{d.placement.name} dropped from {d.placement.node}: {d.code}"
        for d in event.dropped
        if only is None or d.placement.uid in only
    ]
    parts += [
        f"{r.namespace}/{r.name} refused: {refusal_text(r).removesuffix('.')}"
        for r in event.refusals
        if only is None or r.uid in only
    ]
    parts += [f"evicts {e.namespace}/{e.name} to {e.action}" for e in event.evictions]
    parts += [
        f"{n.namespace}/{n.name} nominated for {n.node}"
        for n in event.nominations
        if only is None or n.uid in only
    ]
    if only is None:
        parts += [f"group {s.group} short: {s.code}" for s in event.shorts]
        parts += [
            f"group {a.group} held: {a.code}" if a.code else f"group {a.group} admitted"
            for a in event.admissions
        ]
    shown = parts if only is not None else parts[:PARTS_SHOWN]
    more = f"; {len(parts) - len(shown)} more" if len(parts) > len(shown) else ""
    said = "; ".join(shown) or "refused as before"
    return f"decided {event.cycle} on {event.basis}: {said}{more}"


def placed_text(placement: Placement) -> str:
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
    ending = f"not evicted: {event.code}: {event.message}" if event.code else "evicted"
    return f"pod {event.namespace}/{event.name} {ending} from {event.node}"


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
}
check_complete(f"{__name__}._LINES", _LINES)
