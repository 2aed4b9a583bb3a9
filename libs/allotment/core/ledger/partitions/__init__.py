"""Cards that are handed out in pieces: where what is free is more than three amounts.

A *cutter* knows one way to cut cards. All it needs to know of a card is its fact, its geometries
and which pieces are held; what follows from that is the card's *state*, a tuple of integers that is
equal for cards from which the same can still be had. The columns give every state a kind of its
own, so that cut cards are compared by the same thresholds as all others.

`holdings` says of each device family what the books must know of it.
"""

from allotment.core.ledger.partitions.base import (
    CLOSED,
    UNCONFIRMED,
    UNCUT,
    WHOLE,
    Cutter,
    Piece,
    State,
    Table,
)
from allotment.core.ledger.partitions.holdings import holding_rules
from allotment.core.ledger.partitions.mig import MIG
from allotment_proto.facts import NO_TABLE, CardFact

__all__ = [
    "UNCONFIRMED",
    "UNCUT",
    "WHOLE",
    "Cutter",
    "Piece",
    "State",
    "Table",
    "cutter_of",
    "holding_rules",
]


def cutter_of(family: str, card: CardFact, table: Table) -> Cutter | None:
    """How a card is cut; None for one that is shared by amounts alone."""
    if card.table == NO_TABLE:
        return CLOSED
    return MIG if table else holding_rules(family).cutter
