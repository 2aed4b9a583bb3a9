"""What `fgd` and `headroom` share: nodes have a value, and the place where it suffers least wins.

A policy of this kind says what a node's cards and host are worth to a mix of typical pods, once in
plain loops and once on columns; everything else follows: the card whose charge costs least is
preferred (of equals the one with the least free), a node scores by what the choice costs, and of
equal nodes the fullest one wins: least CPU (milli) + 16 × free milli-cards left, so that 128 CPUs
weigh as much as 8 cards.

Device requests of one pod are scored one after the other, each with the shapes of its family; the
first one bears the pod's CPU and memory.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from allotment.core.columns import CPU, HOST_MEMORY, HUGE, Columns
from allotment.core.devices import by_family
from allotment.core.devices.base import Free, Pick, need_memory_mib
from allotment.core.model import Node
from allotment.core.packing import MEMORY_MOST, NEVER, Ints, memory_mib
from allotment.core.points import KIB_BITS
from allotment.core.policies.base import Points, View
from allotment.core.policies.typical import CARD_MILLI, HOST_MOST, Mix, card_milli, cards_of, room
from allotment.core.shapes import Ask, Shape, compile_shape
from allotment_proto.facts import DeviceRequest, PodRequest, Policy

MILLI_CPU_PER_MILLI_CARD = 16
LEFTOVER_MOST = (1 << 23) - 1
TIE_BITS = 10
"""Enough for the free part of a card, 0 … 1000."""

_card = np.array(CARD_MILLI)
_zero = np.array(0)


class Host(NamedTuple):
    """Free CPU (milli) and memory (bytes) of one node."""

    cpu_milli: int
    memory_bytes: int


class HostColumns(NamedTuple):
    """Free CPU (milli) and memory (KiB) of many nodes, from 0 to `HOST_MOST`, as (M,)."""

    cpu_milli: Ints
    memory_kib: Ints


class Tables(NamedTuple):
    """The S shapes of a mix that ask for cards, over the kinds K that columns know.

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
    families: tuple[str, ...]

    def of_family(self, family: str) -> "Tables":
        """The same without the weight of other families' shapes."""
        if all(name == family for name in self.families):
            return self
        mine = np.array([[name == family] for name in self.families], np.bool_)
        return self._replace(weight_ppm=self.weight_ppm * mine)


class Valued:
    """A policy that values nodes. Subclasses say what a node is worth and what a change scores."""

    name = ""
    order = "preferred"

    def __init__(self, mix: Mix = ()) -> None:
        self.mix = mix
        self._tables: Tables | None = None
        self._made_for: tuple[object, ...] = ()

    # ---- what a subclass says

    def value(self, family: str, cards: Sequence[Free], host: Host) -> int:
        """What the family's cards are worth with this much of the host free."""
        raise NotImplementedError

    def values(self, tables: Tables, packed: Ints, kind: Ints, host: HostColumns) -> Ints:
        """The same (M,) for cards (M, D)."""
        raise NotImplementedError

    def values_each(
        self, tables: Tables, packed: Ints, charged: Ints, kind: Ints, host: HostColumns
    ) -> Ints:
        """What each node is worth if only this card was charged: (M, D)."""
        raise NotImplementedError

    def micro(self, gain: int) -> int:
        """Micro-points, from 0 to 100 points, for a change of the value."""
        raise NotImplementedError

    def micros(self, gain: Ints) -> Ints:
        """The same for many."""
        raise NotImplementedError

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
            charged = [_charged(f, wanted) if f is free else f for f in full]
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
            charged = [_charged(f, wanted) if f.card.fact.id in ids else f for f in cards]
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
        kind = view.keys & view.columns.kind_mask
        tables = self.tables(view.columns)
        left = idle_milli(tables, view.packed, kind).sum(axis=1)
        cpu_milli = np.clip(view.host[CPU] - shape.request.cpu_milli, 0, HOST_MOST)
        points: Ints | None = None
        if not shape.asks:
            before, after = _host_columns(view, shape)
            gain = self.values(tables, view.packed, kind, after)
            points = self.micros(gain - self.values(tables, view.packed, kind, before))
        return points, cpu_milli + MILLI_CPU_PER_MILLI_CARD * left

    def keys(self, view: View, shape: Shape, ask: Ask) -> Ints:
        columns = view.columns
        kind = view.keys & columns.kind_mask
        tables = self.tables(columns).of_family(ask.request.family)
        before, after = _ask_hosts(view, shape, ask)
        charged = view.packed - ask.amount[kind]
        worth = self.values(tables, view.packed, kind, before)
        each = self.values_each(tables, view.packed, charged, kind, after)
        points = self.micros(each - worth[:, None])
        tie = _card - np.minimum(idle_milli(tables, view.packed, kind), _card)
        low = view.keys & ((1 << columns.layout.amount_shift) - 1)
        keys: Ints = (points << TIE_BITS | tie) << columns.amount_shift | low
        return keys

    def score(
        self, view: View, shape: Shape, ask: Ask, best: Ints, flat: Ints
    ) -> tuple[Ints, Ints]:
        columns = view.columns
        kind = best & columns.kind_mask
        packed = view.packed.take(flat, mode="clip")
        charged = packed - ask.amount[kind]
        tables = self.tables(columns)
        left = idle_milli(tables, charged, kind) - idle_milli(tables, packed, kind)
        if ask.number == 1:
            points = np.maximum(best, _zero) >> columns.amount_shift + TIE_BITS
        else:
            points = np.zeros(best.shape, np.int64)
            points[:, 0] = self._points_together(view, shape, ask, best, flat, charged)
        return points, MILLI_CPU_PER_MILLI_CARD * left

    def _points_together(
        self, view: View, shape: Shape, ask: Ask, best: Ints, flat: Ints, charged: Ints
    ) -> Ints:
        tables = self.tables(view.columns).of_family(ask.request.family)
        before, after = _ask_hosts(view, shape, ask)
        kind = view.keys & view.columns.kind_mask
        taken, is_card = view.packed.copy(), best >= 0
        taken.reshape(-1)[flat[is_card]] = charged[is_card]
        gain = self.values(tables, taken, kind, after)
        return self.micros(gain - self.values(tables, view.packed, kind, before))

    def tables(self, columns: Columns) -> Tables:
        """The mix compiled for the kinds and the policy that the columns have now."""
        made_for = (columns.kinds, len(columns.kinds), columns.layout, columns.state.policy)
        if self._tables is None or not _same(made_for, self._made_for):
            self._tables, self._made_for = _compile(columns, self.mix), made_for
        return self._tables


def idle_milli(tables: Tables, packed: Ints, kind: Ints) -> Ints:
    """`card_milli` of cards, of any shape."""
    idle: Ints = _card * np.maximum(memory_mib(packed), _zero) // tables.sizes_mib[kind]
    return idle


def _same(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    return len(left) == len(right) and all(
        a is b or (isinstance(a, int | tuple) and a == b) for a, b in zip(left, right, strict=True)
    )


def _compile(columns: Columns, mix: Mix) -> Tables:
    shapes = [shape for shape in mix if shape.ask is not None]
    policy = columns.state.policy
    sizes = np.full(columns.layout.kinds_most, HUGE, np.int64)
    for number, known in enumerate(columns.kinds):
        if known.family in policy.families:
            sizes[number] = max(min(known.memory_mib, MEMORY_MOST), 1)
    need = np.full((len(shapes), columns.layout.kinds_most), NEVER, np.int64)
    for row, shape in enumerate(shapes):
        compiled = compile_shape(columns, shape.request, policy)
        if compiled.asks:
            need[row] = compiled.asks[0].need

    def column(values: Iterator[int]) -> Ints:
        return np.array(list(values), np.int64).reshape(-1, 1)

    asks = [ask for shape in shapes if (ask := shape.ask) is not None]
    return Tables(
        sizes,
        need,
        column(ask.count for ask in asks),
        column(shape.request.cpu_milli for shape in shapes),
        column(shape.request.memory_bytes >> KIB_BITS for shape in shapes),
        column(shape.worth_milli for shape in shapes),
        column(shape.weight_ppm for shape in shapes),
        tuple(ask.family for ask in asks),
    )


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


def _charged(free: Free, wanted: DeviceRequest) -> Free:
    """A copy of the card with one unit of the request on it."""
    twin = Free(free.card)
    twin.slots, twin.memory_mib, twin.cores_pct = free.slots, free.memory_mib, free.cores_pct
    twin.take(need_memory_mib(wanted, free.card.fact.memory_mib), wanted.cores_pct)
    return twin


def _ask_hosts(view: View, shape: Shape, ask: Ask) -> tuple[HostColumns, HostColumns]:
    before, after = _host_columns(view, shape)
    return (before if ask is shape.asks[0] else after), after


def _host_columns(view: View, shape: Shape) -> tuple[HostColumns, HostColumns]:
    """The hosts before and after the pod."""
    request, cpu, memory = shape.request, view.host[CPU], view.host[HOST_MEMORY]
    return host_columns(cpu, memory), host_columns(
        cpu - request.cpu_milli, memory - request.memory_bytes
    )


def host_columns(cpu_milli: Ints, memory_bytes: Ints) -> HostColumns:
    """Free amounts as they count here."""
    return HostColumns(
        np.clip(cpu_milli, 0, HOST_MOST), np.clip(memory_bytes >> KIB_BITS, 0, HOST_MOST)
    )
