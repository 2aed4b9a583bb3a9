"""The first half of the loops: whether a pod fits nodes, which of their cards it gets, and what the
device policy gives for these. `loops` says how they run, and `plan` what stands in `encoded`.
"""

from allotment.core.placement.policies.fill_ahead import fill_micro
from allotment.core.placement.policies.typical import CARD_MILLI
from allotment.core.placement.policies.valued import MILLI_CPU_PER_MILLI_CARD
from allotment.core.placement.rules.points import COUNTED_BITS, FULL_MICRO, NETWORK_MICRO
from allotment_board.loop_parts import (
    CPU,
    FOR_SHARES,
    FOR_WHOLE,
    HOST_MEMORY,
    PLUGIN,
    PODS,
    SIZE_EXTENDED,
    part,
)
from allotment_board.packing import (
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
from allotment_board.plan import (
    AFTER,
    AMOUNT,
    AMOUNT_SHIFT,
    ASK_COUNT,
    BINPACK,
    BY_HOLDERS,
    BY_USE,
    BY_VALUE,
    CHARGE_CPU,
    CHARGED_MIB,
    CHARGED_PCT,
    CHIP,
    COMPUTE,
    DIVISOR_MIB,
    EACH,
    EACH_ONCE,
    EXTENDED_AT,
    EXTENDED_COUNT,
    FAMILY_VALUES_AT,
    FIELDS,
    FILL_AHEAD,
    FIRST,
    FIT_MICRO,
    HAS_MASK,
    IS_CHIP,
    IS_SECOND_BEST,
    IS_WIRED,
    KIND_COUNT,
    KIND_MASK,
    LAST,
    LEFTOVER,
    MICRO,
    NEED,
    NEED_CPU,
    NEED_FOR_SHARES,
    NEED_FOR_WHOLE,
    NEED_MEMORY,
    NEED_PLUGIN,
    NEED_PODS,
    NONE,
    NUMBER,
    OF_GIVEN,
    ORDER,
    PLAN_LENGTH,
    POLICY,
    RANK,
    SCORING,
    SIZE_MIB,
    SIZE_PCT,
    SPARE_MIB,
    SPREAD,
    VALUES_AT,
)
from allotment_board.values import SIZES as VALUED_SIZES
from allotment_board.values import (
    TIE_BITS,
    Hosts,
    change,
    gains,
    hosts,
    idle_milli,
)

_FREE, _USED, _WANTED, _TAKEN, _TOGETHER, _FIRSTS, _IDLE, _LEFT_IDLE, _GAIN, SCRATCH = range(10)
"""Rows of `scratch` (SCRATCH, L), room for the choice of cards: each is as long as a node has
cards, or the pod device requests."""

part(fill_micro)
_NETWORKS_MOST = 1 << 31
_NO_NETWORK = -2


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
        or host[position, FOR_SHARES] < encoded[NEED_FOR_SHARES]
        or host[position, FOR_WHOLE] < encoded[NEED_FOR_WHOLE]
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
        found[LAST, at[number]] = number


@part
def choose_cards(
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
    # Rows are longer than that where a pod has more device requests than a node has cards.
    depth, asks, kinds = packed.shape[1], encoded[ASK_COUNT], encoded[KIND_COUNT]
    free, used = scratch[_FREE][:depth], scratch[_USED][:depth]
    wanted, taken = scratch[_WANTED][:depth], scratch[_TAKEN][:depth]
    together, firsts = scratch[_TOGETHER][:depth], scratch[_FIRSTS]
    idle, left_idle = scratch[_IDLE][:depth], scratch[_LEFT_IDLE][:depth]
    gain = scratch[_GAIN][:depth]
    kind_mask, shift, policy = encoded[KIND_MASK], encoded[AMOUNT_SHIFT], encoded[POLICY]
    block = FIELDS * kinds
    for slot in range(depth):
        taken[slot] = 0
    _note_last(at, found)
    for number in range(len(at)):
        position = at[number]
        found[MICRO, number] = -1
        if found[LAST, position] != number:
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
        if policy == FILL_AHEAD:
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
                if policy == FILL_AHEAD:
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
            if policy == FILL_AHEAD:
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
            if policy != FILL_AHEAD and asks > 0:
                total += _network_micro(encoded, firsts)
            elif policy != FILL_AHEAD and policy != NONE:
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
    kinds, kind_mask = encoded[KIND_COUNT], encoded[KIND_MASK]
    host_now = _host_of(position, host, encoded, ask)
    return fill_micro(
        change(free, after, used, encoded, values, kinds, kind_mask, host_now, idle, left)
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
    shift, base = encoded[AMOUNT_SHIFT], PLAN_LENGTH + ask * FIELDS * kinds
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
        amounts,
        host_now,
        idle,
        left_idle,
        gain,
    )
    best, place, below = -1, 0, (1 << shift) - 1
    for slot in range(len(free)):
        if wanted[slot] >= 0:
            amount = fill_micro(gain[slot]) << TIE_BITS
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
