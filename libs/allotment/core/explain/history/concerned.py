"""Whom the log's events concern: pods by uid, groups and nodes.

`concerned` answers for one event. A `Subject` selects the events of one object's story from the
whole log, and `around` names the objects whose records a pod's story needs besides its own.
`StretchIndex` finds these records, so that a story in a long log is as fast as in a short one.
"""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from allotment.core.explain.rows.pod_views import generated_base
from allotment.core.ledger.model import ENDED, SINGLE
from allotment_proto.events import (
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Event,
    Evicted,
    Eviction,
    GroupGone,
    GroupObserved,
    NodeGone,
    NodeObserved,
    Nomination,
    PodGone,
    PodObserved,
)
from allotment_proto.facts import Holding

POD, GROUP, NODE, LOST = "pod", "group", "node", "lost"
"""Kinds of objects. Only the removal of a node concerns it as ``lost``."""

Thing = tuple[str, str]
"""A kind, and a pod's uid, a group's ``<namespace>/<name>`` or a node's name."""


def concerned(event: Event) -> Collection[Thing]:
    """Whom an event concerns; some may come more than once."""
    match event:
        case PodObserved() | PodGone() | Bound() | BindFailed() | Evicted() | Corrected():
            return ((POD, event.uid),)
        case NodeObserved():
            return ((NODE, event.name),)
        case NodeGone():
            return (NODE, event.name), (LOST, event.name)
        case GroupObserved() | GroupGone():
            return ((GROUP, f"{event.namespace}/{event.name}"),)
        case Decided():
            return (
                *[(POD, uid) for uid in event.batch],
                *[(POD, placement.uid) for placement in event.placements],
                *[(POD, refusal.uid) for refusal in event.refusals],
                *[(POD, eviction.uid) for eviction in event.evictions],
                *map(preemptor, event.evictions),
                *[(POD, nomination.uid) for nomination in event.nominations],
                *[(GROUP, short.group) for short in event.shorts],
                *[(GROUP, admission.group) for admission in event.admissions],
                *[(NODE, placement.node) for placement in event.placements],
            )
        case _:
            return ()


def preemptor(eviction: Eviction) -> Thing:
    """The pod or group for which a pod is evicted."""
    uid = eviction.preemptor.removeprefix(SINGLE)
    return (GROUP, uid) if uid == eviction.preemptor else (POD, uid)


def gaining(event: Decided, eviction: Eviction) -> Iterator[Nomination]:
    """The pods that gain by an eviction of this decision."""
    return (n for n in event.nominations if n.preemptor == eviction.preemptor)


def key_of(thing: Thing) -> str:
    """A thing as one text."""
    return " ".join(thing)


def family_of(fact: PodObserved) -> str:
    """What the pods of one owner have in common that take each other's place: the owner and the
    beginning of their generated names; no pod has this name. Empty for a pod without such a name.
    """
    base = generated_base(fact.name)
    return f"{fact.owner}//{base}" if fact.owner and base else ""


class Everything:
    """No filter: the whole log."""

    only: Collection[str] | None = None

    def takes(self, event: Event) -> bool:
        return True


class PodSubject:
    """Every event of the story of the pods of one name.

    These are the events about the pods themselves; while a pod exists, decisions and observations
    about its group, and the loss and return of its node; the pods that are evicted for it; and if
    it is evicted itself, the places of the pods that it was evicted for.
    """

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self._uids: set[str] = set()
        self._groups: dict[str, str] = {}
        """By uid of an existing pod, its group; without a group, the name that stands for it."""
        self._nodes: dict[str, str] = {}
        self._own: dict[str, Collection[str]] = {
            POD: self._uids,
            GROUP: self._groups.values(),
            LOST: self._nodes.values(),
            NODE: (),
        }
        self._victims: set[str] = set()
        """The pods that were evicted for the pod."""
        self._gains: set[str] = set()
        """The pods that gain by its own eviction."""
        self._lost: set[str] = set()
        """Removed nodes of the pod."""

    @property
    def only(self) -> Collection[str] | None:
        """The pods and groups whose parts of a decision belong to the story."""
        return self._uids.union(self._victims, self._gains, self._groups.values())

    @property
    def things(self) -> set[Thing]:
        """Whose records the story needs, as far as it is known."""
        own = {(kind, name) for kind, names in self._own.items() for name in names}
        return own.union((POD, uid) for uid in self._victims | self._gains)

    def takes(self, event: Event) -> bool:
        match event:
            case PodObserved() if (event.namespace, event.name) == (self.namespace, self.name):
                self._uids.add(event.uid)
                self._groups[event.uid] = event.group or SINGLE + event.uid
                if event.node:
                    self._nodes[event.uid] = event.node
                if event.phase in ENDED:
                    self._forget(event.uid)
            case PodGone():
                self._forget(event.uid)
            case Evicted() if event.uid in self._victims:
                return True
            case NodeGone() if event.name in self._nodes.values():
                self._lost.add(event.name)
            case NodeObserved() if event.name in self._lost:
                self._lost.remove(event.name)
                return event.name in self._nodes.values()
            case Decided():
                if self._decided(event):
                    return True
            case _:
                pass
        return any(name in self._own[kind] for kind, name in concerned(event))

    def _forget(self, uid: str) -> None:
        self._groups.pop(uid, None)
        self._nodes.pop(uid, None)

    def _decided(self, event: Decided) -> bool:
        """Note what a decision means for the pod; whether it places one of the other pods."""
        for placement in event.placements:
            if placement.uid in self._groups:
                self._nodes[placement.uid] = placement.node
        others = self._victims | self._gains
        is_theirs = any(placement.uid in others for placement in event.placements)
        for eviction in event.evictions:
            kind, name = preemptor(eviction)
            if eviction.uid in self._uids:
                self._gains.update(nomination.uid for nomination in gaining(event, eviction))
            elif name in self._own[kind]:
                self._victims.add(eviction.uid)
        return is_theirs


def around(namespace: str, name: str, events: Iterable[Event]) -> frozenset[Thing]:
    """Whose records the story of the pods of a name needs, by the events about these pods: theirs,
    and those of their groups, of removed nodes, of pods evicted for them, and of pods that gain.
    """
    subject = PodSubject(namespace, name)
    return frozenset().union(*(subject.things for event in events if subject.takes(event)))


class GroupSubject:
    """Every event about one PodGroup, its pods, and the pods that are evicted for it."""

    def __init__(self, namespace: str, name: str) -> None:
        self.key = f"{namespace}/{name}"
        self._things = {(GROUP, self.key)}
        self._victims: set[str] = set()

    @property
    def only(self) -> Collection[str] | None:
        """The group, and the pods whose parts of a decision belong to its story."""
        return {name for _, name in self._things}

    def takes(self, event: Event) -> bool:
        match event:
            case PodObserved() if event.group == self.key:
                self._things.add((POD, event.uid))
            case Evicted() if event.uid in self._victims:
                return True
            case Decided():
                self._victims |= {e.uid for e in event.evictions if e.preemptor == self.key}
                if any(held.group == self.key for held in event.holds or ()):
                    return True
            case _:
                pass
        return not self._things.isdisjoint(concerned(event))


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
    def only(self) -> Collection[str] | None:
        """The pods whose parts of a decision belong to the story."""
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
            case PodObserved() if self._here(event.node, event.holdings):
                self._uids.setdefault(event.uid)
            case Corrected() if self._here(event.node, (*event.holdings, *event.was)):
                self._uids.setdefault(event.uid)
            case _:
                pass
        return any(kind == POD and uid in self._uids for kind, uid in concerned(event))

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


Subject = Everything | PodSubject | GroupSubject | NodeSubject


def place_of(node: str) -> str:
    """How `StretchIndex.uids` names the pods that were on a node."""
    return f"//{node}"


def members_of(group: str) -> str:
    """How `StretchIndex.uids` names the pods of a group, ``<namespace>/<name>``."""
    return f"//{group}"


class StretchIndex(msgspec.Struct, array_like=True):
    """Whom the records of a stretch of the log concern. Give it every event of it in order."""

    about: dict[str, list[int]] = {}
    """By `key_of` a thing, the sequences of its records."""
    uids: dict[str, dict[str, None]] = {}
    """The pods by ``<namespace>/<name>``, and by `family_of`, `place_of` and `members_of` them,
    names with two slashes in a row; the oldest first.
    """

    def note(self, event: Event, seq: int) -> None:
        """Note an event of the record at that sequence."""
        for thing in concerned(event):
            self._about(thing, seq)
        match event:
            case PodObserved():
                self._named(f"{event.namespace}/{event.name}", event.uid)
                self._named(family_of(event), event.uid)
                self._named(event.group and members_of(event.group), event.uid)
                self._named(event.node and place_of(event.node), event.uid)
            case Corrected():
                self._named(place_of(event.node), event.uid)
            case Decided():
                for placement in event.placements:
                    self._named(place_of(placement.node), placement.uid)
                for held in event.holds or ():
                    self._about((GROUP, held.group), seq)
            case _:
                pass

    def _about(self, thing: Thing, seq: int) -> None:
        seqs = self.about.setdefault(key_of(thing), [])
        if not seqs or seqs[-1] != seq:
            seqs.append(seq)

    def _named(self, name: str, uid: str) -> None:
        if name:
            self.uids.setdefault(name, {})[uid] = None

    def add(self, later: "StretchIndex") -> None:
        """Add what was noted of the events after these."""
        for key, seqs in later.about.items():
            self.about.setdefault(key, []).extend(seqs)
        for name, uids in later.uids.items():
            self.uids.setdefault(name, {}).update(uids)
