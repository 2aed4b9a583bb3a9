"""The dumb twin of the fold: a list of shares, every question answered by looping over all of it.

No ledgers, no free amounts, no caches, and no rule shared with `allotment.core` but one: which
pieces a MindCluster chip gives, which Huawei's table of templates says. What it says about who
holds what must be what the fold says, at every sequence.
"""

from typing import NamedTuple

from msgspec import structs

from allotment.core.ledger.partitions.mindcluster import MINDCLUSTER
from allotment_proto.events import (
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Event,
    NodeGone,
    NodeObserved,
    Placement,
    PodGone,
    PodObserved,
    PolicyLoaded,
)
from allotment_proto.facts import (
    NO_TABLE,
    Amounts,
    CardFact,
    DeviceRequest,
    Holding,
    Inventory,
)
from tests.picture import Picture

CardKey = tuple[str, str, str]
"""(node, family, card)"""
UNCONFIRMED = "?"
"""Ends the name of a piece that Huawei's plugin did not report yet."""


class Share(NamedTuple):
    """What one pod holds, wherever. `decision` is 0 when others bound it."""

    uid: str
    node: str
    holdings: tuple[Holding, ...]
    cpu_milli: int
    memory_bytes: int
    extended: Amounts
    decision: int
    is_bound: bool


class Model:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeObserved] = {}
        self.pods: dict[str, PodObserved] = {}
        self.shares: list[Share] = []
        self.unread: set[str] = set()
        """Pods that others bound and that claim more than can be read."""
        self.names: tuple[str, ...] = ("allotment",)

    def observe(self, event: Event, seq: int) -> None:
        """Take one event of the log, like `apply`."""
        match event:
            case NodeObserved():
                known = self.nodes.get(event.name)
                if known is None or known.uid != event.uid or known.rv <= event.rv:
                    self.nodes[event.name] = event
            case NodeGone():
                known = self.nodes.get(event.name)
                if known is not None and known.uid == event.uid:
                    del self.nodes[event.name]
            case PodObserved():
                self._pod(event)
            case PodGone():
                self.pods.pop(event.uid, None)
                self._drop(event.uid)
            case PolicyLoaded():
                self.names = event.policy.scheduler_names
            case Decided():
                self._decide(event, seq)
            case Bound():
                share = self.share_of(event.uid)
                if share is not None and share.decision == event.decision:
                    self._drop(event.uid)
                    self.shares.append(share._replace(is_bound=True))
            case Corrected():
                share = self.share_of(event.uid)
                said = event.decision, event.node
                if share is not None and share.decision and said == (share.decision, share.node):
                    self._drop(event.uid)
                    self.shares.append(share._replace(holdings=event.holdings))
            case BindFailed():
                share = self.share_of(event.uid)
                if share is not None and not share.is_bound and share.decision == event.decision:
                    self._drop(event.uid)
                    seen = self.pods[event.uid]
                    if seen.node:
                        self._adopt(seen)
            case _:
                pass  # says how to choose or in which order, not who holds what
        self.shares = [self._sized(share) for share in self.shares]

    def share_of(self, uid: str) -> Share | None:
        return next((share for share in self.shares if share.uid == uid), None)

    def pending(self) -> set[str]:
        return {uid for uid in self.pods if self._is_waiting(uid)}

    def cards(self) -> dict[CardKey, CardFact]:
        return {
            (name, inventory.family, card.id): card
            for name, fact in self.nodes.items()
            for inventory in inventories(fact)
            for card in inventory.cards
        }

    def picture(self) -> Picture:
        """Who holds what and what is free, in the words of the fold's picture."""
        on = {name: [s for s in self.shares if s.node == name] for name in self.nodes}
        cards: dict[str, dict[str, tuple[int, int, int]]] = {name: {} for name in self.nodes}
        for key, card in self.cards().items():
            node, family, _ = key
            slots, memory_mib, cores_pct = self.used(key)
            free = card.slots - slots, card.memory_mib - memory_mib, card.cores_pct - cores_pct
            cards[node][f"{family}/{card.id}"] = free
        return Picture(
            holders={
                s.uid: (s.node, s.holdings, s.cpu_milli, s.memory_bytes, s.extended)
                for s in self.shares
            },
            cards=cards,
            hosts={
                name: (
                    fact.cpu_milli - sum(s.cpu_milli for s in on[name]),
                    fact.memory_bytes - sum(s.memory_bytes for s in on[name]),
                    fact.pods - len(on[name]),
                )
                for name, fact in self.nodes.items()
            },
            extended={
                name: {
                    resource: has - sum(dict(s.extended).get(resource, 0) for s in on[name])
                    for resource, has in fact.extended
                }
                for name, fact in self.nodes.items()
            },
        )

    def pieces(self, key: CardKey) -> dict[str, tuple[str, int]]:
        """Every MIG instance of a card: its geometry, and the MiB that its holder is charged."""
        node, family, _ = key
        card = self.cards()[key]
        tables = next(i.tables for i in inventories(self.nodes[node]) if i.family == family)
        if not 0 <= card.table < len(tables):
            return {}
        found: dict[str, tuple[str, int]] = {}
        seen: set[str] = set()
        for geometry in tables[card.table]:
            if geometry.name in seen:
                continue
            seen.add(geometry.name)
            sizes = [p.memory_mib for p in geometry.profiles for _ in range(p.count)]
            for position, memory_mib in enumerate(sizes):
                found[f"{geometry.name}-{position}"] = geometry.name, memory_mib
        return found

    def used(self, key: CardKey) -> tuple[int, int, int]:
        """Slots, MiB and cores that are held of a card."""
        pieces = self.pieces(key)
        held = self._held(key)
        return (
            len(held),
            sum(pieces.get(h.instance, ("", h.memory_mib))[1] for h in held),
            sum(h.cores_pct for h in held),
        )

    def excess(self) -> dict[CardKey, tuple[int, int, int]]:
        """Cards that owe more than they have → by how much (slots, MiB, cores)."""
        found: dict[CardKey, tuple[int, int, int]] = {}
        for key, card in self.cards().items():
            slots, memory_mib, cores_pct = self.used(key)
            over = (slots - card.slots, memory_mib - card.memory_mib, cores_pct - card.cores_pct)
            if max(over) > 0:
                found[key] = over
        return found

    def _held(self, key: CardKey) -> list[Holding]:
        """What is held of a card. A container that names one piece of it twice holds it once."""
        node, family, card = key
        found: dict[tuple[str, int, str], Holding] = {}
        for share in self.shares:
            for held in share.holdings:
                if share.node == node and (held.family, held.card) == (family, card):
                    found.setdefault((share.uid, held.container, held.instance), held)
        return list(found.values())

    def _decide(self, event: Decided, seq: int) -> None:
        """Placements of a whole take effect together or not at all, and what is given to the same
        group beyond its whole does not without it.
        """
        whole_of = {uid: number for number, whole in enumerate(event.wholes) for uid in whole}
        pods = [self.pods[p.uid] for p in event.placements if p.uid in self.pods]
        whole_of_group = {p.group: whole_of[p.uid] for p in pods if p.group and p.uid in whole_of}
        for pod in pods:
            if pod.uid not in whole_of and pod.group in whole_of_group:
                whole_of[pod.uid] = whole_of_group[pod.group]
        needed = {uid for whole in event.wholes for uid in whole}
        broken: set[int] = set()
        for placement in event.placements:
            number = whole_of.get(placement.uid)
            if number in broken:
                continue
            if self._is_waiting(placement.uid) and self._covers(placement):
                self._place(placement, seq)
            elif number is not None and placement.uid in needed:
                broken.add(number)
                for share in list(self.shares):
                    if share.decision == seq and whole_of.get(share.uid) == number:
                        self._drop(share.uid)

    def _pod(self, event: PodObserved) -> None:
        known = self.pods.get(event.uid)
        if known is not None and known.rv > event.rv:
            return
        self.pods[event.uid] = event
        if event.phase in ("Succeeded", "Failed"):
            self._drop(event.uid)
        elif event.node:
            share = self.share_of(event.uid)
            if share is None or share.node != event.node:
                self._adopt(event)
            elif share.decision:
                is_as_decided = event.broken is None and _same(
                    share.holdings, event.annotated or event.holdings
                )
                self._hold(share._replace(is_bound=share.is_bound or is_as_decided), event)
            elif event.uid in self.unread:
                self._adopt(event)
            elif not share.holdings:
                # Seen with nothing, it cannot have been served by what became unreadable since.
                if event.broken is None:
                    self._adopt(event)
                else:
                    self._hold(share, event)
            else:
                confirmed = _confirmed(share.holdings, event.holdings)
                self._hold(share._replace(holdings=confirmed), event)

    def _hold(self, share: Share, event: PodObserved) -> None:
        """The pod keeps its cards; of its host it takes what it asks for now."""
        self._drop(event.uid)
        wanted = event.request
        self.shares.append(
            share._replace(
                cpu_milli=wanted.cpu_milli,
                memory_bytes=wanted.memory_bytes,
                extended=wanted.extended,
            )
        )

    def _adopt(self, event: PodObserved) -> None:
        """Others bound the pod: it holds what it claims."""
        self._drop(event.uid)
        wanted = event.request
        if event.broken is not None:
            self.unread.add(event.uid)
        self.shares.append(
            Share(
                event.uid,
                event.node,
                event.holdings,
                wanted.cpu_milli,
                wanted.memory_bytes,
                wanted.extended,
                0,
                True,
            )
        )

    def _sized(self, share: Share) -> Share:
        """With the percentage of each card that is not cut for which the pod's limits ask."""
        percent = dict(self.pods[share.uid].shares_pct)
        if share.uid in self.unread:
            share = share._replace(holdings=self._anywhere(share))
        if share.decision or not percent:
            return share
        cards, sized = self.cards(), []
        for held in share.holdings:
            card = cards.get((share.node, held.family, held.card))
            whole = card is not None and card.table == -1 and held.family != "mindcluster"
            if card is not None and whole and held.container in percent:
                memory_mib = card.memory_mib * percent[held.container] // 100
                held = structs.replace(held, memory_mib=memory_mib)
            sized.append(held)
        return share._replace(holdings=tuple(sized))

    def closes_node(self, uid: str) -> bool:
        """Whether nobody can read which cards the pod holds, nor how much of them it can hold."""
        return uid in self.unread and not self.pods[uid].unplaced

    def _anywhere(self, share: Share) -> tuple[Holding, ...]:
        """What can be read, and of each request that cannot a share of every card that will do."""
        pod = self.pods[share.uid]
        found = list(pod.holdings)
        for wanted in pod.unplaced:
            for (node, family, id_), card in self.cards().items():
                place = (family, wanted.container, id_)
                is_named = any((h.family, h.container, h.card) == place for h in pod.holdings)
                if (node, family) != (share.node, wanted.family) or is_named:
                    continue
                if wanted.chip and wanted.chip != card.model:
                    continue
                memory_mib = wanted.memory_mib
                if wanted.memory_pct:
                    memory_mib = card.memory_mib * wanted.memory_pct // 100
                found.append(
                    Holding(
                        *place,
                        min(memory_mib, card.memory_mib),
                        min(wanted.cores_pct, card.cores_pct),
                        _unknown_piece(card, wanted),
                    )
                )
        return tuple(found)

    def _drop(self, uid: str) -> None:
        self.unread.discard(uid)
        self.shares = [share for share in self.shares if share.uid != uid]

    def _is_waiting(self, uid: str) -> bool:
        pod = self.pods.get(uid)
        return (
            pod is not None
            and self.share_of(uid) is None
            and not pod.node
            and pod.phase == "Pending"
            and not pod.deleting
            and not pod.gated
            and pod.scheduler in self.names
        )

    def _covers(self, placement: Placement) -> bool:
        fact = self.nodes.get(placement.node)
        if fact is None:
            return False
        here = [share for share in self.shares if share.node == placement.node]
        if len(here) + 1 > fact.pods:
            return False
        for wanted, taken, has in (
            (placement.cpu_milli, sum(s.cpu_milli for s in here), fact.cpu_milli),
            (placement.memory_bytes, sum(s.memory_bytes for s in here), fact.memory_bytes),
        ):
            if wanted and taken + wanted > has:
                return False
        for name, amount in placement.extended:
            taken = sum(n for share in here for other, n in share.extended if other == name)
            if amount and taken + amount > dict(fact.extended).get(name, 0):
                return False
        cards = self.cards()
        for held in placement.holdings:
            key = (placement.node, held.family, held.card)
            if key not in cards:
                return False
            both = [h for h in placement.holdings if (h.family, h.card) == (held.family, held.card)]
            slots, memory_mib, cores_pct = self.used(key)
            pieces = self.pieces(key)
            charged = [pieces.get(h.instance, ("", h.memory_mib))[1] for h in both]
            if (
                slots + len(both) > cards[key].slots
                or not self._gives(key, [h.instance for h in both])
                or memory_mib + sum(charged) > cards[key].memory_mib
                or cores_pct + sum(h.cores_pct for h in both) > cards[key].cores_pct
            ):
                return False
        return True

    def _gives(self, key: CardKey, wanted: list[str]) -> bool:
        """Whether these instances are nobody's, and of the one geometry that the card is cut by."""
        card, pieces = self.cards()[key], self.pieces(key)
        held = [holding.instance for holding in self._held(key)]
        if card.table == NO_TABLE:
            return False
        if key[1] == "mindcluster":
            return MINDCLUSTER.admits(card, (), held, wanted)
        if not pieces:
            return True
        geometries = {pieces.get(name, ("", 0))[0] for name in (*held, *wanted)}
        is_new = len(set(wanted)) == len(wanted) and not set(wanted) & set(held)
        return is_new and len(geometries) == 1 and "" not in geometries

    def _place(self, placement: Placement, seq: int) -> None:
        self.shares.append(
            Share(
                placement.uid,
                placement.node,
                placement.holdings,
                placement.cpu_milli,
                placement.memory_bytes,
                placement.extended,
                seq,
                False,
            )
        )


def _unknown_piece(card: CardFact, wanted: DeviceRequest) -> str:
    """What the books say of a piece that nobody can tell: of MIG instances, of several templates
    and of closed cards nothing that can be counted."""
    if card.table != -1:
        return UNCONFIRMED
    first = wanted.templates[0] if wanted.templates else ""
    if wanted.family == "ascend":
        return f"{wanted.chip}/{first}"
    if wanted.family == "mindcluster":
        return UNCONFIRMED if len(wanted.templates) > 1 else first
    return ""


def inventories(fact: NodeObserved) -> list[Inventory]:
    """One of each family: the last."""
    return list({inventory.family: inventory for inventory in fact.inventories}.values())


def _same(ours: tuple[Holding, ...], seen: tuple[Holding, ...]) -> bool:
    """The same cards; an index annotation does not say how much memory, and a piece may not be
    confirmed on one side."""
    if len(ours) != len(seen):
        return False
    left = [_plain(held) for held in seen]
    for held in map(_plain, ours):
        for other in left:
            without = Holding(
                held.family, held.container, held.card, 0, held.cores_pct, held.instance
            )
            if other in (held, without):
                left.remove(other)
                break
        else:
            return False
    return True


def _confirmed(ours: tuple[Holding, ...], seen: tuple[Holding, ...]) -> tuple[Holding, ...]:
    """Ours; a piece that is seen without the mark of the unconfirmed loses it."""
    names = {(h.family, h.container, h.card, h.instance) for h in seen}
    return tuple(
        plain if (plain.family, plain.container, plain.card, plain.instance) in names else held
        for held in ours
        for plain in (_plain(held),)
    )


def _plain(held: Holding) -> Holding:
    return structs.replace(held, instance=held.instance.removesuffix(UNCONFIRMED))
