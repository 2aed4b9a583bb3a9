"""A mix compiled for columns, and nodes' cards as policies that look ahead see them.

Letters in shapes: S shapes of the mix, K card kinds, M nodes of D cards.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from allotment.core.placement.board.arrays import HUGE
from allotment.core.placement.board.columns import Columns
from allotment.core.placement.board.packing import (
    MEMORY_MOST,
    NEVER,
    Bools,
    Ints,
    covers,
    memory_mib,
)
from allotment.core.placement.board.shapes import compile_shape
from allotment.core.placement.policies.base import View
from allotment.core.placement.policies.typical import CARD_MILLI, CARDS_MOST, HOST_MOST, Mix
from allotment.core.placement.rules.points import KIB_BITS
from allotment.core.placement.rules.score_term import CPU, HOST_MEMORY

_card = np.array(CARD_MILLI)
_zero = np.array(0)
_host_most = np.array(HOST_MOST)
_kib_bits = np.array(KIB_BITS)


class Tables(NamedTuple):
    """The shapes that count, over the kinds that columns know.

    `need` is (S, K), `sizes_mib` (K,), the others are (S, 1). Shapes of several cards come first.
    """

    sizes_mib: Ints
    """What to divide memory by; huge for cards that the policy does not schedule."""
    need: Ints
    number: Ints
    cpu_milli: Ints
    memory_kib: Ints
    worth_milli: Ints
    weight_ppm: Ints
    many: int
    """How many shapes want several cards."""


class HostColumns(NamedTuple):
    """Free CPU (milli, from 0 to `HOST_MOST`) and memory (bytes, as it is) of nodes.

    (2, M): before a charge and after it.
    """

    cpu_milli: Ints
    memory_bytes: Ints

    def memory_kib(self) -> Ints:
        """Free memory (KiB), from 0 to `HOST_MOST`."""
        return _roomy(self.memory_bytes >> _kib_bits)


class Cards(NamedTuple):
    """The cards of nodes: amounts are (D, M) or, before and after a charge, (2, D, M).

    Nodes come last because they are many and cards few: NumPy's inner loops are then long ones.
    """

    packed: Ints
    idle_milli: Ints
    """As `card_milli`."""
    good: Bools
    """(S, D, M) or (S, 2, D, M): which shapes a card would take."""

    def now(self, number: int) -> "Cards":
        """One of before (0) and after (1)."""
        return Cards(self.packed[number], self.idle_milli[number], self.good[:, number])


def look(tables: Tables, packed: Ints, kind: Ints) -> Cards:
    """Cards (D, M) with these amounts free: `packed` is as `kind`, or has a dimension before."""
    need = tables.need.take(kind, axis=1, mode="clip")
    if packed.ndim > kind.ndim:
        need = need[:, None]
    idle = np.maximum(memory_mib(packed), _zero)
    idle *= _card
    idle //= tables.sizes_mib.take(kind)
    return Cards(packed, idle, covers(packed, need))


def hosts(view: View, nodes: Ints, cpu_milli: int = 0, memory_bytes: int = 0) -> HostColumns:
    """Nodes of the view before and after they give CPU and memory."""
    charge = np.array([[[0], [cpu_milli]], [[0], [memory_bytes]]], np.int64)
    return HostColumns(
        _roomy(view.host[CPU].take(nodes) - charge[0]),
        view.host[HOST_MEMORY].take(nodes) - charge[1],
    )


def _roomy(free: Ints) -> Ints:
    """`typical.room` of many amounts, in place."""
    np.maximum(free, _zero, out=free)
    np.minimum(free, _host_most, out=free)
    return free


def compile_mix(columns: Columns, mix: Mix, family: str | None) -> Tables:
    """The shapes with devices (of one family if it is given) and with weight."""
    asked = [
        (shape, ask)
        for shape in mix
        if (ask := shape.ask) is not None
        and shape.weight_ppm
        and (family is None or ask.family == family)
    ]
    asked.sort(key=lambda item: item[1].count <= 1)
    policy = columns.state.policy
    sizes = np.full(columns.layout.kinds_most, HUGE, np.int64)
    for number, known in enumerate(columns.kinds):
        if known.family in policy.families:
            sizes[number] = max(min(known.memory_mib, MEMORY_MOST), 1)
    need = np.full((len(asked), columns.layout.kinds_most), NEVER, np.int64)
    for row, (shape, _) in enumerate(asked):
        compiled = compile_shape(columns, shape.request, policy)
        if compiled.asks:
            need[row] = compiled.asks[0].need_by_amount

    def column(values: Iterator[int]) -> Ints:
        return np.array(list(values), np.int64).reshape(-1, 1)

    return Tables(
        sizes,
        need,
        column(min(max(ask.count, 1), CARDS_MOST + 1) for _, ask in asked),
        column(min(shape.request.cpu_milli, HOST_MOST) for shape, _ in asked),
        column(min(shape.request.memory_bytes >> KIB_BITS, HOST_MOST) for shape, _ in asked),
        column(min(shape.worth_milli, CARDS_MOST * CARD_MILLI) for shape, _ in asked),
        column(shape.weight_ppm for shape, _ in asked),
        sum(ask.count > 1 for _, ask in asked),
    )
