"""The highest ranks of a row, kept in order while single ranks change.

A row of ranks has one entry a node, and a decision asks for the best four. Finding them again costs
as much as the row is long. So the best `_KEEP` positions are kept, with a floor: whatever is not
kept ranks below the floor. A rank that changes is moved, enters or leaves (`keep`); only when
fewer than asked for are left above the floor is the row searched again.
"""

from struct import Struct
from typing import Any

import numpy as np

from allotment_board.loop_parts import part
from allotment_board.packing import Ints

Entry = tuple[int, int]
"""(rank, position): the highest rank comes first, and of equals the lowest position."""

NO_FIT = -1
"""The rank of a node on which the request does not fit."""
KEPT_MOST = 256
_KEEP = KEPT_MOST // 4

# Places in a top: entry after entry its rank and its position, then where the list stands.
_COUNT = 2 * KEPT_MOST
FLOOR_RANK, _FLOOR_POSITION, _LENGTH = _COUNT + 1, _COUNT + 2, _COUNT + 3

_ABOVE_ALL: Entry = ((1 << 63) - 1, -1)
_BELOW_ALL: Entry = (NO_FIT, -1)
"""Floors above and below all that fits."""
_firsts = [Struct(f"={2 * wanted}q").unpack_from for wanted in range(_KEEP + 1)]
"""Read the first entries of a top at once."""


@part
def _place_of(top: Ints, rank: int, position: int) -> int:
    """Where an entry is in a top, or would be."""
    low, high = 0, top[_COUNT]
    while low < high:
        middle = (low + high) // 2
        known = top[2 * middle]
        if known > rank or (known == rank and top[2 * middle + 1] < position):
            low = middle + 1
        else:
            high = middle
    return 2 * low


@part
def keep(top: Ints, position: int, before: int, rank: int) -> None:
    """A position has a new rank, `NO_FIT` for none."""
    floor, end = top[FLOOR_RANK], 2 * top[_COUNT]
    # The place that the position leaves: none (`end`) if it was below the floor.
    hole = end
    if before > NO_FIT:
        known = _place_of(top, before, position)
        if known < end and top[known + 1] == position:
            hole = known
    is_kept = rank > floor or (rank == floor and position <= top[_FLOOR_POSITION])
    if rank > NO_FIT and is_kept:
        # Shift what is between the hole and the new place by one, and write the entry there.
        place = _place_of(top, rank, position)
        if place > hole:
            place -= 2
        if place < hole:
            top[place + 2 : hole + 2] = top[place:hole]
        elif place > hole:
            top[hole:place] = top[hole + 2 : place + 2]
        top[place], top[place + 1] = rank, position
        if hole == end:
            top[_COUNT] += 1
    elif hole < end:
        top[hole : end - 2] = top[hole + 2 : end]
        top[_COUNT] -= 1
    # A full list drops its worse part at once and lifts the floor to what is left, so that the
    # next changes have room: dropping one at a time would move the floor with every change.
    if top[_COUNT] == KEPT_MOST:
        top[_COUNT] = _KEEP
        top[FLOOR_RANK] = top[2 * _KEEP - 2]
        top[_FLOOR_POSITION] = top[2 * _KEEP - 1]


class Top:
    """The best of a row, complete above the floor: every other entry comes after it."""

    __slots__ = ("_bytes", "_view", "kept", "searches")

    def __init__(self) -> None:
        self.kept: Ints = np.zeros(_LENGTH, np.int64)
        """What `keep` keeps."""
        self._view: Any = self.kept.data
        self._bytes = self._view.cast("B")
        self.forget()
        self.searches = 0
        """How often the whole row was searched: the work done, for tests and benches."""

    def best(self, rank: Ints, feasible: int, wanted: int) -> list[Entry]:
        """The `wanted` best entries, at most `_KEEP`, or all that fit if these are fewer."""
        if wanted > feasible:
            wanted = feasible
        if self._view[_COUNT] < wanted:
            self._search(rank)
        numbers = iter(_firsts[wanted](self._bytes))
        return list(zip(numbers, numbers, strict=True))

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
        if len(rank) > 2 * _KEEP:
            least = np.partition(rank, len(rank) - _KEEP)[len(rank) - _KEEP]
            above = (rank > max(least, NO_FIT)).nonzero()[0]
            equal = (rank == least).nonzero()[0][: _KEEP - len(above)]
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
        end, kept = 2 * len(ranks), self.kept
        kept[:end:2], kept[1:end:2] = ranks, positions
        kept[_COUNT] = len(ranks)
        kept[FLOOR_RANK], kept[_FLOOR_POSITION] = floor
