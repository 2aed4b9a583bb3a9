"""The terms for partitioned cards, the `Partitioner` protocol, and `CLOSED`."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from allotment_proto.facts import CardFact, DeviceRequest, Geometry

Table = tuple[Geometry, ...]
"""The geometries by which a card can be partitioned."""
State = tuple[int, ...]
"""What can still be had from a card."""
UNPARTITIONED: State = ()
"""The state of a card of which no piece is held, and of all cards that are never partitioned."""
WHOLE = ""
"""The piece that is all of a card."""
UNCONFIRMED = "?"
"""Ends the name of a piece that another scheduler gave and the device plugin did not report yet:
until it does, its card gives nothing more.
"""


def share_mib(capacity_mib: int, memory_pct: int) -> int:
    """The memory that a percentage of a card comes to."""
    return capacity_mib * memory_pct // 100


class Piece(NamedTuple):
    """What a card would hand out. `kind` is the partitioner's own, for naming it."""

    kind: tuple[int, ...]
    memory_mib: int
    """What is charged."""
    cores_pct: int
    after: State
    """The card's state then."""
    rank: int = 0
    """Of the cards whose pieces will do, that with the highest rank is taken first."""
    is_second_best: bool = False
    """It will do, but something better was asked for."""


class Partitioner(Protocol):
    """One way to partition cards. Stateless and total: whatever is asked, it answers."""

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
        """How often such a request can be served at most, whatever else is handed out."""

    def name(self, table: Table, piece: Piece, held: Sequence[str]) -> str:
        """The `Holding.instance` of the piece, next to those that are held."""

    def charged_mib(self, table: Table, instance: str, wanted_mib: int) -> int:
        """The memory that a holder of this piece is charged."""

    def admits(self, card: CardFact, table: Table, held: Sequence[str], new: Sequence[str]) -> bool:
        """Whether all new pieces can be had next to those that are held."""


class _Closed:
    """The partitioner of cards with `CardFact.table` `NO_TABLE`: no configuration says how they are
    partitioned, or their mode is another. They hand out nothing new; what is held of them stays
    booked.
    """

    def state(self, card: CardFact, table: Table, held: Sequence[str]) -> State:
        return UNPARTITIONED

    def states(self, card: CardFact, table: Table) -> Iterable[State]:
        return (UNPARTITIONED,)

    def piece(
        self, card: CardFact, table: Table, state: State, wanted: DeviceRequest, order: str
    ) -> Piece | None:
        return None

    def most(self, card: CardFact, table: Table, state: State, wanted: DeviceRequest) -> int:
        return 0

    def name(self, table: Table, piece: Piece, held: Sequence[str]) -> str:
        raise LookupError("a closed card has no piece to name")

    def charged_mib(self, table: Table, instance: str, wanted_mib: int) -> int:
        return wanted_mib

    def admits(self, card: CardFact, table: Table, held: Sequence[str], new: Sequence[str]) -> bool:
        return False


CLOSED = _Closed()
