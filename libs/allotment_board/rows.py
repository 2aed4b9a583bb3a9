"""What the board keeps per request and per constraints, and arithmetic that its parts share."""

from itertools import accumulate
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from allotment.core.placement.policies.typical import (
    CARD_MILLI,
    HOST_MOST,
    PPM,
    Fragmentation,
    Mix,
    room,
)
from allotment.core.placement.rules.bounds import Excluded, bounds_of
from allotment.core.reasons import NUMBER
from allotment_board import packing
from allotment_board.choice import SCRATCH
from allotment_board.columns import Columns
from allotment_board.interpod import Rules
from allotment_board.loop_parts import CPU, HOST_MEMORY, PODS
from allotment_board.loops import Loops
from allotment_board.packing import Bools, Ints, Shorts
from allotment_board.shapes import Ask, Shape, card_sizes, compile_shape
from allotment_board.terms import Images, More
from allotment_board.top import Top

_NOT_ASKED = object()
"""Not a fact, and not the absence of one."""


class View:
    """Some nodes' columns: positions `at` (M,), D cards each."""

    __slots__ = ("at", "columns", "host", "keys", "packed")

    def __init__(self, columns: Columns, at: Ints) -> None:
        self.columns = columns
        self.at = at
        self.host: Ints = np.ascontiguousarray(columns.host.take(at, axis=0).T)
        """(R, M)"""
        self.packed: Ints = columns.packed.take(at, axis=0)
        self.keys: Ints = columns.keys.take(at, axis=0)


class Call(NamedTuple):
    """What the loops take for a row."""

    loops: object
    first: tuple[Any, ...]
    then: tuple[Any, ...]


class Static:
    """Per position the reason why the constraints refuse the node (0: they do not)."""

    def __init__(self, positions: int, bonuses: int) -> None:
        self.codes = np.zeros(positions, np.int64)
        self.facts: list[object] = [_NOT_ASKED] * positions
        self.refused = 0
        """How many positions have a reason."""
        self.earned = np.zeros(positions, np.int64)
        """The weights of the preferred terms that match."""
        self.soft = np.zeros(positions, np.int64)
        """How many taints are only to be avoided."""
        self.softs = 0
        """How many positions have any."""
        self.bonuses: tuple[Ints, ...] = tuple(
            np.zeros(positions, np.int64) for _ in range(bonuses)
        )
        """What the nodes are worth to the pod or to its queue, a column for each bonus."""
        self.cursor = 0


class Row:
    """One request's answers by position, up to date to `cursor` in the list of changes."""

    def __init__(self, shape: Shape, static: Static, allowed: Bools | None, columns: Columns):
        self.shape = shape
        self.static = static
        self.allowed = allowed
        self.kinds = len(columns.kinds)
        self.facts_cursor = len(columns.refacted)
        self.cursor = 0
        self.feasible = 0
        self.rank = np.full(len(columns), -1, np.int64)
        self.fit = np.zeros(len(columns), np.bool_)
        self.top = Top()
        numbers = [ask.number for ask in shape.asks]
        self.chosen: Shorts = np.zeros((len(columns), sum(numbers)), np.uint16)
        """The slots of the cards that each node would give, one device request after the other."""
        self.slots: list[Shorts] = [
            self.chosen[:, end - number] if number == 1 else self.chosen[:, end - number : end]
            for number, end in zip(numbers, accumulate(numbers), strict=True)
        ]
        """The same by device request."""
        self.asks = [ask for ask in shape.asks for _ in range(ask.number)]
        """The device request that each of these cards serves."""
        self._chosen = self.chosen.reshape(-1).view(np.uint8).data
        slots = Struct(f"={len(self.asks)}H")
        self._read_slots, self._slots_bytes = slots.unpack_from, slots.size
        self.wastes = any(ask.wastes for ask in shape.asks)
        self.fit_micro: Ints = np.zeros(len(columns) if self.wastes else 1, np.int64)
        """Points for how much is asked for of what is given: by position, or one entry for all if
        no card gives more than is asked for."""
        self.more: More | None = None
        """Set if plugins count, or totals can be cut off."""
        self.rules: Rules | None = None
        """Set if the request has rules about other pods."""
        self.images: Images | None = None
        """Set if the policy weighs where the request's images are."""
        self.encoded: Ints | None = None
        """The request in numbers, see `encode`."""
        self.call: Call | None = None
        """What the loops took last time, while that stands."""
        self.excluded = _excluded(columns, bounds_of(shape.request).excluded)
        """Set if nodes that would do are kept for others: (N,) why by number, 0 for the rest."""
        self.reasons: Ints | None = None
        """Numbers of the reasons where it does not fit, 0 elsewhere; made when first asked for."""
        self.counted: tuple[tuple[str, int], ...] | None = None
        """How many nodes have each reason, as long as that is known."""
        self.reasons_cursor = 0
        self.varies = bool(shape.request.apart)
        """What the loops take differs from time to time."""
        self.is_impossible = (
            shape.unlisted
            or shape.unknown_family
            or any(ask.number > columns.depth for ask in shape.asks)
        )
        """No node can have what is asked for, whatever is free."""

    def fit_at(self, position: int) -> int:
        """The entry of `fit_micro` for a position."""
        return int(self.fit_micro[position if self.wastes else 0])

    def slots_at(self, position: int) -> tuple[int, ...]:
        """The slots of the cards that a node would give."""
        slots: tuple[int, ...] = self._read_slots(self._chosen, self._slots_bytes * position)
        return slots


def _excluded(columns: Columns, excluded: tuple[Excluded, ...]) -> Ints | None:
    if not excluded:
        return None
    numbers: Ints = np.zeros(len(columns), np.int64)
    for code, nodes, _ in reversed(excluded):  # of several that keep a node the first counts
        numbers[columns.positions(nodes)] = NUMBER[code]
    return numbers


def good_cards(row: Row, ask: Ask, view: View) -> Bools:
    """Which cards (M, D) take one unit of the request."""
    kind = view.keys & view.columns.kind_mask
    good = packing.covers(view.packed, ask.need[kind])
    if row.allowed is not None:
        good &= row.allowed.take(view.at, axis=0)
    apart = kept_apart(row, view)
    return good if apart is None else good & ~apart


def admitted_cards(row: Row, columns: Columns) -> Bools | None:
    """Which cards (N, D) the request admits by what is no amount; None if all."""
    tags = row.shape.request.apart
    tagged = columns.tagged_cards(tags) if tags else None
    if tagged is None:
        return row.allowed
    return ~tagged if row.allowed is None else row.allowed & ~tagged


def kept_apart(row: Row, view: View) -> Bools | None:
    """Which cards (M, D) the pod must not share; None if there are none."""
    tags = row.shape.request.apart
    tagged = view.columns.tagged_cards(tags) if tags else None
    return None if tagged is None else tagged.take(view.at, axis=0)


def scratch_of(in_use: Loops, depth: int, asks: int) -> Any:
    """Room for the choice of cards on nodes of so many, for so many device requests."""
    length = max(depth, asks)
    return in_use.listed(np.zeros((SCRATCH, length), np.int64))


def holds_at_most(columns: Columns, row: Row) -> int:
    """How many pods of a row's request all nodes can hold at most: a bound, without trying.

    Per node the least of what its host and its cards have room for; cards are counted one by one,
    each as often as its free slots, memory and compute allow, and a pod that wants several cards at
    once takes that many of the sum. More than that can never be placed; fewer may be.
    """
    at = row.fit.nonzero()[0]
    view = View(columns, at)
    request = row.shape.request
    most: Ints = view.host[PODS]
    for resource, amount in ((CPU, request.cpu_milli), (HOST_MEMORY, request.memory_bytes)):
        if amount:
            most = np.minimum(most, view.host[resource] // amount)
    for known, amount in row.shape.extended_need:
        most = np.minimum(most, view.host[known] // amount)
    for ask in row.shape.asks:
        kind = view.keys & columns.kind_mask
        good = good_cards(row, ask, view)
        times = ask.slots[kind] - packing.holders(view.packed)
        if ask.is_whole:
            times = np.minimum(times, 1)
        times = np.minimum(times, ask.times[kind])
        need = np.maximum(ask.need_mib[kind], 1)
        times = np.where(
            ask.need_mib[kind] > 0,
            np.minimum(times, packing.memory_mib(view.packed) // need),
            times,
        )
        if ask.request.cores_pct:
            times = np.minimum(times, packing.cores_pct(view.packed) // ask.request.cores_pct)
        most = np.minimum(most, np.where(good, times, 0).sum(axis=1) // ask.number)
    return int(most.sum())


def fragmentation_on(columns: Columns, mix: Mix) -> Fragmentation:
    """How much of what is idle on all nodes the pods of a mix cannot use:
    `typical.cluster_fragmentation`, of all nodes at once.
    """
    policy, there = columns.state.policy, columns.present.nonzero()[0]
    packed, keys = columns.packed[there], columns.keys[there]
    kind, cpu_milli = keys & columns.kind_mask, np.clip(columns.host[there, CPU], 0, HOST_MOST)
    free_mib = np.maximum(packing.memory_mib(packed), 0)
    idle: Ints = CARD_MILLI * free_mib // card_sizes(columns, policy)[kind]
    idle_nano = PPM * int(idle.sum())
    stranded_nano = idle_nano
    for shape in mix:
        ask = shape.ask
        asks = () if ask is None else compile_shape(columns, shape.request, policy).asks
        if ask is None or not asks:
            continue
        good = packing.covers(packed, asks[0].need_by_amount[kind])
        is_enough = (good.sum(axis=1) >= ask.count) & (cpu_milli >= room(shape.request.cpu_milli))
        usable = int((idle * good).sum(axis=1)[is_enough].sum())
        stranded_nano -= shape.weight_ppm * usable
    return Fragmentation(stranded_nano, idle_nano)
