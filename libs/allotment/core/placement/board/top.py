"""The highest ranks of a row, kept in order while single ranks change.

A row of ranks has one entry a node, and a decision asks for the best four. Finding them anew costs
as much as the row is long. So the best `KEEP` positions are kept, with a floor: whatever is not
kept ranks below the floor. A rank that changes is moved, enters or leaves (`loops.keep`); only when
fewer than asked for are left above the floor is the row searched again.
"""

from struct import Struct
from typing import Any

import numpy as np

from allotment.core.placement.board.loops import (
    COUNT,
    FLOOR_POSITION,
    FLOOR_RANK,
    KEEP,
    NO_FIT,
    POSITIONS,
    RANKS,
    TOP_LENGTH,
    keep,
)
from allotment.core.placement.board.packing import Ints

Entry = tuple[int, int]
"""(rank, position): the highest rank comes first, and of equals the lowest position."""

_ABOVE_ALL: Entry = ((1 << 63) - 1, -1)
_BELOW_ALL: Entry = (NO_FIT, -1)
"""Floors above and below all that fits."""
_BYTES = 8
_firsts = [Struct(f"={wanted}q").unpack_from for wanted in range(KEEP + 1)]
"""Read the first entries of a row of the top at once."""


class Top:
    """The best of a row, complete above the floor: every other entry comes after it."""

    __slots__ = ("_bytes", "_view", "kept", "searches")

    def __init__(self) -> None:
        self.kept: Ints = np.zeros(TOP_LENGTH, np.int64)
        """What `loops.keep` keeps."""
        self._view: Any = self.kept.data
        self._bytes = self._view.cast("B")
        self.forget()
        self.searches = 0
        """How often the whole row was searched: the work done, for tests and benches."""

    def best(self, rank: Ints, feasible: int, wanted: int) -> list[Entry]:
        """The `wanted` best entries, at most `KEEP`, or all that fit if these are fewer."""
        if wanted > feasible:
            wanted = feasible
        if self._view[COUNT] < wanted:
            self._search(rank)
        firsts, kept = _firsts[wanted], self._bytes
        return list(zip(firsts(kept), firsts(kept, POSITIONS * _BYTES), strict=True))

    def change(self, position: int, before: int, rank: int) -> None:
        """A position has a new rank (NO_FIT for none)."""
        keep(self._view, position, before, rank)

    def forget(self) -> None:
        """Much has changed: search when next asked."""
        self._keep((), (), _ABOVE_ALL)

    @property
    def floor_rank(self) -> int:
        """Only changes from or to here or above matter."""
        return int(self.kept[FLOOR_RANK])

    def _search(self, rank: Ints) -> None:
        self.searches += 1
        if len(rank) > 2 * KEEP:
            least = np.partition(rank, len(rank) - KEEP)[len(rank) - KEEP]
            above = (rank > max(least, NO_FIT)).nonzero()[0]
            equal = (rank == least).nonzero()[0][: KEEP - len(above)]
            found = np.concatenate((above, equal))
        else:
            found = np.arange(len(rank))
        positions = found[rank[found] > NO_FIT]
        positions = positions[np.lexsort((positions, -rank[positions]))]
        ranks = rank[positions]
        is_complete = len(positions) < len(found) or len(found) == len(rank)
        floor = _BELOW_ALL if is_complete else (int(ranks[-1]), int(positions[-1]))
        self._keep(ranks, positions, floor)

    def _keep(self, ranks: Ints | tuple[()], positions: Ints | tuple[()], floor: Entry) -> None:
        count, kept = len(ranks), self.kept
        kept[RANKS : RANKS + count] = ranks
        kept[POSITIONS : POSITIONS + count] = positions
        kept[COUNT] = count
        kept[FLOOR_RANK], kept[FLOOR_POSITION] = floor
