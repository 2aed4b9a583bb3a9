"""Cards that hand out nothing new: nobody configured how they are cut, or their mode is another.

What is held of them stays booked.
"""

from collections.abc import Iterable, Sequence

from allotment.core.ledger.partitions.types import UNCUT, Piece, State
from allotment_proto.facts import CardFact, DeviceRequest, Geometry

Table = tuple[Geometry, ...]


class Closed:
    """The cutter of cards with `CardFact.table` `NO_TABLE`."""

    def state(self, card: CardFact, table: Table, held: Sequence[str]) -> State:
        return UNCUT

    def states(self, card: CardFact, table: Table) -> Iterable[State]:
        return (UNCUT,)

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


CLOSED = Closed()
