"""Scoring as plain loops over columns, written to be compiled: what `board_score` does in NumPy.

Integers only, no objects; the same come out as on the NumPy road and as of the ledgers (a property
test holds all three together). A compiled call costs 20 ns for every array that is handed over, so
loops are within the functions, not around them. Not compiled, these functions are
ordinary Python and hopelessly slow for a large cluster; `adapters.machine_code` compiles them.

A request is told as numbers; see `kernel_layout`.
"""

import numpy as np

from allotment.core.placement.board.arrays import (
    CPU,
    CPU_WEIGHT,
    HOST_MEMORY,
    HOST_SUM,
    KIB_WEIGHT,
    PODS,
)
from allotment.core.placement.board.kernel_layout import (
    AFTER,
    AMOUNT,
    AMOUNT_SHIFT,
    ASK_COUNT,
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
    EXTENDED_COUNT,
    EXTENDED_FIELDS,
    EXTENDED_NEED,
    EXTENDED_ROW,
    FIELDS,
    FIT_MICRO,
    FIT_WEIGHT,
    HAS_MASK,
    HOST_POLICY,
    HOST_WEIGHT,
    IMAGE_MICRO,
    IS_CUT_OFF,
    KIND_COUNT,
    KIND_MASK,
    MAY_EXCEED,
    MEAN_COUNT,
    MEAN_FIELDS,
    NEED,
    NEED_CPU,
    NEED_MEMORY,
    NEED_PODS,
    NONE,
    NUMBER,
    ORDER,
    PLAN_LENGTH,
    POLICY,
    RANK,
    SHARE_COUNT,
    SHARE_FIELDS,
    SIZE_MIB,
    SPARE_MIB,
    SPREAD,
    TERMS_LENGTH,
    part,
)
from allotment.core.placement.board.kernel_plan import Loops
from allotment.core.placement.board.kernel_terms import add_terms
from allotment.core.placement.board.kernel_top import FLOOR_RANK, keep
from allotment.core.placement.board.packing import (
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
from allotment.core.placement.rules.points import (
    COUNTED_BITS,
    FULL_MICRO,
    HOST_BITS,
    LEFTOVER_BITS,
    LEFTOVER_MOST,
    POINTS_MOST,
    TOTAL_MOST,
)

MICRO, OF_GIVEN, LEFTOVER, FOUND = range(4)
"""Rows of what is found for each position: points, those for how much of what is given is asked
for, and what is left over.
"""


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
    told: Ints,
    rank: Ints,
    fit: Bools,
    chosen: Shorts,
    given: Ints,
    parts: Ints,
    top: Ints,
) -> int:
    """Score the positions `at` (M,) one after the other, and store ranks, fit, cards and terms.

    `codes` and `numbers` (N,) are reasons that speak against nodes, 0 for none; `mask` (N, D) the
    cards that are admitted, if the plan has one; `images` (N,) the points of images, or (0,);
    `told` is laid out as in `kernel_layout`. Written to are `rank` and `fit` (N,), `chosen` (N, T)
    the slots of all cards that are asked for, `given` (N,) or (1,) the points for how much of what
    they give is asked for, if that counts, `parts` (P + 1, N) the plugins' terms and the sum of
    all, and `top`, the best of the row (`kernel_top`).

    Returns by how much the number of nodes that fit grew.
    """
    plan, start, end = told[:PLAN_LENGTH], PLAN_LENGTH, PLAN_LENGTH
    end += plan[ASK_COUNT] * FIELDS * plan[KIND_COUNT]
    asks = told[start:end].reshape((plan[ASK_COUNT], FIELDS, plan[KIND_COUNT]))
    start, end = end, end + plan[EXTENDED_COUNT] * EXTENDED_FIELDS
    extended = told[start:end].reshape((plan[EXTENDED_COUNT], EXTENDED_FIELDS))
    start, end = end, end + TERMS_LENGTH
    terms = told[start:end]
    start, end = end, end + plan[MEAN_COUNT] * MEAN_FIELDS
    means = told[start:end].reshape((plan[MEAN_COUNT], MEAN_FIELDS))
    shares = told[end:].reshape((plan[SHARE_COUNT], SHARE_FIELDS))
    found = np.zeros((FOUND, len(at)), np.int64)
    _choose(at, host, packed, keys, codes, numbers, mask, plan, asks, extended, chosen, found)
    if asks.shape[0] == 0 and plan[POLICY] != NONE:
        _count(at, host, sizes, plan, extended, found[MICRO])
    _weigh(at, host, plan, found)
    if plan[FIT_WEIGHT] > 0 and asks.shape[0] > 0:
        for number in range(len(at)):
            if found[MICRO, number] >= 0:
                given[min(at[number], len(given) - 1)] = found[OF_GIVEN, number]
    if parts.shape[0] > 0:
        micro = found[MICRO]
        add_terms(
            at, host, sizes, unsaid, images, plan[IMAGE_MICRO], terms, means, shares, micro, parts
        )
    return _store(at, plan, found, rank, fit, top, parts.shape[0])


def score_shares(
    at: Ints,
    host: Ints,
    packed: Ints,
    keys: Ints,
    codes: Ints,
    told: Ints,
    rank: Ints,
    fit: Bools,
    chosen: Shorts,
    top: Ints,
) -> int:
    """The same for what is asked for most: cards, where nothing counts but what is free on them and
    on the host. A third less for the call itself, which is most while few positions are scored.
    """
    plan, end = told[:PLAN_LENGTH], PLAN_LENGTH + told[ASK_COUNT] * FIELDS * told[KIND_COUNT]
    asks = told[PLAN_LENGTH:end].reshape((plan[ASK_COUNT], FIELDS, plan[KIND_COUNT]))
    extended = told[end : end + plan[EXTENDED_COUNT] * EXTENDED_FIELDS]
    extended = extended.reshape((plan[EXTENDED_COUNT], EXTENDED_FIELDS))
    found, mask = np.zeros((FOUND, len(at)), np.int64), np.zeros((0, 0), np.bool_)
    _choose(at, host, packed, keys, codes, codes, mask, plan, asks, extended, chosen, found)
    _weigh(at, host, plan, found)
    return _store(at, plan, found, rank, fit, top, 0)


@part
def _choose(
    at: Ints,
    host: Ints,
    packed: Ints,
    keys: Ints,
    codes: Ints,
    numbers: Ints,
    mask: Bools,
    plan: Ints,
    asks: Ints,
    extended: Ints,
    chosen: Shorts,
    found: Ints,
) -> None:
    """Choose the cards of every device request, and store in `found` the device points (−1 where
    the pod does not fit), the points for how much is asked for of what is given, and what is left
    over.
    """
    depth, last = packed.shape[1], asks.shape[0] - 1
    free, used = np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    wanted, taken = np.zeros(depth, np.int64), np.zeros(depth, np.bool_)
    need_pods, need_cpu, need_memory = plan[NEED_PODS], plan[NEED_CPU], plan[NEED_MEMORY]
    kind_mask, shift, policy = plan[KIND_MASK], plan[AMOUNT_SHIFT], plan[POLICY]
    for number in range(len(at)):
        position = at[number]
        fits = (
            codes[position] == 0
            and numbers[position] == 0
            and host[position, PODS] >= need_pods
            and host[position, CPU] >= need_cpu
            and host[position, HOST_MEMORY] >= need_memory
        )
        for row in range(extended.shape[0]):
            if host[position, extended[row, EXTENDED_ROW]] < extended[row, EXTENDED_NEED]:
                fits = False
        found[MICRO, number] = -1
        if not fits:
            continue
        for slot in range(depth):
            free[slot] = packed[position, slot]
            used[slot] = keys[position, slot]
        if plan[HAS_MASK] == 1:
            for slot in range(depth):
                taken[slot] = not mask[position, slot]
        elif last > 0:
            taken[:] = False
        total, asked, leftover, column = 0, 0, 0, 0
        for ask in range(last + 1):
            order = asks[ask, ORDER, 0]
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
                    fits = False
                    break
                wanted[slot] = -1
                kind, amount = best & kind_mask, best >> shift
                asked += asks[ask, FIT_MICRO, kind]
                if order == BY_USE:
                    left = asks[ask, SPARE_MIB, kind] - amount
                else:
                    left = (free[slot] & MEMORY_MASK) - MEMORY_BIAS - asks[ask, CHARGED_MIB, kind]
                if policy == BINPACK:
                    size = asks[ask, SIZE_MIB, kind]
                    total += FULL_MICRO * (size - left) // asks[ask, DIVISOR_MIB, kind]
                elif policy == SPREAD:
                    room = amount
                    if order != BY_HOLDERS:
                        room = (free[slot] >> HOLDERS_SHIFT) & HOLDERS_MASK
                    if room == HOLDERS_MOST:
                        total += FULL_MICRO
                leftover += left
                chosen[position, column] = slot
                column += 1
            if not fits:
                break
            if ask < last:
                _take(position, first, column, ask, free, used, taken, plan, asks, chosen)
        if fits:
            found[MICRO, number] = total
            found[OF_GIVEN, number] = asked
            found[LEFTOVER, number] = leftover


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
def _count(at: Ints, host: Ints, sizes: Ints, plan: Ints, extended: Ints, points: Ints) -> None:
    """Points of counted resources, for a pod that asks for no devices."""
    for number in range(len(at)):
        position = at[number]
        if points[number] < 0:
            continue
        for row in range(extended.shape[0]):
            listed = sizes[extended[row, EXTENDED_COLUMN], 0, position]
            free = host[position, extended[row, EXTENDED_ROW]]
            unit = 1 + (listed >> COUNTED_BITS)
            size = listed // unit
            in_use = (listed - free + extended[row, EXTENDED_NEED]) // unit
            share = FULL_MICRO * in_use // size if size > 0 else 0
            points[number] += share if plan[POLICY] == BINPACK else FULL_MICRO - share


@part
def _weigh(at: Ints, host: Ints, plan: Ints, found: Ints) -> None:
    """From device points to the terms of cards and host together."""
    cpu_milli, memory_kib, policy = plan[CHARGE_CPU], plan[CHARGE_KIB], plan[HOST_POLICY]
    weight, host_weight = plan[DEVICE_WEIGHT], plan[HOST_WEIGHT]
    for number in range(len(at)):
        position = at[number]
        if found[MICRO, number] < 0:
            continue
        points = found[MICRO, number]
        if plan[MAY_EXCEED] == 1:
            points = min(points, POINTS_MOST)
            found[OF_GIVEN, number] = min(found[OF_GIVEN, number], POINTS_MOST)
        points = points * weight + found[OF_GIVEN, number] * plan[FIT_WEIGHT]
        if policy != NONE:
            in_use = host[position, CPU_WEIGHT] * cpu_milli
            in_use += host[position, KIB_WEIGHT] * memory_kib + host[position, HOST_SUM]
            in_use >>= HOST_BITS + 1
            points += host_weight * (in_use if policy == BINPACK else FULL_MICRO - in_use)
        found[MICRO, number] = points


@part
def _store(
    at: Ints,
    plan: Ints,
    found: Ints,
    rank: Ints,
    fit: Bools,
    top: Ints,
    is_more: int,
) -> int:
    """Store the ranks; by how much the number of nodes that fit grew."""
    grown = 0
    for number in range(len(at)):
        position = at[number]
        before, total = rank[position], found[MICRO, number]
        if total >= 0:
            if is_more > 0:
                total += plan[CONSTANT_MICRO]
                if plan[IS_CUT_OFF] == 1:
                    total = min(total, TOTAL_MOST)
            total = (total << LEFTOVER_BITS) + max(LEFTOVER_MOST - found[LEFTOVER, number], 0)
        if total != before:
            rank[position] = total
            fit[position] = total >= 0
            grown += int(total >= 0) - int(before >= 0)
            if max(before, total) >= top[FLOOR_RANK]:
                keep(top, position, before, total)
    return grown


LOOPS = Loops(score_positions, score_shares)
SIGNATURES = (
    "int64(int64[::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,:,::1], int64[:,::1], "
    "int64[::1], int64[::1], boolean[:,::1], int64[::1], int64[::1], int64[::1], boolean[::1], "
    "uint16[:,::1], int64[::1], int64[:,::1], int64[::1])",
    "int64(int64[::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], "
    "int64[::1], boolean[::1], uint16[:,::1], int64[::1])",
)
"""The types of what they take, in numba's words."""
