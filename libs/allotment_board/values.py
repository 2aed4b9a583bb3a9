"""What nodes are worth to typical pods, as loops: for `fill-ahead`.

`policies.fill_ahead` says the same in plain Python, over one node's cards. Here a node is a
position of the columns, its cards are slots, and the mix is a block of the request's numbers
(`loops`), from its place `start` on: how many shapes there are; by kind of card (K kinds) its
memory (MiB, huge for kinds that the policy does not schedule), how many holders it takes, and
whether it takes some shape while it is idle; then for each shape what stands at the places of a
shape, and by kind its threshold, the memory of one unit, and what a unit fills of a card.

A node's value is a sum over shapes of what they could fill of it, less what the idle part of each
card takes off. What a shape could fill follows from two sums over the cards: how many units they
take, and what these fill. So charging a card changes the two sums by that card alone.

Amounts of cards are packed (`packing`), CPU is milli, host memory KiB, values are thirds of
10⁻⁹ cards.
"""

from typing import NamedTuple

from allotment.core.placement.policies.fill_ahead import rest_of
from allotment.core.placement.policies.typical import CARD_MILLI, HOST_MOST, PPM
from allotment.core.placement.rules.points import KIB_BITS
from allotment_board.loop_parts import part
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
    Ints,
)

part(rest_of)
_SHAPE_COUNT, SIZES = 0, 1
"""Behind the sizes come two more numbers of each kind."""
_BY_KIND = 3
NUMBER, CPU_MILLI, MEMORY_KIB, WEIGHT_PPM, UNIT_PCT, UNITS_MOST, NEED = range(7)
"""Places of a shape; from the last on what is said by kind."""
_SHAPE_BY_KIND = 3

TIE_BITS = 10
"""Enough for the free part of a card, 0 … 1000, below the points in a card's key."""


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
    where that is done already (`is_charged`), before and after are the same.
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
def _units(encoded: Ints, start: int, shape: int, kinds: int, kind: int, free: int) -> int:
    """How many units of a shape's request a card takes (`typical.units`)."""
    if (free - encoded[shape + NEED + kind]) & GUARDS != GUARDS:
        return 0
    units: int = encoded[shape + UNITS_MOST]
    if units > 1:
        held = HOLDERS_MOST - ((free >> HOLDERS_SHIFT) & HOLDERS_MASK)
        units = min(units, encoded[start + SIZES + kinds + kind] - held)
        need_mib = encoded[shape + NEED + kinds + kind]
        if need_mib > 0:
            units = min(units, ((free & MEMORY_MASK) - MEMORY_BIAS) // need_mib)
        need_pct = encoded[shape + UNIT_PCT]
        if need_pct > 0:
            units = min(units, (((free >> CORES_SHIFT) & CORES_MASK) - CORES_BIAS) // need_pct)
    return units


@part
def _sums(
    encoded: Ints, start: int, shape: int, kinds: int, kind_mask: int, free: Ints, used: Ints
) -> tuple[int, int]:
    """How many units of a shape's request a node's cards take, and what these fill."""
    units, fill, need = 0, 0, shape + NEED
    for slot in range(len(free)):
        kind = used[slot] & kind_mask
        one = _units(encoded, start, shape, kinds, kind, free[slot])
        units += one
        fill += one * encoded[need + 2 * kinds + kind]
    return units, fill


@part
def _filled(
    encoded: Ints, shape: int, units: int, fill: int, cpu_milli: int, memory_kib: int
) -> int:
    """`typical.filled_milli` from the two sums."""
    number: int = encoded[shape + NUMBER]
    pods = units // number
    if pods == 0:
        return 0
    filled = fill * (pods * number) // units
    most = filled
    cpu_needed, kib_needed = encoded[shape + CPU_MILLI], encoded[shape + MEMORY_KIB]
    if cpu_needed > 0:
        most = min(most, filled * cpu_milli // (cpu_needed * pods))
    if kib_needed > 0:
        most = min(most, filled * memory_kib // (kib_needed * pods))
    return most


@part
def _rest(encoded: Ints, start: int, kinds: int, kind: int, free: int, idle: int) -> int:
    """What the idle part of a card takes off its node's value."""
    is_dead = encoded[start + SIZES + 2 * kinds + kind] == 1
    shape = start + SIZES + _BY_KIND * kinds
    for _ in range(encoded[start + _SHAPE_COUNT]):
        if (free - encoded[shape + NEED + kind]) & GUARDS == GUARDS:
            is_dead = False
            break
        shape += NEED + _SHAPE_BY_KIND * kinds
    free_mib = max((free & MEMORY_MASK) - MEMORY_BIAS, 0)
    return rest_of(PPM * free_mib // encoded[start + SIZES + kind], idle, is_dead)


@part
def gains(
    free: Ints,
    used: Ints,
    wanted: Ints,
    encoded: Ints,
    start: int,
    kinds: int,
    kind_mask: int,
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
        size_mib, after = encoded[start + SIZES + kind], free[slot] - encoded[amounts + kind]
        idle[slot], left[slot] = idle_milli(free[slot], size_mib), idle_milli(after, size_mib)
        gain[slot] = 0
        if wanted[slot] >= 0:
            gain[slot] = _rest(encoded, start, kinds, kind, free[slot], idle[slot])
            gain[slot] -= _rest(encoded, start, kinds, kind, after, left[slot])
    cpu_milli, memory_kib = host.cpu_milli_after, host.memory_kib_after
    shape = start + SIZES + _BY_KIND * kinds
    for _ in range(encoded[start + _SHAPE_COUNT]):
        units, fill = _sums(encoded, start, shape, kinds, kind_mask, free, used)
        before = _filled(encoded, shape, units, fill, host.cpu_milli, host.memory_kib)
        kept = _filled(encoded, shape, units, fill, cpu_milli, memory_kib)
        weight, need = encoded[shape + WEIGHT_PPM], shape + NEED
        for slot in range(depth):
            if wanted[slot] < 0:
                continue
            kind = used[slot] & kind_mask
            usable = kept
            # A card that does not take the shape now takes none of it when it is charged.
            if (free[slot] - encoded[need + kind]) & GUARDS == GUARDS:
                after = free[slot] - encoded[amounts + kind]
                more = _units(encoded, start, shape, kinds, kind, after)
                more -= _units(encoded, start, shape, kinds, kind, free[slot])
                filled = fill + more * encoded[need + 2 * kinds + kind]
                usable = _filled(encoded, shape, units + more, filled, cpu_milli, memory_kib)
            gain[slot] += weight * (usable - before)
        shape += NEED + _SHAPE_BY_KIND * kinds


@part
def change(
    free: Ints,
    after: Ints,
    used: Ints,
    encoded: Ints,
    start: int,
    kinds: int,
    kind_mask: int,
    host: Hosts,
    idle: Ints,
    left: Ints,
) -> int:
    """By how much the node's value changes if its cards (D,) have so much free `after` it. Filled
    are `idle` and `left`, the free parts before and after.
    """
    total = 0
    for slot in range(len(free)):
        kind = used[slot] & kind_mask
        size_mib = encoded[start + SIZES + kind]
        idle[slot], left[slot] = idle_milli(free[slot], size_mib), idle_milli(after[slot], size_mib)
        total += _rest(encoded, start, kinds, kind, free[slot], idle[slot])
        total -= _rest(encoded, start, kinds, kind, after[slot], left[slot])
    shape = start + SIZES + _BY_KIND * kinds
    for _ in range(encoded[start + _SHAPE_COUNT]):
        units, fill = _sums(encoded, start, shape, kinds, kind_mask, free, used)
        before = _filled(encoded, shape, units, fill, host.cpu_milli, host.memory_kib)
        units, fill = _sums(encoded, start, shape, kinds, kind_mask, after, used)
        then = _filled(encoded, shape, units, fill, host.cpu_milli_after, host.memory_kib_after)
        total += encoded[shape + WEIGHT_PPM] * (then - before)
        shape += NEED + _SHAPE_BY_KIND * kinds
    return total
