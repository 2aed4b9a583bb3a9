"""What cutters and those who ask them speak of."""

from typing import NamedTuple

State = tuple[int, ...]
"""What can still be had from a card."""
UNCUT: State = ()
"""The state of a card from which nothing is cut, and of all cards that are never cut."""


class Piece(NamedTuple):
    """What a card would hand out. `kind` is the cutter's own, for naming it."""

    kind: tuple[int, ...]
    memory_mib: int
    """What is charged."""
    cores_pct: int
    after: State
    """The card's state then."""
    rank: int = 0
    """How gladly the piece is taken from this card, of those that will do: higher first."""
    is_second_best: bool = False
    """It will do, but something better was asked for."""
