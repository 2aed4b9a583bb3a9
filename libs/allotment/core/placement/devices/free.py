"""What a card has left while a pod is being placed, and what one unit of a request needs of it."""

from collections.abc import Callable, Sequence

from allotment.core.ledger.ledger import Card
from allotment.core.ledger.partitions import Piece, Table, share_mib
from allotment.core.ledger.partitions.mig import largest_mib
from allotment_proto.facts import DeviceRequest


class Free:
    """A card's free amounts while one pod is being placed; the ledger does not change."""

    __slots__ = ("card", "cores_pct", "held", "memory_mib", "slots", "state")

    def __init__(self, card: Card) -> None:
        self.card = card
        self.slots = card.free_slots
        self.memory_mib = card.free_memory_mib
        self.cores_pct = card.free_cores_pct
        self.state = card.state
        self.held: list[str] | None = None
        """The pieces held once something was taken; None: those of the card."""

    def piece(self, wanted: DeviceRequest, order: str) -> Piece | None:
        """The piece that the card would allocate; if it is not partitioned, the amounts
        requested.
        """
        card = self.card
        if card.partitioner is None:
            memory_mib = need_memory_mib(wanted, card.fact.memory_mib)
            return Piece((), memory_mib, wanted.cores_pct, self.state)
        return card.partitioner.piece(card.fact, card.table, self.state, wanted, order)

    def charge(self, piece: Piece) -> None:
        """Take a piece's amounts."""
        self.slots -= 1
        self.memory_mib -= piece.memory_mib
        self.cores_pct -= piece.cores_pct
        self.state = piece.after

    def copy(self) -> "Free":
        twin = Free(self.card)
        twin.slots, twin.memory_mib, twin.cores_pct = self.slots, self.memory_mib, self.cores_pct
        twin.state, twin.held = self.state, None if self.held is None else list(self.held)
        return twin

    def take(self, wanted: DeviceRequest, piece: Piece) -> str:
        """Charge a piece that `piece` offered; returns its `Holding.instance`."""
        self.charge(piece)
        card = self.card
        if card.partitioner is None:
            return share_name(wanted)
        if self.held is None:
            self.held = card.held
        name = card.partitioner.name(card.table, piece, self.held)
        self.held.append(name)
        return name

    @property
    def idle(self) -> bool:
        return self.slots == self.card.fact.slots

    @property
    def used_memory_mib(self) -> int:
        return self.card.fact.memory_mib - self.memory_mib

    @property
    def used_slots(self) -> int:
        return self.card.fact.slots - self.slots


CardOrder = Callable[[Sequence[Free], DeviceRequest], Sequence[Free]]
"""Sorts a node's cards (given by index) for one device request, the first to try first."""


def share_name(wanted: DeviceRequest) -> str:
    """The `Holding.instance` of a share of a card that is not partitioned."""
    if not wanted.chip:
        return ""
    return f"{wanted.chip}/{wanted.templates[0] if wanted.templates else ''}"


def need_memory_mib(request: DeviceRequest, capacity_mib: int, table: Table = ()) -> int:
    """The memory in MiB that one card must have free: the amount, or the percentage of this card,
    floored.

    Of a card that is partitioned by geometries, the largest instance counts as all of it.
    """
    if request.memory_pct:
        wanted_mib = share_mib(capacity_mib, request.memory_pct)
        return min(wanted_mib, largest_mib(table)) if table else wanted_mib
    return request.memory_mib


def in_order(cards: Sequence[Free], word: str) -> list[Free]:
    """The cards (given by index) in the order that `word` names; equals stay by index."""
    match word:
        case "fullest":
            return sorted(cards, key=lambda free: -free.used_memory_mib)
        case "emptiest":
            return sorted(cards, key=lambda free: free.used_slots)
        case "last":
            return list(reversed(cards))
        case _:
            return list(cards)


def need_cores_pct(request: DeviceRequest, capacity_pct: int) -> int:
    """The compute in percent that one card must have free. A request for none still needs a card
    that is not used up, unless the card has no compute to count.
    """
    return max(request.cores_pct, 1 if capacity_pct else 0)
