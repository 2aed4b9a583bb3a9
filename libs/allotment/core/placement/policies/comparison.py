"""What placement papers compare with: best-fit, dot-product, gpu-packing and gpu-clustering.

All take the fullest card that suffices and differ in how they score nodes. A card counts 1000 milli
of memory, whatever its size; 128 CPUs weigh as much as 8 cards. The formulas are those that Weng et
al. (USENIX ATC 2023) compare with, in integers. gpu-packing and gpu-clustering leave many nodes
equal and have no rule for that; a checksum of the node's name decides, so that neither the fullest
nor the first by name (often a run of machines of one kind) has an edge that is not the policy's.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

import numpy as np

from allotment.core.ledger.model import Node
from allotment.core.placement.board.packing import Bools, Ints, holders, memory_mib
from allotment.core.placement.board.shapes import Ask, Shape, card_sizes
from allotment.core.placement.devices import by_family
from allotment.core.placement.devices.choosing import Pick
from allotment.core.placement.policies.base import ByOrder, Points, View
from allotment.core.placement.policies.typical import (
    CARD_MILLI,
    HOST_MOST,
    card_milli,
    cards_of,
    room,
)
from allotment.core.placement.policies.valued import MILLI_CPU_PER_MILLI_CARD
from allotment.core.placement.rules.points import FULL_MICRO, LEFTOVER_MOST, POINT_MICRO
from allotment.core.placement.rules.score_term import CPU
from allotment_proto.facts import PodRequest, Policy

_CARDS_MILLI_MOST = 8 * CARD_MILLI
_FIT_MICRO = 390
"""Best fit: what a free milli-CPU costs; 128 CPUs and 8 cards cost just under 100 points."""
_DOT_PER_POINT = 327_680_000
"""milli-CPU² a point: two nodes of 128 CPUs, or of 8 cards, make 50 points."""


class _Cards(NamedTuple):
    """A family's cards on one node before a device request, and the ones chosen."""

    idle_milli: list[int]
    taken_milli: list[int]
    """What the chosen cards give, in the order of `chosen`."""
    chosen: list[int]
    holders: list[int]


class _CardColumns(NamedTuple):
    """The same for M nodes: (M, D), chosen cards (M, k)."""

    idle_milli: Ints
    taken_milli: Ints
    chosen_milli: Ints
    """What the chosen cards had idle."""
    holders: Ints
    mine: Bools


class _Compared(ByOrder, ABC):
    """A policy that looks at a device request with the node before and its chosen cards."""

    name = ""
    order = "fullest"

    def points(
        self, node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
    ) -> Points:
        cpu_free = room(node.cpu_milli_free)
        all_idle = sum(card_milli(f) for cards in cards_of(node, policy).values() for f in cards)
        micro, leftover = self._bare(node.name, cpu_free, request, all_idle)
        for number, cards in enumerate(_asked(node, request, picks, policy)):
            cpu_milli = 0 if number else request.cpu_milli
            points, rest = self._score(cpu_free, cpu_milli, cards)
            micro, leftover = micro + points, leftover + rest
        return Points(micro, min(leftover, LEFTOVER_MOST))

    def bare(self, view: View, shape: Shape) -> tuple[Ints | None, Ints | None]:
        kind = view.keys & view.columns.kind_mask
        idle = _idle_milli(view, view.packed, kind).sum(axis=1)
        return self._bare_columns(view, _cpu(view), shape.request, idle)

    def score(
        self, view: View, shape: Shape, ask: Ask, best: Ints, flat: Ints
    ) -> tuple[Ints, Ints]:
        kind = view.keys & view.columns.kind_mask
        packed, chosen_kind = view.packed.take(flat), best & view.columns.kind_mask
        before = _idle_milli(view, packed, chosen_kind)
        after = _idle_milli(view, packed - ask.amount[chosen_kind], chosen_kind)
        together = (len(view.at), ask.number)
        cards = _CardColumns(
            _idle_milli(view, view.packed, kind) * ask.is_family[kind],
            (before - after).reshape(together),
            before.reshape(together),
            holders(view.packed),
            ask.is_family[kind],
        )
        cpu_milli = shape.request.cpu_milli if ask is shape.asks[0] else 0
        points, leftover = self._score_columns(_cpu(view), cpu_milli, cards)
        if ask.number == 1:
            return points, leftover
        out = np.zeros((2, *together), np.int64)
        out[:, :, 0] = points, leftover
        return out[0], out[1]

    # ---- what a policy says: plain, and on columns

    def _bare(
        self, name: str, cpu_free: int, request: PodRequest, idle_milli: int
    ) -> tuple[int, int]:
        return 0, _tie(name)

    def _bare_columns(
        self, view: View, cpu_free: Ints, request: PodRequest, idle_milli: Ints
    ) -> tuple[Ints | None, Ints | None]:
        names = view.columns.names
        return None, np.array([_tie(names[position]) for position in view.at.tolist()], np.int64)

    @abstractmethod
    def _score(self, cpu_free: int, cpu_milli: int, cards: _Cards) -> tuple[int, int]:
        """Points and leftover of one device request."""

    @abstractmethod
    def _score_columns(
        self, cpu_free: Ints, cpu_milli: int, cards: _CardColumns
    ) -> tuple[Ints, Ints]:
        """The same for many nodes."""


class BestFit(_Compared):
    """The node that keeps the least free, CPU and cards together."""

    name = "best-fit"

    def _bare(
        self, name: str, cpu_free: int, request: PodRequest, idle_milli: int
    ) -> tuple[int, int]:
        left = max(cpu_free - request.cpu_milli, 0) + MILLI_CPU_PER_MILLI_CARD * idle_milli
        return max(FULL_MICRO - _FIT_MICRO * left, 0), left

    def _bare_columns(
        self, view: View, cpu_free: Ints, request: PodRequest, idle_milli: Ints
    ) -> tuple[Ints | None, Ints | None]:
        cpu_left = np.maximum(cpu_free - request.cpu_milli, 0)
        left: Ints = cpu_left + MILLI_CPU_PER_MILLI_CARD * idle_milli
        return np.maximum(FULL_MICRO - _FIT_MICRO * left, 0), left

    def _score(self, cpu_free: int, cpu_milli: int, cards: _Cards) -> tuple[int, int]:
        taken = MILLI_CPU_PER_MILLI_CARD * sum(cards.taken_milli)
        return _FIT_MICRO * taken, -taken

    def _score_columns(
        self, cpu_free: Ints, cpu_milli: int, cards: _CardColumns
    ) -> tuple[Ints, Ints]:
        taken: Ints = MILLI_CPU_PER_MILLI_CARD * cards.taken_milli.sum(axis=1)
        return _FIT_MICRO * taken, -taken


class DotProduct(_Compared):
    """The node whose free amounts, as a direction, are least like the request: 100 points less the
    dot product, rounded down to whole points; of equals the first by name.
    """

    name = "dot-product"

    def _bare(
        self, name: str, cpu_free: int, request: PodRequest, idle_milli: int
    ) -> tuple[int, int]:
        if request.devices:
            return 0, 0
        return _dot_micro(min(cpu_free, _DOT_MOST) * min(request.cpu_milli, _DOT_MOST)), 0

    def _bare_columns(
        self, view: View, cpu_free: Ints, request: PodRequest, idle_milli: Ints
    ) -> tuple[Ints | None, Ints | None]:
        if request.devices:
            return None, None
        return _dot_micros(
            np.minimum(cpu_free, _DOT_MOST) * min(request.cpu_milli, _DOT_MOST)
        ), None

    def _score(self, cpu_free: int, cpu_milli: int, cards: _Cards) -> tuple[int, int]:
        cpu = min(cpu_free, _DOT_MOST) * min(cpu_milli, _DOT_MOST)
        scale = MILLI_CPU_PER_MILLI_CARD**2
        return _dot_micro(cpu + scale * sum(cards.idle_milli) * sum(cards.taken_milli)), 0

    def _score_columns(
        self, cpu_free: Ints, cpu_milli: int, cards: _CardColumns
    ) -> tuple[Ints, Ints]:
        cpu = np.minimum(cpu_free, _DOT_MOST) * min(cpu_milli, _DOT_MOST)
        scale = MILLI_CPU_PER_MILLI_CARD**2
        product = scale * cards.idle_milli.sum(axis=1) * cards.taken_milli.sum(axis=1)
        return _dot_micros(cpu + product), np.zeros(len(cpu), np.int64)


class GpuPacking(_Compared):
    """Cards in use first, then idle cards of nodes in use, then idle nodes; of the first kind those
    with the least free, of the others those that break up or leave the fewest idle cards.
    """

    name = "gpu-packing"

    def _score(self, cpu_free: int, cpu_milli: int, cards: _Cards) -> tuple[int, int]:
        idle = sum(milli == CARD_MILLI for milli in cards.idle_milli)
        had = [cards.idle_milli[at] for at in cards.chosen]
        broken = sum(milli == CARD_MILLI for milli in had)
        if idle == len(cards.idle_milli):
            points = max(33 - idle, idle)
        elif broken:
            points = max(50 - broken, 33)
        else:
            points = max(100 - sum(milli // 10 for milli in had) // 10, 50)
        return POINT_MICRO * min(points, 100), 0

    def _score_columns(
        self, cpu_free: Ints, cpu_milli: int, cards: _CardColumns
    ) -> tuple[Ints, Ints]:
        idle = (cards.idle_milli == CARD_MILLI).sum(axis=1)
        broken = (cards.chosen_milli == CARD_MILLI).sum(axis=1)
        in_use = np.maximum(100 - (cards.chosen_milli // 10).sum(axis=1) // 10, 50)
        points = np.where(broken > 0, np.maximum(50 - broken, 33), in_use)
        is_idle = idle == cards.mine.sum(axis=1)
        points = np.where(is_idle, np.maximum(33 - idle, idle), points)
        micro: Ints = POINT_MICRO * np.minimum(points, 100)
        return micro, np.zeros_like(micro)


class GpuClustering(_Compared):
    """Pods with shares and pods with whole cards keep to themselves: 75 points on a node with only
    the pod's kind, 50 with both, 25 on an idle one, else none; and up to 25 for cards in use.
    """

    name = "gpu-clustering"

    def _score(self, cpu_free: int, cpu_milli: int, cards: _Cards) -> tuple[int, int]:
        used = [(n, milli) for n, milli in zip(cards.holders, cards.idle_milli, strict=True) if n]
        whole = any(n == 1 and not milli for n, milli in used)
        share = any(n > 1 or milli for n, milli in used)
        mine, other = (whole, share) if cards.taken_milli[0] == CARD_MILLI else (share, whole)
        base = (50 if other else 75) if mine else (0 if other else 25)
        free = _CARDS_MILLI_MOST - sum(cards.idle_milli)
        return POINT_MICRO * (base + max(25 * free // _CARDS_MILLI_MOST, 0)), 0

    def _score_columns(
        self, cpu_free: Ints, cpu_milli: int, cards: _CardColumns
    ) -> tuple[Ints, Ints]:
        used = (cards.holders > 0) & cards.mine
        is_whole = (cards.holders == 1) & (cards.idle_milli == 0)
        whole, share = (used & is_whole).any(axis=1), (used & ~is_whole).any(axis=1)
        wants_whole = cards.taken_milli[:, 0] == CARD_MILLI
        mine = np.where(wants_whole, whole, share)
        other = np.where(wants_whole, share, whole)
        base = np.where(mine, np.where(other, 50, 75), np.where(other, 0, 25))
        free = _CARDS_MILLI_MOST - cards.idle_milli.sum(axis=1)
        points: Ints = base + np.maximum(25 * free // _CARDS_MILLI_MOST, 0)
        return POINT_MICRO * points, np.zeros(len(points), np.int64)


_DOT_MOST = 1 << 30
"""Products of two such amounts fit 64 bits."""


def _dot_micro(product: int) -> int:
    return POINT_MICRO * max(100 + -product // _DOT_PER_POINT, 0)


def _dot_micros(product: Ints) -> Ints:
    points: Ints = POINT_MICRO * np.maximum(100 + -product // _DOT_PER_POINT, 0)
    return points


@lru_cache(maxsize=1 << 17)
def _tie(name: str) -> int:
    return crc32(name.encode()) & LEFTOVER_MOST


def _asked(
    node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
) -> Iterator[_Cards]:
    """Per device request the family's cards before it and what was chosen."""
    families = cards_of(node, policy)
    done = 0
    for group in by_family(request).values():
        for wanted in group:
            cards = families[wanted.family]
            at = {free.card.fact.id: index for index, free in enumerate(cards)}
            chosen = [at[p.card.fact.id] for p in picks[done : done + wanted.count]]
            done += wanted.count
            idle = [card_milli(free) for free in cards]
            used = [free.used_slots for free in cards]
            for index in chosen:
                piece = cards[index].piece(wanted, policy.mig_order)
                assert piece is not None
                cards[index].take(wanted, piece)
            taken = [idle[index] - card_milli(cards[index]) for index in chosen]
            yield _Cards(idle, taken, chosen, used)


def _cpu(view: View) -> Ints:
    free: Ints = np.clip(view.host[CPU], 0, HOST_MOST)
    return free


def _idle_milli(view: View, packed: Ints, kind: Ints) -> Ints:
    """`card_milli` of cards, of any shape; 0 for families that the policy does not schedule."""
    sizes = card_sizes(view.columns, view.columns.state.policy)
    idle: Ints = CARD_MILLI * np.maximum(memory_mib(packed), 0) // sizes[kind]
    return idle
