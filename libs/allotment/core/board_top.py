"""The highest ranks of a row, kept in order while single ranks change.

A row of ranks has one entry a node, and a decision asks for the best four. Finding them anew costs
as much as the row is long. So the best `KEEP` positions are kept, with a floor: whatever is not
kept ranks below the floor. A rank that changes is moved, enters or leaves; only when fewer than
asked for are left above the floor is the row searched again.
"""

from bisect import bisect_left, insort

import numpy as np

from allotment.core.packing import Ints
from allotment_proto.events import RunnerUp

KEEP = 64
NO_FIT = -1

Entry = tuple[int, int]
"""(−rank, position): sorted, the best comes first, and of equals the lowest position."""

NOTHING: Entry = (-(1 << 63) + 1, -1)
EVERYTHING: Entry = (0, 1 << 63)
"""Floors above all and below all that fits."""


class Top:
    """The best of a row. `entries` is complete above `floor`: every other entry is greater."""

    __slots__ = ("entries", "floor", "floor_rank", "ranks", "said", "searches")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.ranks: dict[int, int] = {}
        self.said: dict[int, RunnerUp] = {}
        """What is said of positions that are kept, as long as they do not change."""
        self._set_floor(NOTHING)
        """The floor's rank: only changes from or to here or above matter."""
        self.searches = 0
        """How often the whole row was searched: the work done, for tests and benches."""

    def best(self, rank: Ints, feasible: int, wanted: int) -> list[Entry]:
        """The `wanted` best entries, or all that fit if these are fewer."""
        wanted = min(wanted, feasible)
        if len(self.entries) < wanted:
            self._search(rank)
        return self.entries[:wanted]

    def change(self, position: int, rank: int) -> None:
        """A position has a new rank (NO_FIT for none)."""
        entries, known = self.entries, self.ranks.pop(position, None)
        if known is not None:
            self.said.pop(position, None)
            del entries[bisect_left(entries, (-known, position))]
        entry = (-rank, position)
        if rank > NO_FIT and entry <= self.floor:
            insort(entries, entry)
            self.ranks[position] = rank
            if len(entries) > 4 * KEEP:
                self._shrink()

    def forget(self) -> None:
        """Much has changed: search when next asked."""
        self.entries.clear()
        self.ranks.clear()
        self._set_floor(NOTHING)

    def _shrink(self) -> None:
        for _, position in self.entries[KEEP:]:
            del self.ranks[position]
        del self.entries[KEEP:]
        self._set_floor(self.entries[-1])

    def _search(self, rank: Ints) -> None:
        self.searches += 1
        if len(rank) > 2 * KEEP:
            least = np.partition(rank, len(rank) - KEEP)[len(rank) - KEEP]
            above = (rank > max(least, NO_FIT)).nonzero()[0]
            equal = (rank == least).nonzero()[0][: KEEP - len(above)]
            found = np.concatenate((above, equal)).tolist()
        else:
            found = list(range(len(rank)))
        self.ranks = {p: r for p, r in zip(found, rank[found].tolist(), strict=True) if r > NO_FIT}
        self.entries = sorted((-r, p) for p, r in self.ranks.items())
        complete = len(self.entries) < len(found) or len(found) == len(rank)
        self._set_floor(EVERYTHING if complete else self.entries[-1])

    def _set_floor(self, floor: Entry) -> None:
        self.said.clear()
        self.floor = floor
        self.floor_rank = np.array(-floor[0])
