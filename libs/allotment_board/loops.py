"""Scoring as plain loops over columns: whether the pod fits, its cards, its points, the best nodes.

This is the only reading of these rules for many nodes; the rules themselves are `predicates.fits`,
`devices.choosing`, each device policy's `points` and `scores.score`, on one node of the books, and
property tests hold the two together. The loops run in two ways, with the same integers: compiled by
numba (`allotment_board.machine_code`), or as ordinary Python, which is quick enough for small
clusters. As ordinary Python they take memory views and lists in place of arrays: an element of a
view is a Python integer, at a third of the price of NumPy's scalar.

A compiled call costs as much for every array that is handed over as for a node that is scored,
so the loops are within the functions, room for working is one array, and a request comes as one
array of numbers, `encoded`; `plan` says what stands in it. Which cards a pod gets is in `choice`;
here are points and ranks, and the ways in.

Axes: N nodes in name order, D cards a node, K kinds of cards, M positions to score. All integers
are int64; points are micro-points, memory of cards is MiB, compute is percent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from allotment.core.placement.rules.points import (
    FULL_MICRO,
    HOST_BITS,
    LEFTOVER_BITS,
    LEFTOVER_MOST,
    POINTS_MOST,
    TOTAL_MOST,
)
from allotment.core.placement.rules.terms import TERMS
from allotment_board.choice import choose_cards
from allotment_board.loop_parts import CPU_WEIGHT, HOST_SUM, KIB_WEIGHT, part
from allotment_board.packing import Bools, Ints
from allotment_board.plan import (
    ASK_COUNT,
    CHARGE_CPU,
    CHARGE_KIB,
    CONSTANT_MICRO,
    DEVICE_WEIGHT,
    FIT_WEIGHT,
    HOST_POLICY,
    HOST_WEIGHT,
    IS_CAPPED,
    IS_COMPARED,
    LAST,
    LEFTOVER,
    MAY_EXCEED,
    MICRO,
    NONE,
    OF_GIVEN,
    SPREAD,
    TERMS_AT,
)
from allotment_board.term_loops import LOOPS
from allotment_board.top import FLOOR_RANK, keep


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
        if term.name in LOOPS:
            chain = _then(LOOPS[term.name].loop, number, chain)
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
        if found[LAST, position] != number:
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


class Loops(NamedTuple):
    """The ways in, compiled or not."""

    choose_cards: Callable[..., int]
    rank_and_store: Callable[..., int]
    is_compiled: bool = False

    def taken(self, array: Any) -> Any:
        """An array as these loops take it."""
        return array if self.is_compiled else array.data

    def listed(self, array: Ints) -> Any:
        """The same of one that is short and only read: positions, a request in numbers."""
        return array if self.is_compiled else array.tolist()


PLAIN = Loops(choose_cards, _rank_and_store)
_I1, _I2, _I3 = "int64[::1]", "int64[:,::1]", "int64[:,:,::1]"
_B1, _B2, _SLOTS = "b1[::1]", "b1[:,::1]", "uint16[:,::1]"


def _signature(*taken: str) -> str:
    return f"int64({', '.join(taken)})"


SIGNATURES = (
    _signature(_I1, _I2, _I2, _I2, _I2, _I2, _I3, _I1, _I1, _B2, _I1, _I2, _SLOTS),
    _signature(_I1, _I2, _I2, _I3, _I2, _I1, _I1, _I1, _B1, _I1, _I2, _I1, _I1),
)
"""The types of what they take, in numba's words, in the order of `Loops`."""


class MachineCode:
    """The loops in use: compiled ones once `allotment_board.machine_code` brought them in."""

    loops: Loops = PLAIN
