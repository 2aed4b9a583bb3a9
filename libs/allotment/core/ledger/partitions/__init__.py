"""Cards that are handed out in pieces: where what is free is more than three amounts.

A *partitioner* knows one way to partition cards. All it needs to know of a card is its fact, its
geometries and which pieces are held; what follows from that is the card's *state*, a tuple of
integers that is equal for cards from which the same can still be had. The columns give every state
a kind of its own, so that partitioned cards are compared by the same thresholds as all others.

`holdings` says of each device family what the books must know of it.

A partitioned card has a state. A MIG card is partitioned by one geometry at a time and an
instance has one holder; a 310P chip by templates. A *partitioner* (`core/ledger/partitions/`)
knows one way: what still can be had from a card follows from the pieces that are held, is a
small tuple of integers (the card's *state*), and is never stored. A holding names its piece
(`group2-1`), so the log says exactly who has what, and the fold refuses what is given twice. An
empty MIG card gets the geometry that would strand least if pods like this one came for the rest
of the card (`allotment.MigGeometryOrder: listed` keeps Volcano's first that fits).
"""

from allotment.core.ledger.partitions.base import (
    CLOSED,
    UNCONFIRMED,
    UNPARTITIONED,
    WHOLE,
    Partitioner,
    Piece,
    State,
    Table,
    share_mib,
)
from allotment.core.ledger.partitions.holdings import holding_rules
from allotment.core.ledger.partitions.mig import MIG
from allotment_proto.facts import NO_TABLE, CardFact

__all__ = [
    "UNCONFIRMED",
    "UNPARTITIONED",
    "WHOLE",
    "Partitioner",
    "Piece",
    "State",
    "Table",
    "holding_rules",
    "partitioner_of",
    "share_mib",
]


def partitioner_of(family: str, card: CardFact, table: Table) -> Partitioner | None:
    """How a card is partitioned; None for one that is shared by amounts alone."""
    if card.table == NO_TABLE:
        return CLOSED
    return MIG if table else holding_rules(family).partitioner
