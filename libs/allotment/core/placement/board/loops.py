"""Scoring as plain loops over columns: whether the pod fits, its cards, its points, the best nodes.

This is the only reading of these rules for many nodes; the rules themselves are `predicates.fits`,
`devices.choosing`, each device policy's `points` and `scores.score`, on one node of the books, and
property tests hold the two together. The loops run in two ways, with the same integers: compiled by
numba (`adapters.service.machine_code`), or as ordinary Python, which is quick enough for small
clusters. As ordinary Python they take memory views and lists in place of arrays: an element of a
view is a Python integer, at a third of the price of NumPy's scalar.

A compiled call costs as much for every array that is handed over as for a node that is scored,
so the loops are within the functions, room for working is one array, and a request comes as one
array of numbers, `encoded`: first what stands at the places of the plan, then, each from the place
on that is named in the plan,

    asks      (ASK_COUNT, FIELDS, KIND_COUNT), device requests in the order in which they are served
    extended  (EXTENDED_COUNT, 2), host row and amount of every extended resource
    terms     (len(TERMS),), where in `encoded` the numbers of a plugin's term begin, 0 for one that
              does not count; behind that the numbers
    values    what typical pods ask for (`values`), of policies that look ahead: for each family
              that the pod asks of, or of all for a pod that asks for none

Axes: N nodes in name order, D cards a node, K kinds of cards, M positions to score. All integers
are int64; points are micro-points, memory of cards is MiB, compute is percent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from allotment.core.placement.board.packing import (
    CORES_BIAS,
    CORES_MASK,
    CORES_SHIFT,
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
from allotment.core.placement.board.top import FLOOR_RANK, keep
from allotment.core.placement.board.values import (
    FGD,
    TIE_BITS,
    Hosts,
    change,
    gains,
    hosts,
    idle_milli,
    micro_of,
)
from allotment.core.placement.board.values import SIZES as VALUED_SIZES
from allotment.core.placement.policies.typical import CARD_MILLI
from allotment.core.placement.policies.valued import MILLI_CPU_PER_MILLI_CARD
from allotment.core.placement.rules.points import (
    COUNTED_BITS,
    FULL_MICRO,
    HOST_BITS,
    LEFTOVER_BITS,
    LEFTOVER_MOST,
    NETWORK_MICRO,
    POINTS_MOST,
    TOTAL_MOST,
)
from allotment.core.placement.rules.score_term import (
    CPU,
    CPU_WEIGHT,
    HOST_MEMORY,
    HOST_SUM,
    KIB_WEIGHT,
    PLUGIN,
    PODS,
    SIZE_EXTENDED,
    part,
)
from allotment.core.placement.rules.terms import TERMS

# ---- how a request is encoded

# Places of the plan.
(
    NEED_PODS,
    NEED_CPU,
    NEED_MEMORY,
    NEED_PLUGIN,
    CHARGE_CPU,
    CHARGE_KIB,
    POLICY,
    DEVICE_WEIGHT,
    HOST_POLICY,
    HOST_WEIGHT,
    FIT_WEIGHT,
    KIND_MASK,
    AMOUNT_SHIFT,
    HAS_MASK,
    MAY_EXCEED,
    IS_CAPPED,
    IS_COMPARED,
    CONSTANT_MICRO,
    ASK_COUNT,
    KIND_COUNT,
    EXTENDED_COUNT,
    EXTENDED_AT,
    TERMS_AT,
    VALUES_AT,
    PLAN_LENGTH,
) = range(25)
NONE, BINPACK, SPREAD = range(3)
"""What `POLICY` and `HOST_POLICY` say; `POLICY` also the numbers from `values.FGD` on."""

# Fields of a device request. What is not said by kind stands at every kind.
(
    NEED,
    RANK,
    AMOUNT,
    AFTER,
    CHARGED_MIB,
    SPARE_MIB,
    SIZE_MIB,
    DIVISOR_MIB,
    CHARGED_PCT,
    SIZE_PCT,
    IS_SECOND_BEST,
    IS_CHIP,
    FIT_MICRO,
    NUMBER,
    ORDER,
    SCORING,
    EACH_ONCE,
    IS_WIRED,
    CHIP,
    FAMILY_VALUES_AT,
    FIELDS,
) = range(21)
BY_USE, BY_HOLDERS, BY_PLACE, BY_VALUE = range(4)
"""What `ORDER` says: what a key's amount counts. By value it is made while cards are chosen."""
EACH, FIRST, COMPUTE = range(3)
"""What `SCORING` says: which cards count, and by what (`devices.base`)."""

MICRO, OF_GIVEN, LEFTOVER, _LAST, FOUND = range(5)
"""Rows of `found` (FOUND, N), with one column for each position of a call: the device policy's
points, −1 where the pod does not fit; the points for how much is asked for of what is given; what
is left over. In the last row columns are nodes: where among the call's positions each comes last.
"""

_FREE, _USED, _WANTED, _TAKEN, _TOGETHER, _FIRSTS, _IDLE, _LEFT_IDLE, _GAIN, SCRATCH = range(10)
"""Rows of `scratch` (SCRATCH, L), room for the choice of cards: each is as long as a node has
cards, or the pod device requests."""
_NETWORKS_MOST = 1 << 31
_NO_NETWORK = -2


# ---- whether it fits, and which cards


@part
def _admits(position: int, host: Ints, codes: Ints, numbers: Ints, encoded: Ints) -> bool:
    """Whether nothing but cards can speak against the node."""
    if (
        codes[position] != 0
        or numbers[position] != 0
        or host[position, PODS] < encoded[NEED_PODS]
        or host[position, CPU] < encoded[NEED_CPU]
        or host[position, HOST_MEMORY] < encoded[NEED_MEMORY]
        or host[position, PLUGIN] < encoded[NEED_PLUGIN]
    ):
        return False
    first = encoded[EXTENDED_AT]
    for at in range(first, first + 2 * encoded[EXTENDED_COUNT], 2):
        if host[position, encoded[at]] < encoded[at + 1]:
            return False
    return True


@part
def _note_last(at: Ints, found: Ints) -> None:
    """Positions may be repeated, as that of a node that fills up is: each is scored once."""
    for number in range(len(at)):
        found[_LAST, at[number]] = number


def _admit(at: Ints, found: Ints, host: Ints, codes: Ints, numbers: Ints, encoded: Ints) -> int:
    """Mark the positions where cards decide: `found` is 0 there, else −1. How many there are."""
    count = 0
    _note_last(at, found)
    for number in range(len(at)):
        admitted = _admits(at[number], host, codes, numbers, encoded)
        found[MICRO, number] = 0 if admitted else -1
        count += int(admitted)
    return count


@part
def _choose_cards(
    at: Ints,
    found: Ints,
    host: Ints,
    packed: Ints,
    keys: Ints,
    networks: Ints,
    sizes: Ints,
    codes: Ints,
    numbers: Ints,
    mask: Bools,
    encoded: Ints,
    scratch: Ints,
    chosen: Shorts,
) -> int:
    """Choose the cards of every device request on the positions `at`, as the device policy does,
    and fill `found` and `chosen` (N, T), the slots of all chosen cards.

    `codes` and `numbers` (N,) are reasons that speak against nodes, 0 for none; `mask` (N, D) the
    cards that are admitted one by one, if the plan has one.
    """
    # What earlier device requests of the pod took must show, and must not outlive the position: so
    # the node's cards are copied before they are charged.
    free, used, wanted, taken = scratch[_FREE], scratch[_USED], scratch[_WANTED], scratch[_TAKEN]
    together, firsts = scratch[_TOGETHER], scratch[_FIRSTS]
    idle, left_idle, gain = scratch[_IDLE], scratch[_LEFT_IDLE], scratch[_GAIN]
    depth, asks, kinds = packed.shape[1], encoded[ASK_COUNT], encoded[KIND_COUNT]
    kind_mask, shift, policy = encoded[KIND_MASK], encoded[AMOUNT_SHIFT], encoded[POLICY]
    block = FIELDS * kinds
    for slot in range(depth):
        taken[slot] = 0
    _note_last(at, found)
    for number in range(len(at)):
        position = at[number]
        found[MICRO, number] = -1
        if found[_LAST, position] != number:
            continue
        if not _admits(position, host, codes, numbers, encoded):
            continue
        fits = True
        for slot in range(depth):
            free[slot] = packed[position, slot]
            used[slot] = keys[position, slot]
        if encoded[HAS_MASK] == 1:
            for slot in range(depth):
                taken[slot] = 0 if mask[position, slot] else 1
        elif asks > 1:
            for slot in range(depth):
                taken[slot] = 0
        total, asked, leftover, column = 0, 0, 0, 0
        if policy >= FGD:
            values = encoded[VALUES_AT]
            leftover = MILLI_CPU_PER_MILLI_CARD * _idle(free, used, encoded, values)
            leftover += _host_of(position, host, encoded, 0).cpu_milli_after
            if asks == 0:
                total = _micro_of_change(
                    position, host, free, free, used, encoded, values, 0, idle, left_idle
                )
        for ask in range(asks):
            base = PLAN_LENGTH + ask * block
            need, rank = base + NEED * kinds, base + RANK * kinds
            order, scoring = encoded[base + ORDER * kinds], encoded[base + SCORING * kinds]
            is_wired = encoded[base + IS_WIRED * kinds] == 1
            firsts[ask] = _NO_NETWORK
            # One subtraction asks for memory, holders and compute at once (`packing`). The highest
            # key is the card that the order wants first, and says its kind and use as well.
            best, place = -1, 0
            for slot in range(depth):
                key = used[slot]
                kind = key & kind_mask
                if taken[slot] == 0 and (free[slot] - encoded[need + kind]) & GUARDS == GUARDS:
                    wanted[slot] = key + encoded[rank + kind]
                    if wanted[slot] > best:
                        best, place = wanted[slot], slot
                else:
                    wanted[slot] = -1
            if order == BY_VALUE:
                best, place = _by_value(
                    position, host, free, used, wanted, encoded, ask, idle, left_idle, gain
                )
            if is_wired:
                _group(position, networks, used, wanted, encoded, base, together)
            first = column
            for turn in range(encoded[base + NUMBER * kinds]):
                if is_wired:
                    place = _next_wired(wanted, together, depth)
                    best = wanted[place]
                elif turn > 0:
                    best = -1
                    for slot in range(depth):
                        if wanted[slot] > best:
                            best, place = wanted[slot], slot
                if best < 0:
                    fits = False
                    break
                wanted[place] = -1
                if is_wired and turn == 0:
                    firsts[ask] = networks[position, place]
                kind, amount = best & kind_mask, best >> shift
                asked += encoded[base + FIT_MICRO * kinds + kind]
                chosen[position, column] = place
                column += 1
                if policy >= FGD:
                    continue
                charged = encoded[base + CHARGED_MIB * kinds + kind]
                if scoring == COMPUTE:
                    left = ((free[place] >> CORES_SHIFT) & CORES_MASK) - CORES_BIAS
                    left -= encoded[base + CHARGED_PCT * kinds + kind]
                elif order == BY_USE:
                    left = encoded[base + SPARE_MIB * kinds + kind] - amount
                else:
                    left = (free[place] & MEMORY_MASK) - MEMORY_BIAS - charged
                leftover += left
                if policy == BINPACK:
                    if scoring == EACH:
                        in_use = encoded[base + SIZE_MIB * kinds + kind] - left
                        total += FULL_MICRO * in_use // encoded[base + DIVISOR_MIB * kinds + kind]
                    elif scoring == FIRST:
                        size = encoded[base + SIZE_MIB * kinds + kind]
                        if turn == 0 and size > 0:
                            total += FULL_MICRO * (size - left - charged) // size
                    else:
                        size = encoded[base + SIZE_PCT * kinds + kind]
                        if size > 0 and encoded[base + IS_SECOND_BEST * kinds + kind] == 0:
                            total += FULL_MICRO * (size - left) // size
                elif policy == SPREAD:
                    room = amount
                    if order != BY_HOLDERS:
                        room = (free[place] >> HOLDERS_SHIFT) & HOLDERS_MASK
                    counts = True
                    if scoring == FIRST:
                        counts = turn == 0 and encoded[base + SIZE_MIB * kinds + kind] > 0
                    elif scoring == COMPUTE:
                        counts = encoded[base + SIZE_PCT * kinds + kind] > 0
                        counts = counts and encoded[base + IS_SECOND_BEST * kinds + kind] == 0
                    if counts and room == HOLDERS_MOST:
                        total += FULL_MICRO
            if not fits:
                break
            if policy >= FGD:
                if order == BY_VALUE and column == first + 1:
                    # The points of a card that is chosen alone stand in its key.
                    total += best >> shift + TIE_BITS
                    less = idle[place] - left_idle[place]
                else:
                    for slot in range(depth):
                        gain[slot] = free[slot]
                    for one in range(first, column):
                        slot = chosen[position, one]
                        gain[slot] -= encoded[base + AMOUNT * kinds + (used[slot] & kind_mask)]
                    values = encoded[base + FAMILY_VALUES_AT * kinds]
                    total += _micro_of_change(
                        position, host, free, gain, used, encoded, values, ask, idle, left_idle
                    )
                    less = 0
                    for slot in range(depth):
                        less += idle[slot] - left_idle[slot]
                leftover -= MILLI_CPU_PER_MILLI_CARD * less
            if ask < asks - 1:
                _take(position, first, column, base, free, used, taken, encoded, chosen)
        if fits:
            if policy < FGD and asks > 0:
                total += _network_micro(encoded, firsts)
            elif policy < FGD and policy != NONE:
                total += _counted_micro(position, host, sizes, encoded)
            found[MICRO, number] = total
            found[OF_GIVEN, number] = asked
            found[LEFTOVER, number] = leftover
    return 0


@part
def _host_of(position: int, host: Ints, encoded: Ints, ask: int) -> Hosts:
    """A node's host before and after a device request."""
    return hosts(
        host[position, CPU],
        host[position, HOST_MEMORY],
        encoded[CHARGE_CPU],
        max(encoded[NEED_MEMORY], 0),
        ask > 0,
    )


@part
def _micro_of_change(
    position: int,
    host: Ints,
    free: Ints,
    after: Ints,
    used: Ints,
    encoded: Ints,
    values: int,
    ask: int,
    idle: Ints,
    left: Ints,
) -> int:
    """What a device request scores on a node whose cards have so much free `after` it; filled are
    `idle` and `left`, the free parts before and after.
    """
    kinds, kind_mask, policy = encoded[KIND_COUNT], encoded[KIND_MASK], encoded[POLICY]
    host_now = _host_of(position, host, encoded, ask)
    return micro_of(
        policy,
        change(free, after, used, encoded, values, kinds, kind_mask, policy, host_now, idle, left),
    )


@part
def _idle(free: Ints, used: Ints, encoded: Ints, values: int) -> int:
    """What is idle of all cards of a node (D,), in milli-cards."""
    total = 0
    for slot in range(len(free)):
        kind = used[slot] & encoded[KIND_MASK]
        total += idle_milli(free[slot], encoded[values + VALUED_SIZES + kind])
    return total


@part
def _by_value(
    position: int,
    host: Ints,
    free: Ints,
    used: Ints,
    wanted: Ints,
    encoded: Ints,
    ask: int,
    idle: Ints,
    left_idle: Ints,
    gain: Ints,
) -> tuple[int, int]:
    """Make the keys of the cards that will do (`wanted` at least 0) of what charging each is worth;
    the highest and its slot. Of cards of equal points the one with the least idle comes first.
    """
    kinds, kind_mask = encoded[KIND_COUNT], encoded[KIND_MASK]
    shift, policy = encoded[AMOUNT_SHIFT], encoded[POLICY]
    base = PLAN_LENGTH + ask * FIELDS * kinds
    rank, values = base + RANK * kinds, encoded[base + FAMILY_VALUES_AT * kinds]
    host_now = _host_of(position, host, encoded, ask)
    amounts = base + AMOUNT * kinds
    gains(
        free,
        used,
        wanted,
        encoded,
        values,
        kinds,
        kind_mask,
        policy,
        amounts,
        host_now,
        idle,
        left_idle,
        gain,
    )
    best, place, below = -1, 0, (1 << shift) - 1
    for slot in range(len(free)):
        if wanted[slot] >= 0:
            amount = micro_of(policy, gain[slot]) << TIE_BITS
            amount += CARD_MILLI - min(idle[slot], CARD_MILLI)
            key = (amount << shift) + (used[slot] & below)
            wanted[slot] = key + encoded[rank + (used[slot] & kind_mask)]
            if wanted[slot] > best:
                best, place = wanted[slot], slot
    return best, place


@part
def _take(
    position: int,
    first: int,
    end: int,
    base: int,
    free: Ints,
    used: Ints,
    taken: Ints,
    encoded: Ints,
    chosen: Shorts,
) -> None:
    """Charge the cards of one device request, for the pod's next one."""
    kinds, shift = encoded[KIND_COUNT], encoded[AMOUNT_SHIFT]
    order = encoded[base + ORDER * kinds]
    for column in range(first, end):
        slot = chosen[position, column]
        kind = used[slot] & encoded[KIND_MASK]
        free[slot] -= encoded[base + AMOUNT * kinds + kind]
        if encoded[base + EACH_ONCE * kinds] == 1:
            taken[slot] = 1
        # A partitioned card is of another kind afterwards; the amount of its key follows its use.
        used[slot] += encoded[base + AFTER * kinds + kind] - kind
        if order == BY_USE:
            used[slot] += encoded[base + CHARGED_MIB * kinds + kind] << shift
        elif order == BY_HOLDERS:
            used[slot] -= 1 << shift


@part
def _group(
    position: int,
    networks: Ints,
    used: Ints,
    wanted: Ints,
    encoded: Ints,
    base: int,
    together: Ints,
) -> None:
    """Give each good card the rank of its network: the more good cards the network has the higher,
    of equals the lower network. 0 for all if some chip does not tell its network
    (`devices.choosing._wired_together`).

    It is counted before the first card is taken, so that the rank of a network does not fall while
    its own cards are taken.
    """
    depth, chips = networks.shape[1], base + IS_CHIP * encoded[KIND_COUNT]
    is_known = True
    for slot in range(depth):
        together[slot] = 0
        if encoded[chips + (used[slot] & encoded[KIND_MASK])] == 1 and networks[position, slot] < 0:
            is_known = False
    if is_known:
        for slot in range(depth):
            if wanted[slot] >= 0:
                network = networks[position, slot]
                for other in range(depth):
                    if wanted[other] >= 0 and networks[position, other] == network:
                        together[slot] += _NETWORKS_MOST
                together[slot] -= network


@part
def _next_wired(wanted: Ints, together: Ints, depth: int) -> int:
    """The good card of the best network, of these the one with the highest key; 0 for none."""
    found = 0
    for slot in range(depth):
        if wanted[slot] >= 0 and (
            wanted[found] < 0
            or together[slot] > together[found]
            or (together[slot] == together[found] and wanted[slot] > wanted[found])
        ):
            found = slot
    return found


@part
def _network_micro(encoded: Ints, firsts: Ints) -> int:
    """Points for containers whose first chips are on one network, chip by chip
    (`policies.basic._network_micro`)."""
    asks, kinds, total = encoded[ASK_COUNT], encoded[KIND_COUNT], 0
    for ask in range(asks):
        chip = encoded[PLAN_LENGTH + ask * FIELDS * kinds + CHIP * kinds]
        if chip != ask or firsts[ask] == _NO_NETWORK:
            continue  # a chip is counted with the first device request that asks for it
        count, most, is_known = 0, 0, True
        for one in range(ask, asks):
            if encoded[PLAN_LENGTH + one * FIELDS * kinds + CHIP * kinds] != chip:
                continue
            count += 1
            is_known = is_known and firsts[one] >= 0
            equal = 0
            for other in range(ask, asks):
                if encoded[PLAN_LENGTH + other * FIELDS * kinds + CHIP * kinds] == chip:
                    equal += int(firsts[other] == firsts[one])
            most = max(most, equal)
        if is_known:
            total += NETWORK_MICRO * most // count
    return total


@part
def _counted_micro(position: int, host: Ints, sizes: Ints, encoded: Ints) -> int:
    """Points of counted resources, for a pod that asks for no devices."""
    total, first = 0, encoded[EXTENDED_AT]
    for at in range(first, first + 2 * encoded[EXTENDED_COUNT], 2):
        listed = sizes[encoded[at] + SIZE_EXTENDED, 0, position]
        unit = 1 + (listed >> COUNTED_BITS)
        size = listed // unit
        in_use = (listed - host[position, encoded[at]] + encoded[at + 1]) // unit
        share = FULL_MICRO * in_use // size if size > 0 else 0
        total += share if encoded[POLICY] == BINPACK else FULL_MICRO - share
    return total


# ---- points and ranks


def _no_terms(
    at: Ints, found: Ints, host: Ints, sizes: Ints, unrequested: Ints, encoded: Ints, parts: Ints
) -> int:
    return 0


def _then(loop: Callable[..., int], number: int, rest: Callable[..., int]) -> Callable[..., int]:
    """The plugins' terms up to row `number` of `TERMS`, each in its row of `parts`; how many count.
    A compiled loop cannot go through a list of functions, so they are chained, each knowing the
    one before.
    """

    @part
    def store(
        at: Ints,
        found: Ints,
        host: Ints,
        sizes: Ints,
        unrequested: Ints,
        encoded: Ints,
        parts: Ints,
    ) -> int:
        row: int = rest(at, found, host, sizes, unrequested, encoded, parts)
        start = encoded[encoded[TERMS_AT] + number]
        if start > 0:
            for one in range(len(at)):
                if found[MICRO, one] >= 0:
                    position = at[one]
                    parts[row, position] = loop(position, host, sizes, unrequested, encoded, start)
            row += 1
        return row

    return store


def _chain() -> Callable[..., int]:
    chain: Callable[..., int] = part(_no_terms)
    for number, term in enumerate(TERMS):
        chain = _then(term.loop, number, chain)
    return chain


_store_terms = _chain()


@part
def _rank_and_store(
    at: Ints,
    found: Ints,
    host: Ints,
    sizes: Ints,
    unrequested: Ints,
    fixed: Ints,
    encoded: Ints,
    rank: Ints,
    fit: Bools,
    given: Ints,
    parts: Ints,
    kept: Ints,
    top: Ints,
) -> int:
    """Add up the terms of what was found on the positions `at`, and store ranks.

    `fixed` (N,) is what nodes earn whatever is in use there, or (0,). Written to are `rank` and
    `fit` (N,); `given` (N,) or (1,), the points for how much is asked for of what is given, if that
    counts; `parts` (P + 1, N), the plugins' terms and in the last row the sum of all terms, or
    (0, 0); and `top`, the best of the row. Where nodes are compared with each other the ranks are
    not known yet: then the sum and, in `kept` (N,), the lowest bits are stored in their place.

    Returns by how much the number of nodes that fit grew.
    """
    grown, has_parts, is_compared = 0, parts.shape[0] > 0, encoded[IS_COMPARED] == 1
    terms = 0
    if has_parts:
        terms = _store_terms(at, found, host, sizes, unrequested, encoded, parts)
    weight, fit_weight, host_weight = (
        encoded[DEVICE_WEIGHT],
        encoded[FIT_WEIGHT],
        encoded[HOST_WEIGHT],
    )
    cpu_milli, memory_kib, host_policy = (
        encoded[CHARGE_CPU],
        encoded[CHARGE_KIB],
        encoded[HOST_POLICY],
    )
    for number in range(len(at)):
        position = at[number]
        if found[_LAST, position] != number:
            continue
        micro, before, total = found[MICRO, number], rank[position], -1
        if micro >= 0:
            of_given = found[OF_GIVEN, number]
            if encoded[MAY_EXCEED] == 1:
                micro, of_given = min(micro, POINTS_MOST), min(of_given, POINTS_MOST)
            micro *= weight
            if fit_weight > 0 and encoded[ASK_COUNT] > 0:
                given[min(position, len(given) - 1)] = of_given
                micro += of_given * fit_weight
            if host_policy != NONE:
                in_use = host[position, CPU_WEIGHT] * cpu_milli + host[position, HOST_SUM]
                in_use += host[position, KIB_WEIGHT] * memory_kib
                in_use >>= HOST_BITS + 1
                if host_policy == SPREAD:
                    in_use = FULL_MICRO - in_use
                micro += host_weight * in_use
            total = max(LEFTOVER_MOST - found[LEFTOVER, number], 0)
            if has_parts:
                if len(fixed) > 0:
                    micro += fixed[position]
                for row in range(terms):
                    micro += parts[row, position]
                parts[terms, position] = micro
                if is_compared:
                    kept[position] = total
                micro += encoded[CONSTANT_MICRO]
                if encoded[IS_CAPPED] == 1:
                    micro = min(micro, TOTAL_MOST)
            total += micro << LEFTOVER_BITS
        if is_compared:
            grown += int(total >= 0) - int(fit[position])
            fit[position] = total >= 0
        elif total != before:
            rank[position] = total
            fit[position] = total >= 0
            grown += int(total >= 0) - int(before >= 0)
            if max(before, total) >= top[FLOOR_RANK]:
                keep(top, position, before, total)
    return grown


# ---- ways in


_no_sizes = np.zeros((0, 0, 0), np.int64)
_no_mask: Bools = np.zeros((0, 0), np.bool_)


def _score_shares(
    at: Ints,
    found: Ints,
    host: Ints,
    packed: Ints,
    keys: Ints,
    codes: Ints,
    encoded: Ints,
    scratch: Ints,
    rank: Ints,
    fit: Bools,
    chosen: Shorts,
    top: Ints,
) -> int:
    """Both steps in one for what is asked for most: cards, where nothing counts but what is free on
    them and on the host. Half as many arrays, and they are the price of a call for few positions.
    `keys` and `host` stand in for arrays that are not looked at then.
    """
    sizes, mask, none = _no_sizes, _no_mask, np.zeros((0, 0), np.int64)
    _choose_cards(
        at, found, host, packed, keys, keys, sizes, codes, codes, mask, encoded, scratch, chosen
    )
    return _rank_and_store(
        at, found, host, sizes, host, codes, encoded, rank, fit, codes, none, codes, top
    )


def _value_keys(
    at: Ints,
    host: Ints,
    packed: Ints,
    keys: Ints,
    encoded: Ints,
    ask: int,
    scratch: Ints,
    made: Ints,
) -> int:
    """The keys `made` (M, D) of all cards, whether they will do or not, for one device request of
    an order by value, without what ranks their kinds. `host` (M, R), `packed` and `keys` (M, D) are
    of the positions alone.
    """
    free, used, wanted = scratch[_FREE], scratch[_USED], scratch[_WANTED]
    idle, left_idle, gain = scratch[_IDLE], scratch[_LEFT_IDLE], scratch[_GAIN]
    rank = PLAN_LENGTH + (ask * FIELDS + RANK) * encoded[KIND_COUNT]
    for number in range(len(at)):
        for slot in range(packed.shape[1]):
            free[slot], used[slot] = packed[number, slot], keys[number, slot]
            wanted[slot] = 0
        _by_value(number, host, free, used, wanted, encoded, ask, idle, left_idle, gain)
        for slot in range(packed.shape[1]):
            of_kind = encoded[rank + (used[slot] & encoded[KIND_MASK])]
            made[number, slot] = wanted[slot] - of_kind
    return 0


class Loops(NamedTuple):
    """The ways in, compiled or not."""

    score_shares: Callable[..., int]
    choose_cards: Callable[..., int]
    admit: Callable[..., int]
    rank_and_store: Callable[..., int]
    value_keys: Callable[..., int]
    is_compiled: bool = False

    def taken(self, array: Any) -> Any:
        """An array as these loops take it."""
        return array if self.is_compiled else array.data

    def listed(self, array: Ints) -> Any:
        """The same of one that is short and only read: positions, a request in numbers."""
        return array if self.is_compiled else array.tolist()


PLAIN = Loops(_score_shares, _choose_cards, _admit, _rank_and_store, _value_keys)
_I1, _I2, _I3 = "int64[::1]", "int64[:,::1]", "int64[:,:,::1]"
_B1, _B2, _SLOTS, _SCRATCH = (
    "b1[::1]",
    "b1[:,::1]",
    "uint16[:,::1]",
    _I2,
)


def _signature(*taken: str) -> str:
    return f"int64({', '.join(taken)})"


SIGNATURES = (
    _signature(_I1, _I2, _I2, _I2, _I2, _I1, _I1, _SCRATCH, _I1, _B1, _SLOTS, _I1),
    _signature(_I1, _I2, _I2, _I2, _I2, _I2, _I3, _I1, _I1, _B2, _I1, _SCRATCH, _SLOTS),
    _signature(_I1, _I2, _I2, _I1, _I1, _I1),
    _signature(_I1, _I2, _I2, _I3, _I2, _I1, _I1, _I1, _B1, _I1, _I2, _I1, _I1),
    _signature(_I1, _I2, _I2, _I2, _I1, "int64", _SCRATCH, _I2),
)
"""The types of what they take, in numba's words, in the order of `Loops`."""


class MachineCode:
    """The loops in use: compiled ones once `adapters.service.machine_code` brought them in."""

    loops: Loops = PLAIN
