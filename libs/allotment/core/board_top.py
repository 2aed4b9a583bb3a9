"""The highest ranks of a row, kept in order while single ranks change.

A row of ranks has one entry a node, and a decision asks for the best four. Finding them anew costs
as much as the row is long. So the best `KEEP` positions are kept, with a floor: whatever is not
kept ranks below the floor. A rank that changes is moved, enters or leaves (`kernel_top.keep`, which
the compiled loops call for themselves); only when fewer than asked for are left above the floor is
the row searched again.
"""

import numpy as np

from allotment.core.kernel_top import (
    COUNT,
    FLOOR_POSITION,
    FLOOR_RANK,
    KEEP,
    KEPT_MOST,
    MOVED,
    NO_FIT,
    POSITIONS,
    RANKS,
    STANDING,
    keep,
)
from allotment.core.packing import Ints
from allotment_proto.events import RunnerUp

Entry = tuple[int, int]
"""(rank, position): the highest rank comes first, and of equals the lowest position."""

ABOVE_ALL: Entry = ((1 << 63) - 1, -1)
BELOW_ALL: Entry = (NO_FIT, -1)
"""Floors above and below all that fits."""
_COUNT_AT = STANDING * KEPT_MOST + COUNT


class Top:
    """The best of a row, complete above the floor: every other entry comes after it."""

    __slots__ = ("_view", "kept", "said", "searches")

    def __init__(self) -> None:
        self.kept: Ints = np.zeros((STANDING + 1, KEPT_MOST), np.int64)
        """What `kernel_top` keeps."""
        self._view = self.kept.reshape(-1).data
        self.said: dict[int, RunnerUp] = {}
        """What is said of positions that are kept, as long as they do not change."""
        self.forget()
        self.searches = 0
        """How often the whole row was searched: the work done, for tests and benches."""

    def best(self, rank: Ints, feasible: int, wanted: int) -> list[Entry]:
        """The `wanted` best entries, or all that fit if these are fewer."""
        wanted, view = min(wanted, feasible), self._view
        if view[_COUNT_AT] < wanted:
            self._search(rank)
        positions = view[POSITIONS * KEPT_MOST : POSITIONS * KEPT_MOST + wanted]
        return list(zip(view[:wanted].tolist(), positions.tolist(), strict=True))

    def change(self, position: int, before: int, rank: int) -> None:
        """A position has a new rank (NO_FIT for none), or its cards are others."""
        if keep(self.kept, position, before, rank):
            self.said.clear()
        else:
            self.said.pop(position, None)

    def moved(self, moves: int) -> None:
        """So many positions were changed by the compiled loops: the first in the row `MOVED`."""
        said = self.said
        if moves > KEPT_MOST:
            said.clear()
        elif said:
            for position in self._view[MOVED * KEPT_MOST : MOVED * KEPT_MOST + moves].tolist():
                said.pop(position, None)

    def forget(self) -> None:
        """Much has changed: search when next asked."""
        self._keep((), (), ABOVE_ALL)

    @property
    def floor_rank(self) -> int:
        """Only changes from or to here or above matter."""
        return int(self.kept[STANDING, FLOOR_RANK])

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
        floor = BELOW_ALL if is_complete else (int(ranks[-1]), int(positions[-1]))
        self._keep(ranks, positions, floor)

    def _keep(self, ranks: Ints | tuple[()], positions: Ints | tuple[()], floor: Entry) -> None:
        count, kept = len(ranks), self.kept
        kept[RANKS, :count], kept[POSITIONS, :count] = ranks, positions
        kept[STANDING, COUNT] = count
        kept[STANDING, FLOOR_RANK], kept[STANDING, FLOOR_POSITION] = floor
        self.said.clear()
