"""The books of one node's cards: what each card has, who holds how much of it, what is free.

Double entry: what is free is kept up to date with every charge, and `check` recomputes it from the
holders alone. A card whose free amount is negative was oversold by another scheduler, or shrank
under its holders; it takes nothing new, because every rule is "free ≥ need" with a positive need.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from allotment.core.ledger.partitions import (
    UNCONFIRMED,
    UNPARTITIONED,
    Table,
    holding_rules,
    partitioner_of,
    share_mib,
)
from allotment_proto.facts import CardFact, DeviceRequest, Holding, Inventory

_EXCLUSIVE = "exclusive:"
_SHARING = frozenset(("", "hami-core"))
"""Modes in which exclusivity rules hold. Source: volcano `gpuexclusive.go` (deviceshare 4.8)."""

_HolderKey = tuple[str, int, str]
"""(pod uid, container index, instance): a container never gets the same piece of a card twice, but
others may give it several."""
_NOBODY: frozenset[_HolderKey] = frozenset()


class Card:
    """One card and its holders. Changed only through `Ledger.charge` and `Ledger.release`.

    `partitioner` says how it is handed out in pieces, None if by amounts alone; `state` is what can
    still be had then. `tags` counts the holders of each tag that others may keep apart from.
    `perhaps` are the holders that may be on another card instead.
    """

    __slots__ = (
        "fact",
        "family",
        "free_cores_pct",
        "free_memory_mib",
        "free_slots",
        "holders",
        "partitioner",
        "perhaps",
        "slot",
        "state",
        "table",
        "tags",
    )

    def __init__(self, fact: CardFact, family: str = "", table: Table = ()) -> None:
        self.fact = fact
        self.slot = 0
        """Its place among all cards of the node."""
        self.family = family
        self.table = table
        self.partitioner = partitioner_of(family, fact, table)
        self.free_slots = fact.slots
        self.free_memory_mib = fact.memory_mib
        self.free_cores_pct = fact.cores_pct
        self.holders: dict[_HolderKey, Holding] = {}
        self.perhaps: frozenset[_HolderKey] = _NOBODY
        self.state = UNPARTITIONED
        self.tags: dict[str, int] = {}

    @property
    def held(self) -> list[str]:
        """The pieces that are held."""
        return [holding.instance for holding in self.holders.values()]

    def charged_mib(self, holding: Holding) -> int:
        """The memory that a holder is charged: what it asked for, or that of its piece."""
        if self.partitioner is None:
            return holding.memory_mib
        return self.partitioner.charged_mib(self.table, holding.instance, holding.memory_mib)

    def admits(self, instances: Sequence[str]) -> bool:
        """Whether these pieces can be had next to those that are held."""
        return self.partitioner is None or self.partitioner.admits(
            self.fact, self.table, self.held, instances
        )

    def knows(self, holding: Holding) -> bool:
        """Whether this is a piece into which such a card can be partitioned, or a share of a card
        that is not: a node may change how its cards are shared.
        """
        if self.partitioner is not None:
            return self.partitioner.admits(self.fact, self.table, (), (holding.instance,))
        return holding_rules(self.family).is_share(holding.instance)

    @property
    def used_slots(self) -> int:
        return self.fact.slots - self.free_slots

    @property
    def used_memory_mib(self) -> int:
        return self.fact.memory_mib - self.free_memory_mib

    @property
    def used_cores_pct(self) -> int:
        return self.fact.cores_pct - self.free_cores_pct

    @property
    def oversold(self) -> bool:
        """Whether more is held than it has, without those of which it is unknown whether they hold
        anything of it."""
        free = self.free_slots, self.free_memory_mib, self.free_cores_pct
        if min(free) >= 0 or not self.perhaps:
            return min(free) < 0
        perhaps = [self.holders[key] for key in self.perhaps]
        back = (
            len(perhaps),
            sum(self.charged_mib(held) for held in perhaps),
            sum(held.cores_pct for held in perhaps),
        )
        return min(has + more for has, more in zip(free, back, strict=True)) < 0

    def copy(self) -> "Card":
        twin = Card.__new__(Card)
        twin.fact, twin.table, twin.partitioner = self.fact, self.table, self.partitioner
        twin.family, twin.slot = self.family, self.slot
        twin.state = self.state
        twin.tags = dict(self.tags)
        twin.free_slots = self.free_slots
        twin.free_memory_mib = self.free_memory_mib
        twin.free_cores_pct = self.free_cores_pct
        twin.holders = dict(self.holders)
        twin.perhaps = self.perhaps
        return twin


class Ledger:
    """The cards of one device family on one node, in index order.

    `blocked` is the reason code why none of them takes anything new, None if they do. A copy shares
    its cards with the original until one of them is booked on.
    """

    __slots__ = ("_shared", "blocked", "by_id", "cards", "family", "mode")

    def __init__(self, inventory: Inventory, blocked: str | None = None) -> None:
        self.family = inventory.family
        self.mode = inventory.mode
        self.blocked = blocked
        tables = inventory.tables
        self.cards = [
            Card(fact, self.family, tables[fact.table] if 0 <= fact.table < len(tables) else ())
            for fact in inventory.cards
        ]
        self.by_id = {card.fact.id: card for card in self.cards}
        self._shared: set[str] = set()

    def charge(
        self, uid: str, holding: Holding, tags: tuple[str, ...] = (), *, perhaps: bool = False
    ) -> None:
        """Book a holding. One on a card this node does not (or no longer) have is not booked.

        `perhaps`: it is unknown whether it is on this card, or on another one.
        """
        card = self.by_id.get(holding.card)
        key = (uid, holding.container, holding.instance)
        if card is None or key in card.holders:
            return
        if holding.card in self._shared:
            card = self._own(card)
        card.holders[key] = holding
        if perhaps:
            card.perhaps |= {key}
        card.free_slots -= 1
        card.free_cores_pct -= holding.cores_pct
        if card.partitioner is None:
            card.free_memory_mib -= holding.memory_mib
        else:
            card.free_memory_mib -= card.charged_mib(holding)
            card.state = card.partitioner.state(card.fact, card.table, card.held)
        if tags:
            for tag in self.counted(tags, holding):
                card.tags[tag] = card.tags.get(tag, 0) + 1

    def release(self, uid: str, holding: Holding, tags: tuple[str, ...] = ()) -> None:
        """Undo `charge` exactly; a holding that is not booked changes nothing."""
        card = self.by_id.get(holding.card)
        if card is None:
            return
        if holding.card in self._shared:
            card = self._own(card)
        key = (uid, holding.container, holding.instance)
        booked = card.holders.pop(key, None)
        if booked is None:
            return
        if card.perhaps:
            card.perhaps -= {key}
        card.free_slots += 1
        card.free_cores_pct += booked.cores_pct
        if card.partitioner is None:
            card.free_memory_mib += booked.memory_mib
        else:
            card.free_memory_mib += card.charged_mib(booked)
            card.state = card.partitioner.state(card.fact, card.table, card.held)
        if tags:
            for tag in self.counted(tags, booked):
                card.tags[tag] -= 1
                if not card.tags[tag]:
                    del card.tags[tag]

    def counted(self, tags: tuple[str, ...], holding: Holding) -> tuple[str, ...]:
        """Those of a pod's tags that count for a holding.

        Exclusivity is about shares of cards only, and a group does not mind a member that takes
        neither memory nor compute. Source: volcano `vgpu/utils.go` (deviceshare 4.2, 4.8).
        """
        takes = holding.memory_mib > 0 or holding.cores_pct > 0
        if not tags or (self.mode in _SHARING and takes):
            return tags
        return tuple(
            tag for tag in tags if (self.mode in _SHARING if tag.startswith(_EXCLUSIVE) else takes)
        )

    def copy(self) -> "Ledger":
        twin = Ledger.__new__(Ledger)
        twin.family, twin.mode, twin.blocked = self.family, self.mode, self.blocked
        twin.cards, twin.by_id = list(self.cards), dict(self.by_id)
        twin._shared = set(self.by_id)
        return twin

    def _own(self, card: Card) -> Card:
        """A copy of a shared card in its place."""
        twin = card.copy()
        self.cards[self.cards.index(card)] = self.by_id[card.fact.id] = twin
        self._shared.discard(card.fact.id)
        return twin


def sized(
    holdings: tuple[Holding, ...],
    shares_pct: tuple[tuple[int, int], ...],
    ledgers: Mapping[str, Ledger],
) -> tuple[Holding, ...]:
    """Claimed holdings with the memory that their containers ask for in percent of a card.

    One on a card that was never listed stays as it is claimed: it is not booked. Neither does a
    piece of a partitioned card change: it is charged what the piece has.
    """
    asked = dict(shares_pct)
    found = []
    for held in holdings:
        ledger, memory_pct = ledgers.get(held.family), asked.get(held.container)
        card = None if ledger is None else ledger.by_id.get(held.card)
        if card is not None and card.partitioner is None and memory_pct is not None:
            memory_mib = share_mib(card.fact.memory_mib, memory_pct)
            held = msgspec.structs.replace(held, memory_mib=memory_mib)
        found.append(held)
    return tuple(found)


def on_any_card(
    known: tuple[Holding, ...],
    requests: tuple[DeviceRequest, ...],
    ledgers: Mapping[str, Ledger],
) -> tuple[Holding, ...]:
    """What is known of a pod's devices, and for each request whose cards are unknown a
    share of every card that it can be on.

    A request has no card twice, so one share of each is the most that it can have of any, and also
    the least that keeps every card from being oversold; no card gives more than it has. An instance
    of a MIG card has one holder, and it is unknown which instance it is: that card gives nothing
    more.
    """
    found = list(known)
    named = {(held.family, held.container, held.card) for held in known}
    for request in requests:
        ledger, rules = ledgers.get(request.family), holding_rules(request.family)
        for card in () if ledger is None else ledger.cards:
            place = request.family, request.container, card.fact.id
            if request.chip not in ("", card.fact.model) or place in named:
                continue
            is_counted = card.partitioner is None or card.partitioner is rules.partitioner
            memory_mib = request.memory_mib
            if request.memory_pct:
                memory_mib = share_mib(card.fact.memory_mib, request.memory_pct)
            found.append(
                Holding(
                    *place,
                    min(memory_mib, card.fact.memory_mib),
                    min(request.cores_pct, card.fact.cores_pct),
                    rules.unknown(request) if is_counted else UNCONFIRMED,
                )
            )
    return tuple(found)


def check(ledger: Ledger, place: str) -> Iterator[str]:
    """Every way in which the books do not balance, recomputed from the holders; none is right."""
    for card in ledger.cards:
        held = card.holders.values()
        wanted = (
            card.fact.slots - len(card.holders),
            card.fact.memory_mib - sum(card.charged_mib(h) for h in held),
            card.fact.cores_pct - sum(h.cores_pct for h in held),
        )
        booked = (card.free_slots, card.free_memory_mib, card.free_cores_pct)
        if booked != wanted:
            yield (
                f"{place}/{card.fact.id}: free (slots, MiB, cores) is booked as {booked} "
                f"but the holders leave {wanted}"
            )
        if card.partitioner is not None:
            state = card.partitioner.state(card.fact, card.table, card.held)
            if card.state != state:
                booked_as = f"{state} but booked as {card.state}"
                yield f"{place}/{card.fact.id}: is partitioned as {booked_as}"
