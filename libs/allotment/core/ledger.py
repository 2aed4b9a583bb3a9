"""The books of one node's cards: what each card has, who holds how much of it, what is free.

Double entry: what is free is kept up to date with every charge, and `check` recomputes it from the
holders alone. A card whose free amount is negative was oversold by somebody else, or shrank under
its holders; it takes nothing new, because every rule is "free ≥ need" with a positive need.
"""

from collections.abc import Iterator

from allotment_proto.facts import CardFact, Holding, Inventory

HolderKey = tuple[str, int]
"""(pod uid, container index): a container never gets the same card twice."""


class Card:
    """One card and its holders. Changed only through `Ledger.charge` and `Ledger.release`."""

    __slots__ = ("fact", "free_cores_pct", "free_memory_mib", "free_slots", "holders")

    def __init__(self, fact: CardFact) -> None:
        self.fact = fact
        self.free_slots = fact.slots
        self.free_memory_mib = fact.memory_mib
        self.free_cores_pct = fact.cores_pct
        self.holders: dict[HolderKey, Holding] = {}

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
        return self.free_slots < 0 or self.free_memory_mib < 0 or self.free_cores_pct < 0

    def copy(self) -> "Card":
        twin = Card.__new__(Card)
        twin.fact = self.fact
        twin.free_slots = self.free_slots
        twin.free_memory_mib = self.free_memory_mib
        twin.free_cores_pct = self.free_cores_pct
        twin.holders = dict(self.holders)
        return twin


class Ledger:
    """The cards of one device family on one node, in index order.

    A copy shares its cards with the original until one of them is booked on.
    """

    __slots__ = ("_shared", "by_id", "cards", "family", "mode")

    def __init__(self, inventory: Inventory) -> None:
        self.family = inventory.family
        self.mode = inventory.mode
        self.cards = [Card(fact) for fact in inventory.cards]
        self.by_id = {card.fact.id: card for card in self.cards}
        self._shared: set[str] = set()

    def charge(self, uid: str, holding: Holding) -> None:
        """Book a holding. One on a card this node does not (or no longer) have is not booked."""
        card = self.by_id.get(holding.card)
        key = (uid, holding.container)
        if card is None or key in card.holders:
            return
        if holding.card in self._shared:
            card = self._own(card)
        card.holders[key] = holding
        card.free_slots -= 1
        card.free_memory_mib -= holding.memory_mib
        card.free_cores_pct -= holding.cores_pct

    def release(self, uid: str, holding: Holding) -> None:
        """Undo `charge` exactly; a holding that is not booked changes nothing."""
        card = self.by_id.get(holding.card)
        if card is None:
            return
        if holding.card in self._shared:
            card = self._own(card)
        booked = card.holders.pop((uid, holding.container), None)
        if booked is None:
            return
        card.free_slots += 1
        card.free_memory_mib += booked.memory_mib
        card.free_cores_pct += booked.cores_pct

    def copy(self) -> "Ledger":
        twin = Ledger.__new__(Ledger)
        twin.family, twin.mode = self.family, self.mode
        twin.cards, twin.by_id = list(self.cards), dict(self.by_id)
        twin._shared = set(self.by_id)
        return twin

    def _own(self, card: Card) -> Card:
        """A copy of a shared card in its place."""
        twin = card.copy()
        self.cards[self.cards.index(card)] = self.by_id[card.fact.id] = twin
        self._shared.discard(card.fact.id)
        return twin


def check(ledger: Ledger, place: str) -> Iterator[str]:
    """Every way in which the books do not balance, recomputed from the holders; none is right."""
    for card in ledger.cards:
        held = card.holders.values()
        wanted = (
            card.fact.slots - len(card.holders),
            card.fact.memory_mib - sum(h.memory_mib for h in held),
            card.fact.cores_pct - sum(h.cores_pct for h in held),
        )
        booked = (card.free_slots, card.free_memory_mib, card.free_cores_pct)
        if booked != wanted:
            yield (
                f"{place}/{card.fact.id}: free (slots, MiB, cores) is booked as {booked} "
                f"but the holders leave {wanted}"
            )
