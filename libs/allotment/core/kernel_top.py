"""The best of a row in order, while single ranks change: written to be compiled as `kernel` is, and
ordinary Python for the NumPy road. What it means is told in `board_top`.
"""

from allotment.core.kernel_layout import part
from allotment.core.packing import Ints

KEEP = 64
KEPT_MOST = 4 * KEEP
NO_FIT = -1

# Rows of a top (3, KEPT_MOST).
RANKS, POSITIONS, STANDING = range(3)
# Places in the last of them.
COUNT, FLOOR_RANK, FLOOR_POSITION = range(3)


@part
def index_of(top: Ints, rank: int, position: int) -> int:
    """Where an entry stands among those that are kept, or would: of equals the lowest position
    comes first.
    """
    low, high = 0, top[STANDING, COUNT]
    while low < high:
        middle = (low + high) // 2
        known = top[RANKS, middle]
        if known > rank or (known == rank and top[POSITIONS, middle] < position):
            low = middle + 1
        else:
            high = middle
    return low


@part
def keep(top: Ints, position: int, before: int, rank: int) -> None:
    """A position has a new rank, `NO_FIT` for none."""
    count, floor = top[STANDING, COUNT], top[STANDING, FLOOR_RANK]
    hole = count
    if before > NO_FIT:
        known = index_of(top, before, position)
        if known < count and top[POSITIONS, known] == position:
            hole = known
    is_kept = rank > floor or (rank == floor and position <= top[STANDING, FLOOR_POSITION])
    if rank > NO_FIT and is_kept:
        end = index_of(top, rank, position)
        if end > hole:
            end -= 1
        for row in range(POSITIONS + 1):
            if end < hole:
                top[row, end + 1 : hole + 1] = top[row, end:hole].copy()
            elif end > hole:
                top[row, hole:end] = top[row, hole + 1 : end + 1].copy()
        top[RANKS, end], top[POSITIONS, end] = rank, position
        if hole == count:
            count += 1
    elif hole < count:
        for row in range(POSITIONS + 1):
            top[row, hole : count - 1] = top[row, hole + 1 : count].copy()
        count -= 1
    if count == top.shape[1]:
        count = KEEP
        top[STANDING, FLOOR_RANK] = top[RANKS, count - 1]
        top[STANDING, FLOOR_POSITION] = top[POSITIONS, count - 1]
    top[STANDING, COUNT] = count
