"""The dumb twin of the fold: a list of shares, every question answered by looping over all of it.

No ledgers, no free amounts, no caches, and not a line shared with `allotment.core`. What it says
about who holds what must be what the fold says, at every sequence.
"""

from typing import NamedTuple

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
from allotment_proto.facts import NO_TABLE, Amounts, CardFact, Holding

CardKey = tuple[str, str, str]
"""(node, family, card)"""


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
                for placement in event.placements:
                    if self._is_waiting(placement.uid) and self._covers(placement):
                        self._place(placement, seq)
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

    def share_of(self, uid: str) -> Share | None:
        return next((share for share in self.shares if share.uid == uid), None)

    def pending(self) -> set[str]:
        return {uid for uid in self.pods if self._is_waiting(uid)}

    def cards(self) -> dict[CardKey, CardFact]:
        return {
            (name, inventory.family, card.id): card
            for name, fact in self.nodes.items()
            for inventory in fact.inventories
            for card in inventory.cards
        }

    def pieces(self, key: CardKey) -> dict[str, tuple[str, int]]:
        """Every MIG instance of a card: its geometry, and the MiB that its holder is charged."""
        node, family, _ = key
        card = self.cards()[key]
        tables = next(i.tables for i in self.nodes[node].inventories if i.family == family)
        if not 0 <= card.table < len(tables):
            return {}
        found: dict[str, tuple[str, int]] = {}
        for geometry in tables[card.table]:
            sizes = [p.memory_mib for p in geometry.profiles for _ in range(p.count)]
            for position, memory_mib in enumerate(sizes):
                found[f"{geometry.name}-{position}"] = geometry.name, memory_mib
        return found

    def used(self, key: CardKey) -> tuple[int, int, int]:
        """Slots, MiB and cores that are held of a card."""
        node, family, card = key
        seen: set[tuple[str, int, str]] = set()
        pieces = self.pieces(key)
        slots = memory_mib = cores_pct = 0
        for share in self.shares:
            for held in share.holdings:
                if share.node != node or (held.family, held.card) != (family, card):
                    continue
                if (share.uid, held.container, held.instance) in seen:
                    continue
                seen.add((share.uid, held.container, held.instance))
                slots += 1
                memory_mib += pieces.get(held.instance, ("", held.memory_mib))[1]
                cores_pct += held.cores_pct
        return slots, memory_mib, cores_pct

    def excess(self) -> dict[CardKey, tuple[int, int, int]]:
        """Cards that owe more than they have → by how much (slots, MiB, cores)."""
        found: dict[CardKey, tuple[int, int, int]] = {}
        for key, card in self.cards().items():
            slots, memory_mib, cores_pct = self.used(key)
            over = (slots - card.slots, memory_mib - card.memory_mib, cores_pct - card.cores_pct)
            if max(over) > 0:
                found[key] = over
        return found

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
                if (
                    _same(share.holdings, event.annotated or event.holdings)
                    and event.broken is None
                ):
                    self._drop(event.uid)
                    self.shares.append(share._replace(is_bound=True))
            elif not share.holdings or event.uid in self.unread:
                self._adopt(event)

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
        node, family, card = key
        pieces = self.pieces(key)
        if not pieces:
            return self.cards()[key].table != NO_TABLE
        held = [
            holding.instance
            for share in self.shares
            for holding in share.holdings
            if (share.node, holding.family, holding.card) == (node, family, card)
        ]
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


def _same(ours: tuple[Holding, ...], seen: tuple[Holding, ...]) -> bool:
    """The same cards; an index annotation does not say how much memory."""
    if len(ours) != len(seen):
        return False
    left = list(seen)
    for held in ours:
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
