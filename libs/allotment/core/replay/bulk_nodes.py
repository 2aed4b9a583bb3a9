"""What is free of cards and hosts while `bulk` rebuilds the books; it changes them in place."""

from collections.abc import Sequence

import msgspec

from allotment.core.ledger.partitions import UNCONFIRMED, WHOLE, Partitioner, holding_rules
from allotment.core.replay.bulk_events import NodeObserved
from allotment_proto.facts import NO_TABLE, CardFact, Geometry, Holding

Sizes = dict[str, tuple[str, int]]
NO_SIZES: Sizes = {}
NO_SIZE = ("", 0)


class Card:
    """What is free of one card, and what of that its node lists; nothing while it does not.

    `sizes` has the geometry and the memory of every MIG instance that can be cut from it, by name;
    `pieces` are the holdings booked on it that name one, `shares` is how many name none. A closed
    card gives nothing. `chip` is set for cards whose pieces are known by name alone, which is the
    one rule that is not made anew here.
    """

    __slots__ = (
        "chip",
        "cores_pct",
        "is_closed",
        "is_listed",
        "listed",
        "memory_mib",
        "pieces",
        "shares",
        "sizes",
        "slots",
    )

    def __init__(self) -> None:
        self.slots = self.memory_mib = self.cores_pct = 0
        self.listed = (0, 0, 0)
        self.is_listed = self.is_closed = False
        self.sizes: Sizes = {}
        self.pieces: list[Holding] = []
        self.shares = 0
        self.chip: tuple[Partitioner, CardFact] | None = None

    def list(self, slots: int, memory_mib: int, cores_pct: int, sizes: Sizes) -> None:
        """Take over a new capacity; what is booked stays booked."""
        before = self.listed
        self.slots += slots - before[0]
        self.memory_mib += memory_mib - before[1]
        self.cores_pct += cores_pct - before[2]
        self.listed = (slots, memory_mib, cores_pct)
        if sizes is not self.sizes:
            self.memory_mib += sum(map(self.charged_mib, self.pieces))
            self.sizes = sizes
            self.memory_mib -= sum(map(self.charged_mib, self.pieces))

    def charged_mib(self, holding: Holding) -> int:
        """The memory of its MIG instance, or what was asked for."""
        size = self.sizes.get(holding.instance)
        return holding.memory_mib if size is None else size[1]

    def has_free(self, holding: Holding) -> bool:
        """Whether its instance, if cards are cut, is nobody's and of the geometry in use."""
        if self.chip is not None:
            names = [piece.instance for piece in self.pieces] + [WHOLE] * self.shares
            partitioner, fact = self.chip
            return partitioner.admits(fact, (), names, (holding.instance,))
        if self.is_closed or not self.sizes:
            return not self.is_closed
        size = self.sizes.get(holding.instance)
        return (
            size is not None
            and not self.shares
            and all(
                piece.instance != holding.instance
                and self.sizes.get(piece.instance, NO_SIZE)[0] == size[0]
                for piece in self.pieces
            )
        )

    def book(self, holding: Holding, sign: int) -> None:
        """Charge (1) or give back (−1) a holding."""
        self.slots -= sign
        self.cores_pct -= sign * holding.cores_pct
        if not holding.instance:
            self.memory_mib -= sign * holding.memory_mib
            self.shares += sign
            return
        self.memory_mib -= sign * self.charged_mib(holding)
        if sign > 0:
            self.pieces.append(holding)
        else:
            self.pieces.remove(holding)


class Node:
    """What is free of one node. `fact` is the last one seen, None while it is not there."""

    __slots__ = ("cards", "cpu_milli", "extended", "fact", "memory_bytes", "pods")

    def __init__(self) -> None:
        self.fact: NodeObserved | None = None
        self.cpu_milli = self.memory_bytes = self.pods = 0
        self.extended: dict[str, int] = {}
        """Free, also of resources that are booked and not listed."""
        self.cards: dict[str, dict[str, Card]] = {}
        """Family → id → card."""

    def card(self, holding: Holding) -> Card:
        """The card of a holding, made without a capacity if it was never heard of."""
        cards = self.cards.setdefault(holding.family, {})
        card = cards.get(holding.card)
        if card is None:
            card = cards[holding.card] = Card()
        return card

    def become(self, fact: NodeObserved | None) -> None:
        """Take over what the node lists now."""
        before, now = self.fact or NOTHING, fact or NOTHING
        self.fact = fact
        self.cpu_milli += now.cpu_milli - before.cpu_milli
        self.memory_bytes += now.memory_bytes - before.memory_bytes
        self.pods += now.pods - before.pods
        for name, amount in dict(before.extended).items():
            self.extended[name] -= amount
        for name, amount in dict(now.extended).items():
            self.extended[name] = self.extended.get(name, 0) + amount
        for cards in self.cards.values():
            for card in cards.values():
                card.is_listed = False
        for inventory in {i.family: i for i in now.inventories}.values():
            cards = self.cards.setdefault(inventory.family, {})
            tables = [_sizes(table) for table in inventory.tables]
            for listed in inventory.cards:
                card = cards.setdefault(listed.id, Card())
                known = 0 <= listed.table < len(tables)
                sizes = tables[listed.table] if known else NO_SIZES
                card.list(listed.slots, listed.memory_mib, listed.cores_pct, sizes)
                card.is_listed, card.is_closed = True, listed.table == NO_TABLE
                found = None if card.is_closed else holding_rules(inventory.family).partitioner
                of_kind = CardFact(*msgspec.structs.astuple(listed))
                card.chip = None if found is None else (found, of_kind)
        for cards in self.cards.values():
            for card in cards.values():
                if not card.is_listed:
                    card.list(0, 0, 0, NO_SIZES)


NOTHING = NodeObserved("", "", 0)
NOWHERE = Node()


def _sizes(table: tuple[Geometry, ...]) -> Sizes:
    """Geometry and memory of every instance of a table; of geometries of one name the first."""
    sizes: Sizes = {}
    seen: set[str] = set()
    for geometry in table:
        if geometry.name in seen:
            continue
        seen.add(geometry.name)
        position = 0
        for profile in geometry.profiles:
            for _ in range(profile.count):
                sizes[f"{geometry.name}-{position}"] = geometry.name, profile.memory_mib
                position += 1
    return sizes


def cover_together(holdings: tuple[Holding, ...], cards: Sequence[Card]) -> bool:
    """Whether cards that cover each of these holdings cover them all."""
    if len(set(cards)) == len(cards):
        return True
    sums: dict[Card, list[int]] = {}
    for holding, card in zip(holdings, cards, strict=True):
        taken = sums.setdefault(card, [0, 0, 0])
        taken[0] += 1
        taken[1] += card.charged_mib(holding)
        taken[2] += holding.cores_pct
        if card.slots < taken[0] or card.memory_mib < taken[1] or card.cores_pct < taken[2]:
            return False
    pieces = [(card, h.instance) for h, card in zip(holdings, cards, strict=True) if card.sizes]
    geometries = {(card, card.sizes.get(instance, NO_SIZE)[0]) for card, instance in pieces}
    return len(set(pieces)) == len(pieces) and len(geometries) == len({c for c, _ in pieces})


def once(holdings: tuple[Holding, ...], cards: Sequence[Card]) -> Sequence[Card]:
    """A container's repeated holding of one piece is not booked: it goes to a card of no node."""
    if len(set(cards)) == len(cards):
        return cards
    seen: set[tuple[str, int, str, str]] = set()
    booked = []
    for holding, card in zip(holdings, cards, strict=True):
        booked.append(Card() if _key(holding) in seen else card)
        seen.add(_key(holding))
    return booked


def same_cards(ours: tuple[Holding, ...], seen: tuple[Holding, ...]) -> bool:
    """Equal cards; amounts may be missing in what was seen (index annotations carry none), and the
    mark of a piece that is not confirmed.
    """
    if len(ours) != len(seen):
        return False
    return all(
        _piece(a) == _piece(b) and a.cores_pct == b.cores_pct and b.memory_mib in (0, a.memory_mib)
        for a, b in zip(sorted(ours, key=_piece), sorted(seen, key=_piece), strict=True)
    )


def with_confirmed(ours: tuple[Holding, ...], seen: tuple[Holding, ...]) -> tuple[Holding, ...]:
    """Ours, without the mark on pieces that are seen without it."""
    plain = {_key(holding) for holding in seen}
    out = []
    for held in ours:
        piece = _piece(held)
        is_plain = piece != _key(held) and piece in plain
        instance = piece[3] if is_plain else held.instance
        out.append(msgspec.structs.replace(held, instance=instance))
    return tuple(out)


def _key(holding: Holding) -> tuple[str, int, str, str]:
    return holding.family, holding.container, holding.card, holding.instance


def _piece(holding: Holding) -> tuple[str, int, str, str]:
    instance = holding.instance.removesuffix(UNCONFIRMED)
    return holding.family, holding.container, holding.card, instance
