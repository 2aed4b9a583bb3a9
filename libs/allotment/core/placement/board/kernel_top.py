"""The best of a row in order, while single ranks change: written to be compiled as `kernel` is, and
ordinary Python for the NumPy road. What it means is told in `board_top`.
"""

from allotment.core.placement.board.kernel_layout import part
from allotment.core.placement.board.packing import Ints

KEEP = 64
KEPT_MOST = 4 * KEEP
NO_FIT = -1

# Places in a top: ranks, positions, and where it stands.
RANKS, POSITIONS, COUNT = 0, KEPT_MOST, 2 * KEPT_MOST
FLOOR_RANK, FLOOR_POSITION, TOP_LENGTH = COUNT + 1, COUNT + 2, COUNT + 3


@part
def index_of(top: Ints, rank: int, position: int) -> int:
    """Where an entry stands among those that are kept, or would: of equals the lowest position
    comes first.
    """
    low, high = 0, top[COUNT]
    while low < high:
        middle = (low + high) // 2
        known = top[RANKS + middle]
        if known > rank or (known == rank and top[POSITIONS + middle] < position):
            low = middle + 1
        else:
            high = middle
    return low


@part
def keep(top: Ints, position: int, before: int, rank: int) -> None:
    """A position has a new rank, `NO_FIT` for none."""
    count, floor = top[COUNT], top[FLOOR_RANK]
    hole = count
    if before > NO_FIT:
        known = index_of(top, before, position)
        if known < count and top[POSITIONS + known] == position:
            hole = known
    is_kept = rank > floor or (rank == floor and position <= top[FLOOR_POSITION])
    if rank > NO_FIT and is_kept:
        end = index_of(top, rank, position)
        if end > hole:
            end -= 1
        for row in (RANKS, POSITIONS):
            if end < hole:
                top[row + end + 1 : row + hole + 1] = top[row + end : row + hole]
            elif end > hole:
                top[row + hole : row + end] = top[row + hole + 1 : row + end + 1]
        top[RANKS + end], top[POSITIONS + end] = rank, position
        if hole == count:
            count += 1
    elif hole < count:
        for row in (RANKS, POSITIONS):
            top[row + hole : row + count - 1] = top[row + hole + 1 : row + count]
        count -= 1
    if count == KEPT_MOST:
        count = KEEP
        top[FLOOR_RANK] = top[RANKS + count - 1]
        top[FLOOR_POSITION] = top[POSITIONS + count - 1]
    top[COUNT] = count
