"""Cards that are handed out in pieces: where what is free is more than three amounts.

A *cutter* knows one way to cut cards. All it needs to know of a card is its fact, its geometries
and which pieces are held; what follows from that is the card's *state*, a tuple of integers that is
equal for cards from which the same can still be had. The columns give every state a kind of its
own, so that cut cards are compared by the same thresholds as all others.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from allotment.core.ledger.partitions.closed import CLOSED
from allotment.core.ledger.partitions.mig import MIG
from allotment.core.ledger.partitions.mindcluster import MINDCLUSTER
from allotment.core.ledger.partitions.types import UNCUT, Piece, State
from allotment_proto.facts import NO_TABLE, CardFact, DeviceRequest, Geometry

__all__ = ["CUTTERS", "UNCUT", "Cutter", "Piece", "State", "Table", "cutter_of"]

Table = tuple[Geometry, ...]


class Cutter(Protocol):
    """One way to cut cards. Stateless and total: whatever is asked, it answers."""

    def state(self, card: CardFact, table: Table, held: Sequence[str]) -> State:
        """What follows from the pieces that are held (`Holding.instance`), in any order."""

    def states(self, card: CardFact, table: Table) -> Iterable[State]:
        """Every state that a card can come to by handing out pieces, at least the first one."""

    def piece(
        self, card: CardFact, table: Table, state: State, wanted: DeviceRequest, order: str
    ) -> Piece | None:
        """What a card in this state would hand out; None if nothing that will do is left.

        `order` is `Policy.mig_order`.
        """

    def most(self, card: CardFact, table: Table, state: State, wanted: DeviceRequest) -> int:
        """How often such a request can be served at most from here on, whatever else is cut."""

    def name(self, table: Table, piece: Piece, held: Sequence[str]) -> str:
        """The `Holding.instance` of the piece, next to those that are held."""

    def charged_mib(self, table: Table, instance: str, wanted_mib: int) -> int:
        """The memory that a holder of this piece is charged."""

    def admits(self, card: CardFact, table: Table, held: Sequence[str], new: Sequence[str]) -> bool:
        """Whether all new pieces can be had next to those that are held."""


CUTTERS: dict[str, Cutter] = {"mindcluster": MINDCLUSTER}
"""Cutters of families whose cards are all cut."""


def cutter_of(family: str, card: CardFact, table: Table) -> Cutter | None:
    """How a card is cut; None for one that is shared by amounts alone."""
    if card.table == NO_TABLE:
        return CLOSED
    return MIG if table else CUTTERS.get(family)
