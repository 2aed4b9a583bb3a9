"""Scoring as plain loops over columns, written to be compiled: what `board_score` does in NumPy.

One node after the other, integers only, no objects; the same integers come out as on the NumPy road
and as of the ledgers (a property test holds all three together). Not compiled, these functions are
ordinary Python and hopelessly slow for a large cluster; `adapters.machine_code` compiles them.

A request is told as numbers; see `kernel_layout`.
"""

import numpy as np

from allotment.core.columns import CPU, CPU_WEIGHT, HOST_MEMORY, HOST_SUM, KIB_WEIGHT, PODS
from allotment.core.kernel_layout import (
    AFTER,
    AMOUNT,
    AMOUNT_SHIFT,
    BINPACK,
    BY_HOLDERS,
    BY_USE,
    CHARGE_CPU,
    CHARGE_KIB,
    CHARGED_MIB,
    CONSTANT_MICRO,
    DEVICE_WEIGHT,
    DIVISOR_MIB,
    EACH_ONCE,
    EXTENDED_COLUMN,
    EXTENDED_NEED,
    EXTENDED_ROW,
    FIT_MICRO,
    FIT_WEIGHT,
    HAS_MASK,
    HOST_POLICY,
    HOST_WEIGHT,
    IMAGE_MICRO,
    IS_CUT_OFF,
    KIND_MASK,
    MAY_EXCEED,
    NEED,
    NEED_CPU,
    NEED_MEMORY,
    NEED_PODS,
    NONE,
    NUMBER,
    ORDER,
    POLICY,
    RANK,
    SIZE_MIB,
    SPARE_MIB,
    SPREAD,
    part,
)
from allotment.core.kernel_terms import terms_micro
from allotment.core.packing import (
    GUARDS,
    HOLDERS_MASK,
    HOLDERS_MOST,
    HOLDERS_SHIFT,
    MEMORY_BIAS,
    MEMORY_MASK,
    Bools,
    Ints,
    Shorts,
)
from allotment.core.points import (
    COUNTED_BITS,
    FULL_MICRO,
    HOST_BITS,
    LEFTOVER_BITS,
    LEFTOVER_MOST,
    POINTS_MOST,
    TOTAL_MOST,
)


def score_positions(
    at: Ints,
    host: Ints,
    packed: Ints,
    keys: Ints,
    sizes: Ints,
    unsaid: Ints,
    codes: Ints,
    numbers: Ints,
    mask: Bools,
    images: Ints,
    plan: Ints,
    asks: Ints,
    extended: Ints,
    terms: Ints,
    means: Ints,
    shares: Ints,
    rank: Ints,
    fit: Bools,
    chosen: Shorts,
    given: Ints,
    parts: Ints,
    floor_rank: int,
    moved: Ints,
) -> tuple[int, int]:
    """Score the positions `at` (M,) one after the other, and store ranks, fit, cards and terms.

    `codes` and `numbers` (N,) are reasons that speak against nodes, 0 for none; `mask` (N, D) the
    cards that are admitted, if the plan has one; `images` (N,) the points of images, or (0,). From
    `plan` on what `kernel_layout.Plan` holds. Written to are `rank` and `fit` (N,), `chosen` (N, T)
    the slots of all cards that are asked for, `given` (N,) or (1,) the points for how much of what
    they give is asked for, if that counts, `parts` (P + 1, N) the plugins' terms and the sum of
    all, and `moved` (2, X): positions from or to `floor_rank` or above whose rank or cards changed,
    and their ranks.

    Returns how many have moved (more than X if they do not go in), and by how much the number of
    nodes that fit grew.
    """
    depth = packed.shape[1]
    free, used = np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    wanted, taken = np.zeros(depth, np.int64), np.zeros(depth, np.bool_)
    moves, grown = 0, 0
    for number in range(len(at)):
        position = at[number]
        before = rank[position]
        total, differs = -1, False
        if (
            codes[position] == 0
            and numbers[position] == 0
            and _host_takes(host, position, plan, extended)
        ):
            for slot in range(depth):
                free[slot] = packed[position, slot]
                used[slot] = keys[position, slot]
            if plan[HAS_MASK] == 1:
                for slot in range(depth):
                    taken[slot] = not mask[position, slot]
            elif asks.shape[0] > 1:
                taken[:] = False
            points, of_given, leftover, differs = _cards(
                position, free, used, taken, wanted, plan, asks, chosen
            )
            if points >= 0:
                total = _total(
                    position, points, of_given, leftover, host, sizes, unsaid, images, plan, asks,
                    extended, terms, means, shares, given, parts,
                )  # fmt: skip
        if total != before:
            rank[position] = total
            differs = True
            grown += int(total >= 0) - int(before >= 0)
            fit[position] = total >= 0
        if differs and max(before, total) >= floor_rank:
            if moves < moved.shape[1]:
                moved[0, moves] = position
                moved[1, moves] = total
            moves += 1
    return moves, grown


@part
def _host_takes(host: Ints, position: int, plan: Ints, extended: Ints) -> bool:
    if host[position, PODS] < plan[NEED_PODS] or host[position, CPU] < plan[NEED_CPU]:
        return False
    if host[position, HOST_MEMORY] < plan[NEED_MEMORY]:
        return False
    for number in range(extended.shape[0]):
        if host[position, extended[number, EXTENDED_ROW]] < extended[number, EXTENDED_NEED]:
            return False
    return True


@part
def _cards(
    position: int,
    free: Ints,
    used: Ints,
    taken: Bools,
    wanted: Ints,
    plan: Ints,
    asks: Ints,
    chosen: Shorts,
) -> tuple[int, int, int, bool]:
    """Choose the cards of every device request: points (−1 if some are missing), points for how
    much is asked for of what is given, leftover, and whether the cards are others than before. All
    but the tables and `chosen` are copies to work on.
    """
    points, of_given, leftover, differs, column = 0, 0, 0, False, 0
    kind_mask, depth, last = plan[KIND_MASK], len(free), asks.shape[0] - 1
    for ask in range(asks.shape[0]):
        for slot in range(depth):
            key = used[slot]
            kind = key & kind_mask
            enough = (free[slot] - asks[ask, NEED, kind]) & GUARDS == GUARDS
            wanted[slot] = key + asks[ask, RANK, kind] if enough and not taken[slot] else -1
        first = column
        for _ in range(asks[ask, NUMBER, 0]):
            best, slot = -1, 0
            for candidate in range(depth):
                if wanted[candidate] > best:
                    best, slot = wanted[candidate], candidate
            if best < 0:
                return -1, 0, 0, differs
            wanted[slot] = -1
            of_card, left = _card(best, free[slot], ask, plan, asks)
            points += of_card
            of_given += asks[ask, FIT_MICRO, best & kind_mask]
            leftover += left
            if chosen[position, column] != slot:
                chosen[position, column] = slot
                differs = True
            column += 1
        if ask < last:
            _take(position, first, column, ask, free, used, taken, plan, asks, chosen)
    return points, of_given, leftover, differs


@part
def _card(best: int, free: int, ask: int, plan: Ints, asks: Ints) -> tuple[int, int]:
    """Points and leftover of the card with the key `best`."""
    kind, amount = best & plan[KIND_MASK], best >> plan[AMOUNT_SHIFT]
    if asks[ask, ORDER, 0] == BY_USE:
        left = asks[ask, SPARE_MIB, kind] - amount
    else:
        left = (free & MEMORY_MASK) - MEMORY_BIAS - asks[ask, CHARGED_MIB, kind]
    if plan[POLICY] == BINPACK:
        size = asks[ask, SIZE_MIB, kind]
        return FULL_MICRO * (size - left) // asks[ask, DIVISOR_MIB, kind], left
    if plan[POLICY] == SPREAD:
        if asks[ask, ORDER, 0] == BY_HOLDERS:
            is_idle = amount == HOLDERS_MOST
        else:
            is_idle = (free >> HOLDERS_SHIFT) & HOLDERS_MASK == HOLDERS_MOST
        if is_idle:
            return FULL_MICRO, left
    return 0, left


@part
def _take(
    position: int,
    first: int,
    end: int,
    ask: int,
    free: Ints,
    used: Ints,
    taken: Bools,
    plan: Ints,
    asks: Ints,
    chosen: Shorts,
) -> None:
    """Charge the cards of one device request, for the pod's next one."""
    for column in range(first, end):
        slot = chosen[position, column]
        kind = used[slot] & plan[KIND_MASK]
        free[slot] -= asks[ask, AMOUNT, kind]
        if asks[ask, EACH_ONCE, 0] == 1:
            taken[slot] = True
        used[slot] += asks[ask, AFTER, kind] - kind
        order = asks[ask, ORDER, 0]
        if order == BY_USE:
            used[slot] += asks[ask, CHARGED_MIB, kind] << plan[AMOUNT_SHIFT]
        elif order == BY_HOLDERS:
            used[slot] -= 1 << plan[AMOUNT_SHIFT]


@part
def _total(
    position: int,
    points: int,
    of_given: int,
    leftover: int,
    host: Ints,
    sizes: Ints,
    unsaid: Ints,
    images: Ints,
    plan: Ints,
    asks: Ints,
    extended: Ints,
    terms: Ints,
    means: Ints,
    shares: Ints,
    given: Ints,
    parts: Ints,
) -> int:
    """The rank of a node that the pod fits on."""
    if asks.shape[0] == 0:
        points = _counted(position, host, sizes, plan, extended)
    if plan[MAY_EXCEED] == 1:
        points, of_given = min(points, POINTS_MOST), min(of_given, POINTS_MOST)
    micro = points * plan[DEVICE_WEIGHT]
    if plan[FIT_WEIGHT] > 0 and asks.shape[0] > 0:
        given[min(position, len(given) - 1)] = of_given
        micro += of_given * plan[FIT_WEIGHT]
    if plan[HOST_POLICY] != NONE:
        in_use = (
            host[position, CPU_WEIGHT] * plan[CHARGE_CPU]
            + host[position, KIB_WEIGHT] * plan[CHARGE_KIB]
            + host[position, HOST_SUM]
        ) >> (HOST_BITS + 1)
        mean = in_use if plan[HOST_POLICY] == BINPACK else FULL_MICRO - in_use
        micro += plan[HOST_WEIGHT] * mean
    last = parts.shape[0] - 1
    if last >= 0:
        of_images = images[position] * plan[IMAGE_MICRO] if len(images) > 0 else 0
        micro += terms_micro(position, host, sizes, unsaid, terms, means, shares, of_images, parts)
        parts[last, position] = micro
        micro += plan[CONSTANT_MICRO]
        if plan[IS_CUT_OFF] == 1:
            micro = min(micro, TOTAL_MOST)
    rank: int = (micro << LEFTOVER_BITS) + max(LEFTOVER_MOST - leftover, 0)
    return rank


@part
def _counted(position: int, host: Ints, sizes: Ints, plan: Ints, extended: Ints) -> int:
    """Points of counted resources, for a pod that asks for no devices."""
    points = 0
    if plan[POLICY] == NONE:
        return points
    for number in range(extended.shape[0]):
        listed = sizes[extended[number, EXTENDED_COLUMN], 0, position]
        free = host[position, extended[number, EXTENDED_ROW]]
        unit = 1 + (listed >> COUNTED_BITS)
        size = listed // unit
        used = (listed - free + extended[number, EXTENDED_NEED]) // unit
        share = FULL_MICRO * used // size if size > 0 else 0
        points += share if plan[POLICY] == BINPACK else FULL_MICRO - share
    return points


SIGNATURE = (
    "UniTuple(int64, 2)("
    "int64[::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,:,::1], int64[:,::1], "
    "int64[::1], int64[::1], boolean[:,::1], int64[::1], int64[::1], int64[:,:,::1], int64[:,::1], "
    "int64[::1], int64[:,::1], int64[:,::1], int64[::1], boolean[::1], uint16[:,::1], "
    "int64[::1], int64[:,::1], int64, int64[:,::1])"
)
"""The types of what `score_positions` takes, in numba's words."""
