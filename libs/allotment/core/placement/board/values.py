"""What nodes are worth to typical pods, as loops: for device policies that look ahead.

`policies.valued` says the same in plain Python, over one node's cards. Here a node is a position of
the columns, its cards are slots, and the mix is a block of the request's numbers (`loops`), from
its place `start` on: how many shapes there are, then the memory of a card by kind (MiB, huge for
kinds that the policy does not schedule), then for each shape what stands at the places of a shape,
behind which are its thresholds by kind.

Amounts of cards are packed (`packing`), CPU is milli, host memory KiB, values are 10⁻⁹ cards.
"""

from typing import NamedTuple

from allotment.core.placement.board.packing import GUARDS, MEMORY_BIAS, MEMORY_MASK, Ints
from allotment.core.placement.policies.fgd import fgd_micro
from allotment.core.placement.policies.headroom import headroom_micro
from allotment.core.placement.policies.net_headroom import MOST_FILLED
from allotment.core.placement.policies.typical import CARD_MILLI, HOST_MOST, PPM
from allotment.core.placement.rules.points import KIB_BITS
from allotment.core.placement.rules.score_term import part

FGD, HEADROOM, NET_HEADROOM = 3, 4, 5
"""What the plan says of the policy (`loops.POLICY`); smaller numbers are of those that look at the
pod's own cards alone."""

_SHAPE_COUNT, SIZES = 0, 1
NUMBER, CPU_MILLI, MEMORY_KIB, WORTH_MILLI, WEIGHT_PPM, NEED = range(6)
"""Places of a shape."""

TIE_BITS = 10
"""Enough for the free part of a card, 0 … 1000, below the points in a card's key."""
_NO_LIMIT = 1 << 62


class Hosts(NamedTuple):
    """What a host has free before a device request and after it, as it counts."""

    cpu_milli: int
    memory_kib: int
    cpu_milli_after: int
    memory_kib_after: int


@part
def _roomy(free: int) -> int:
    """`typical.room`."""
    return min(max(free, 0), HOST_MOST)


@part
def hosts(
    cpu_milli: int, memory_bytes: int, charged_milli: int, charged_bytes: int, is_charged: bool
) -> Hosts:
    """A host with this much free. It is charged once for the pod, with its first device request:
    where it is so already (`is_charged`), before and after are the same.
    """
    after_milli = _roomy(cpu_milli - charged_milli)
    after_kib = _roomy((memory_bytes - charged_bytes) >> KIB_BITS)
    if is_charged:
        return Hosts(after_milli, after_kib, after_milli, after_kib)
    return Hosts(_roomy(cpu_milli), _roomy(memory_bytes >> KIB_BITS), after_milli, after_kib)


@part
def idle_milli(free: int, size_mib: int) -> int:
    """`typical.card_milli`."""
    return CARD_MILLI * max((free & MEMORY_MASK) - MEMORY_BIAS, 0) // size_mib


@part
def _limit(policy: int, encoded: Ints, shape: int, cpu_milli: int, memory_kib: int) -> int:
    """The most that the host lets a shape have of a node's cards."""
    cpu_needed, kib_needed = encoded[shape + CPU_MILLI], encoded[shape + MEMORY_KIB]
    if policy == FGD:
        return _NO_LIMIT if cpu_milli >= cpu_needed else 0
    limit, worth = _NO_LIMIT, encoded[shape + WORTH_MILLI]
    if cpu_needed > 0:
        limit = min(limit, cpu_milli * worth // cpu_needed)
    if kib_needed > 0:
        limit = min(limit, memory_kib * worth // kib_needed)
    return limit


@part
def _usable(policy: int, encoded: Ints, shape: int, cards: int, idle: int, limit: int) -> int:
    """What a shape has of a node on which so many cards would take it, with so much idle."""
    number = encoded[shape + NUMBER]
    if policy == FGD:
        usable = idle if cards >= number else 0
    elif number > 1:
        usable = cards // number * encoded[shape + WORTH_MILLI]
    else:
        usable = cards * encoded[shape + WORTH_MILLI]
    return min(usable, limit)


@part
def _counts_idle(policy: int) -> int:
    """What an idle milli-card takes off a node's value."""
    return 0 if policy == HEADROOM else PPM


@part
def gains(
    free: Ints,
    used: Ints,
    wanted: Ints,
    encoded: Ints,
    start: int,
    kinds: int,
    kind_mask: int,
    policy: int,
    amounts: int,
    host: Hosts,
    idle: Ints,
    left: Ints,
    gain: Ints,
) -> None:
    """By how much the node's value changes if one card alone is charged, for each that is `wanted`
    (at least 0). `amounts` is where in `encoded` begins what is taken off a card, by kind.

    Filled for all slots (D,) are `idle` and `left`, the free part before and after, and `gain`.
    """
    depth = len(gain)
    for slot in range(depth):
        kind = used[slot] & kind_mask
        size_mib = encoded[start + SIZES + kind]
        idle[slot] = idle_milli(free[slot], size_mib)
        left[slot] = idle_milli(free[slot] - encoded[amounts + kind], size_mib)
        gain[slot] = _counts_idle(policy) * (idle[slot] - left[slot])
    shape = start + SIZES + kinds
    for _ in range(encoded[start + _SHAPE_COUNT]):
        need = shape + NEED
        cards, of_cards = 0, 0
        for slot in range(depth):
            if (free[slot] - encoded[need + (used[slot] & kind_mask)]) & GUARDS == GUARDS:
                cards += 1
                of_cards += idle[slot]
        before = _usable(
            policy,
            encoded,
            shape,
            cards,
            of_cards,
            _limit(policy, encoded, shape, host.cpu_milli, host.memory_kib),
        )
        limit = _limit(policy, encoded, shape, host.cpu_milli_after, host.memory_kib_after)
        weight = encoded[shape + WEIGHT_PPM]
        # Nearly all that differs from card to card is whether it still takes the shape.
        for slot in range(depth):
            if wanted[slot] < 0:
                continue
            kind = used[slot] & kind_mask
            then, of_then = cards, of_cards
            if (free[slot] - encoded[need + kind]) & GUARDS == GUARDS:
                after = free[slot] - encoded[amounts + kind]
                if (after - encoded[need + kind]) & GUARDS == GUARDS:
                    of_then += left[slot] - idle[slot]
                else:
                    then -= 1
                    of_then -= idle[slot]
            usable = _usable(policy, encoded, shape, then, of_then, limit)
            gain[slot] += weight * (usable - before)
        shape += NEED + kinds


@part
def change(
    free: Ints,
    after: Ints,
    used: Ints,
    encoded: Ints,
    start: int,
    kinds: int,
    kind_mask: int,
    policy: int,
    host: Hosts,
) -> int:
    """By how much the node's value changes if its cards (D,) have so much free `after` it."""
    depth, total = len(free), 0
    for slot in range(depth):
        size_mib = encoded[start + SIZES + (used[slot] & kind_mask)]
        less = idle_milli(free[slot], size_mib) - idle_milli(after[slot], size_mib)
        total += _counts_idle(policy) * less
    shape = start + SIZES + kinds
    for _ in range(encoded[start + _SHAPE_COUNT]):
        cards, of_cards, then, of_then = 0, 0, 0, 0
        for slot in range(depth):
            kind = used[slot] & kind_mask
            size_mib, need = encoded[start + SIZES + kind], encoded[shape + NEED + kind]
            if (free[slot] - need) & GUARDS == GUARDS:
                cards += 1
                of_cards += idle_milli(free[slot], size_mib)
            if (after[slot] - need) & GUARDS == GUARDS:
                then += 1
                of_then += idle_milli(after[slot], size_mib)
        limit = _limit(policy, encoded, shape, host.cpu_milli, host.memory_kib)
        before = _usable(policy, encoded, shape, cards, of_cards, limit)
        limit = _limit(policy, encoded, shape, host.cpu_milli_after, host.memory_kib_after)
        usable = _usable(policy, encoded, shape, then, of_then, limit)
        total += encoded[shape + WEIGHT_PPM] * (usable - before)
        shape += NEED + kinds
    return total


@part
def micro_of(policy: int, gain: int) -> int:
    """Micro-points, from 0 to 100 points, for a change of a node's value."""
    if policy == FGD:
        return fgd_micro(gain)
    if policy == NET_HEADROOM:
        return headroom_micro(gain - MOST_FILLED)
    return headroom_micro(gain)
