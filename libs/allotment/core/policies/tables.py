"""A mix compiled for columns, and nodes' cards as policies that look ahead see them.

Letters in shapes: S shapes of the mix, K card kinds, M nodes of D cards, C single cards.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from allotment.core.columns import CPU, HOST_MEMORY, HUGE, Columns
from allotment.core.packing import MEMORY_MOST, NEVER, Bools, Ints, covers, memory_mib
from allotment.core.points import KIB_BITS
from allotment.core.policies.base import View
from allotment.core.policies.typical import CARD_MILLI, HOST_MOST, Mix
from allotment.core.shapes import compile_shape

_card = np.array(CARD_MILLI)
_zero = np.array(0)
_host_most = np.array(HOST_MOST)
_kib_bits = np.array(KIB_BITS)


class Tables(NamedTuple):
    """The shapes that count, over the kinds that columns know.

    `need` is (S, K), `sizes_mib` (K,), the others are (S, 1).
    """

    sizes_mib: Ints
    """What to divide memory by; huge for cards that the policy does not schedule."""
    need: Ints
    number: Ints
    cpu_milli: Ints
    memory_kib: Ints
    worth_milli: Ints
    weight_ppm: Ints


class HostColumns(NamedTuple):
    """Free CPU (milli) and memory (KiB) of nodes, from 0 to `HOST_MOST`, as (M,)."""

    cpu_milli: Ints
    memory_kib: Ints


class Cards(NamedTuple):
    """The cards of some nodes."""

    packed: Ints
    """(M, D)"""
    kind: Ints
    """(M, D)"""
    idle_milli: Ints
    """(M, D) as `card_milli`."""
    good: Bools
    """(S, M, D): which shapes a card would take."""

    def at(self, place: Ints) -> "Cards":
        """Single cards, by their places in the flattened (M × D) arrays: (C,) and (S, C)."""
        flat = len(self.good), -1
        return Cards(
            self.packed.take(place),
            self.kind.take(place),
            self.idle_milli.take(place),
            self.good.reshape(flat).take(place, axis=1),
        )


def look(tables: Tables, packed: Ints, kind: Ints) -> Cards:
    """Cards with these amounts free, of any shape."""
    good = covers(packed, tables.need.take(kind, axis=1, mode="clip"))
    return Cards(packed, kind, idle_milli(tables, packed, kind), good)


def idle_milli(tables: Tables, packed: Ints, kind: Ints) -> Ints:
    """`card_milli` of cards, of any shape."""
    idle = np.maximum(memory_mib(packed), _zero)
    idle *= _card
    idle //= tables.sizes_mib.take(kind)
    return idle


def hosts(view: View, at: Ints, cpu_milli: int = 0, memory_bytes: int = 0) -> HostColumns:
    """The hosts of nodes `at` (M,) of the view with this much less free than there is."""
    cpu = view.host[CPU].take(at) - cpu_milli
    memory = view.host[HOST_MEMORY].take(at) - memory_bytes >> _kib_bits
    return HostColumns(
        np.minimum(np.maximum(cpu, _zero), _host_most),
        np.minimum(np.maximum(memory, _zero), _host_most),
    )


def compile_mix(columns: Columns, mix: Mix, family: str | None) -> Tables:
    """The shapes with devices (of one family if it is given) and with weight."""
    asked = [
        (shape, ask)
        for shape in mix
        if (ask := shape.ask) is not None
        and shape.weight_ppm
        and (family is None or ask.family == family)
    ]
    policy = columns.state.policy
    sizes = np.full(columns.layout.kinds_most, HUGE, np.int64)
    for number, known in enumerate(columns.kinds):
        if known.family in policy.families:
            sizes[number] = max(min(known.memory_mib, MEMORY_MOST), 1)
    need = np.full((len(asked), columns.layout.kinds_most), NEVER, np.int64)
    for row, (shape, _) in enumerate(asked):
        compiled = compile_shape(columns, shape.request, policy)
        if compiled.asks:
            need[row] = compiled.asks[0].need

    def column(values: Iterator[int]) -> Ints:
        return np.array(list(values), np.int64).reshape(-1, 1)

    return Tables(
        sizes,
        need,
        column(max(ask.count, 1) for _, ask in asked),
        column(shape.request.cpu_milli for shape, _ in asked),
        column(shape.request.memory_bytes >> KIB_BITS for shape, _ in asked),
        column(shape.worth_milli for shape, _ in asked),
        column(shape.weight_ppm for shape, _ in asked),
    )
