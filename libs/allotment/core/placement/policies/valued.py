"""What policies that look ahead share: nodes have a value; where it suffers least a pod goes.

A policy of this kind says what a node's cards and host are worth to a mix of typical pods, once in
plain loops and once on columns; everything else follows: the card whose charge costs least is
preferred (of equals the one with the least free), a node scores by what the choice costs, and of
equal nodes the fullest one wins: least CPU (milli) + 16 × free milli-cards left, so that 128 CPUs
weigh as much as 8 cards.

Device requests of one pod are scored one after the other, each with the shapes of its family; the
first one bears the pod's CPU and memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from allotment.core.ledger.model import Node
from allotment.core.ledger.partitions import Piece
from allotment.core.placement.board.cards import CardKind, Keys
from allotment.core.placement.board.columns import Columns
from allotment.core.placement.board.packing import Bools, Ints
from allotment.core.placement.board.shapes import Ask, Shape
from allotment.core.placement.devices import by_family
from allotment.core.placement.devices.choosing import Pick
from allotment.core.placement.devices.free import Free, need_memory_mib
from allotment.core.placement.policies.base import Points, View
from allotment.core.placement.policies.tables import (
    Cards,
    HostColumns,
    Tables,
    compile_mix,
    hosts,
    look,
)
from allotment.core.placement.policies.typical import CARD_MILLI, Mix, card_milli, cards_of, room
from allotment.core.placement.rules.points import LEFTOVER_MOST
from allotment_proto.facts import DeviceRequest, PodRequest, Policy

MILLI_CPU_PER_MILLI_CARD = 16
_TIE_BITS = 10
"""Enough for the free part of a card, 0 … 1000."""

_card = np.array(CARD_MILLI)
_zero = np.array(0)
_tie_bits = np.array(_TIE_BITS)
_ones = [np.array((1 << bits) - 1) for bits in range(63)]
_sum = np.add.reduce
_any = np.logical_or.reduce


class Host(NamedTuple):
    """Free CPU (milli) and memory (bytes) of one node."""

    cpu_milli: int
    memory_bytes: int


class _MadeFor(NamedTuple):
    kinds: list[CardKind]
    number: int
    layout: Keys
    policy: Policy


class Valued(ABC):
    """A policy that values nodes. Subclasses say what a node is worth and what a change scores."""

    name = ""
    order = "preferred"

    def __init__(self, mix: Mix = ()) -> None:
        self.mix = mix
        self._made: dict[str | None, Tables] = {}
        self._made_for: _MadeFor | None = None

    # ---- what a subclass says

    @abstractmethod
    def value(self, family: str, cards: Sequence[Free], host: Host) -> int:
        """What the family's cards are worth with this much of the host free."""

    @abstractmethod
    def values(self, tables: Tables, cards: Cards, host: HostColumns, now: int) -> Ints:
        """The same for nodes (M,) with cards (D, M) and one side of the hosts."""

    @abstractmethod
    def gains_each(self, tables: Tables, cards: Cards, host: HostColumns) -> Ints:
        """How much nodes' values change if only this card is charged: (D, M) from (2, D, M).

        Any number for cards that cannot be charged.
        """

    @abstractmethod
    def micro(self, gain: int) -> int:
        """Micro-points, from 0 to 100 points, for a change of the value."""

    @abstractmethod
    def micros(self, gain: Ints) -> Ints:
        """The same for many."""

    # ---- plain loops

    def prefer(
        self,
        node: Node,
        request: PodRequest,
        wanted: DeviceRequest,
        cards: Sequence[Free],
        policy: Policy,
    ) -> Sequence[Free]:
        known = {free.card.fact.id: free for free in cards}
        family = wanted.family
        full = [known.get(free.card.fact.id, free) for free in cards_of(node, policy)[family]]
        before, after = _hosts(node, request, wanted)
        worth = self.value(family, full, before)

        def rank(free: Free) -> tuple[int, int]:
            charged = [_charged(f, wanted, policy) if f is free else f for f in full]
            gain = self.value(family, charged, after) - worth
            return -self.micro(gain), card_milli(free)

        return sorted(cards, key=rank)

    def points(
        self, node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
    ) -> Points:
        families = {name: list(cards) for name, cards in cards_of(node, policy).items()}
        micro = 0
        if not picks:
            before, after = Host(node.cpu_milli_free, node.memory_bytes_free), _after(node, request)
            micro = self.micro(
                sum(
                    self.value(name, cards, after) - self.value(name, cards, before)
                    for name, cards in families.items()
                )
            )
        for wanted, ids in _asks(request, picks):
            cards = families[wanted.family]
            charged = [_charged(f, wanted, policy) if f.card.fact.id in ids else f for f in cards]
            before, after = _hosts(node, request, wanted)
            gain = self.value(wanted.family, charged, after)
            micro += self.micro(gain - self.value(wanted.family, cards, before))
            families[wanted.family] = charged
        left = sum(card_milli(free) for cards in families.values() for free in cards)
        cpu_milli = _after(node, request).cpu_milli
        leftover = room(cpu_milli) + MILLI_CPU_PER_MILLI_CARD * left
        return Points(micro, min(leftover, LEFTOVER_MOST))

    # ---- columns

    def bare(self, view: View, shape: Shape) -> tuple[Ints | None, Ints | None]:
        if shape.asks:
            return None, None
        tables = self.tables(view.columns)
        packed, kind = _of_nodes(view, _all(view))
        cards, host = look(tables, packed, kind), _hosts_on(view, _all(view), shape)
        gain = self.values(tables, cards, host, 1) - self.values(tables, cards, host, 0)
        return self.micros(gain), _leftover(cards, host)

    def keys(self, view: View, shape: Shape, ask: Ask, good: Bools) -> Ints:
        columns = view.columns
        nodes = _any(good, axis=1).nonzero()[0]
        tables = self.tables(columns, ask.request.family)
        packed, kind = _of_nodes(view, nodes)
        both = np.empty((2, *packed.shape), np.int64)
        both[0] = packed
        np.subtract(packed, ask.amount.take(kind), out=both[1])
        cards, host = look(tables, both, kind), _hosts_on(view, nodes, shape, ask)
        idle, left = cards.idle_milli
        best = self.micros(self.gains_each(tables, cards, host)) << _tie_bits
        best |= _card - np.minimum(idle, _card)
        best <<= columns.amount_shift
        keys: Ints = view.keys & _ones[columns.layout.amount_shift]
        keys[nodes] |= best.T
        if ask.number == 1:
            spent = MILLI_CPU_PER_MILLI_CARD * (left - idle)
            if ask is shape.asks[0]:
                spent += _leftover(cards.now(0), host)
            view.leftover = np.zeros(keys.shape, np.int64)
            view.leftover[nodes] = spent.T
        return keys

    def score(
        self, view: View, shape: Shape, ask: Ask, best: Ints, flat: Ints
    ) -> tuple[Ints, Ints]:
        columns = view.columns
        if ask.number == 1 and ask.order == self.order and view.leftover is not None:
            points = np.maximum(best, _zero) >> columns.amount_shift + _TIE_BITS
            return points, view.leftover.take(flat)
        together = (len(view.at), ask.number)
        out = np.zeros((2, *together), np.int64)
        best, flat = best.reshape(together), flat.reshape(together)
        nodes = (best[:, -1] >= _zero).nonzero()[0]
        if len(nodes):
            out[:, nodes, 0] = self._together(view, shape, ask, nodes, flat.take(nodes, axis=0))
        return (out[0, :, 0], out[1, :, 0]) if ask.number == 1 else (out[0], out[1])

    def _together(
        self, view: View, shape: Shape, ask: Ask, nodes: Ints, flat: Ints
    ) -> tuple[Ints, Ints]:
        """Points and leftover of nodes that give all cards asked for: `flat` (M, number)."""
        tables = self.tables(view.columns, ask.request.family)
        packed, kind = _of_nodes(view, nodes)
        taken = packed.copy()
        place = (flat - view.first.take(nodes)[:, None]) * len(nodes)
        place += np.arange(len(nodes))[:, None]
        taken.reshape(-1)[place] -= ask.amount.take(kind.take(place))
        cards = look(tables, np.stack((packed, taken)), kind)
        host = _hosts_on(view, nodes, shape, ask)
        before, after = cards.now(0), cards.now(1)
        gain = self.values(tables, after, host, 1) - self.values(tables, before, host, 0)
        if ask is shape.asks[0]:
            return self.micros(gain), _leftover(after, host)
        left = (after.idle_milli - before.idle_milli).sum(axis=0)
        return self.micros(gain), MILLI_CPU_PER_MILLI_CARD * left

    def tables(self, columns: Columns, family: str | None = None) -> Tables:
        """The mix, or its shapes of one family, for the kinds and the policy that columns have."""
        made_for = self._made_for
        if (
            made_for is None
            or made_for.kinds is not columns.kinds
            or made_for.number != len(columns.kinds)
            or made_for.layout is not columns.layout
            or made_for.policy is not columns.state.policy
        ):
            self._made.clear()
            self._made_for = _MadeFor(
                columns.kinds, len(columns.kinds), columns.layout, columns.state.policy
            )
        made = self._made.get(family)
        if made is None:
            made = self._made[family] = compile_mix(columns, self.mix, family)
        return made


def _all(view: View) -> Ints:
    return np.arange(len(view.at))


def _of_nodes(view: View, nodes: Ints) -> tuple[Ints, Ints]:
    """Amounts and kinds of nodes' cards, (D, M)."""
    packed = view.packed.T.take(nodes, axis=1)
    return packed, view.keys.T.take(nodes, axis=1) & view.columns.kind_mask


def _leftover(cards: Cards, host: HostColumns) -> Ints:
    """What is left (M,) of these cards (D, M), and of the hosts after the charge."""
    left: Ints = _sum(cards.idle_milli, axis=0)
    left *= MILLI_CPU_PER_MILLI_CARD
    left += host.cpu_milli[1]
    return left


def _hosts_on(view: View, nodes: Ints, shape: Shape, ask: Ask | None = None) -> HostColumns:
    """The hosts before and after the pod; the first device request bears its CPU and memory."""
    cpu_milli, memory_bytes = shape.request.cpu_milli, shape.request.memory_bytes
    host = hosts(view, nodes, cpu_milli, memory_bytes)
    if ask is None or ask is shape.asks[0]:
        return host
    return HostColumns(*(amounts[[1, 1]] for amounts in host))


def _asks(
    request: PodRequest, picks: Sequence[Pick]
) -> Iterator[tuple[DeviceRequest, frozenset[str]]]:
    """The device requests in the order in which they are served, each with its cards' ids."""
    done = 0
    for group in by_family(request).values():
        for wanted in group:
            yield wanted, frozenset(p.card.fact.id for p in picks[done : done + wanted.count])
            done += wanted.count


def _hosts(node: Node, request: PodRequest, wanted: DeviceRequest) -> tuple[Host, Host]:
    """The host before and after a device request."""
    after = _after(node, request)
    first = next(group[0] for group in by_family(request).values())
    if wanted is not first:
        return after, after
    return Host(node.cpu_milli_free, node.memory_bytes_free), after


def _after(node: Node, request: PodRequest) -> Host:
    return Host(
        node.cpu_milli_free - request.cpu_milli, node.memory_bytes_free - request.memory_bytes
    )


def _charged(free: Free, wanted: DeviceRequest, policy: Policy) -> Free:
    """A copy of the card with one unit of the request on it, as far as it can be had."""
    twin = free.copy()
    piece = twin.piece(wanted, policy.mig_order)
    if piece is None:
        need_mib = need_memory_mib(wanted, free.card.fact.memory_mib, free.card.table)
        twin.charge(Piece((), need_mib, wanted.cores_pct, free.state))
    else:
        twin.take(wanted, piece)
    return twin
