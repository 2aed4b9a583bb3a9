"""The policies of Volcano's vgpu scoring: binpack, spread, and none.

binpack takes the fullest card and gives 100 points × used-after ÷ capacity a card; spread takes the
card with the fewest holders and gives 100 points a card that was idle; none takes cards by index
from the last and gives nothing. Counted resources (`nvidia.com/gpu`) score likewise by their use on
the node. Which cards of a family count, and by what, is `Family.scoring`. Where chips tell their
networks, containers whose first chips are on one network earn up to 10 points more.
Source: volcano `vgpu` and `ascend/hami` scoring (deviceshare 5.1).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from allotment.core.ledger.model import Node
from allotment.core.placement.board.arrays import SIZE_EXTENDED
from allotment.core.placement.board.packing import Bools, Ints, cores_pct
from allotment.core.placement.board.shapes import Ask, Shape
from allotment.core.placement.devices import FAMILIES, base, by_family
from allotment.core.placement.devices.base import SCORE_COMPUTE, SCORE_EACH
from allotment.core.placement.devices.choosing import Pick, is_wired
from allotment.core.placement.policies.base import ByOrder, Points, View
from allotment.core.placement.rules.points import (
    COUNTED_BITS,
    FULL_MICRO,
    POINT_MICRO,
    counted_share_micro,
    share_micro,
)
from allotment_proto.facts import DeviceRequest, PodRequest, Policy

NETWORK_MICRO = 10 * POINT_MICRO
"""For containers whose first chips are all on one network."""

_full = np.array(FULL_MICRO)


class _ByUse(ByOrder, ABC):
    """What policies share that score a card by its use, or not at all."""

    name = "none"
    order = "last"

    def points(
        self, node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
    ) -> Points:
        if picks:
            return self._of_cards(request, picks)
        assert node.fact is not None
        listed, free = dict(node.fact.extended), node.extended_free
        shares = (
            counted_share_micro(listed[name] - free[name] + amount, listed[name])
            for name, amount in request.extended
            if amount
        )
        return Points(sum(self._counted_micro(share) for share in shares), 0)

    def bare(self, view: View, shape: Shape) -> tuple[Ints | None, Ints | None]:
        if shape.asks or not shape.extended_need:
            return None, None
        total = np.zeros(len(view.at), np.int64)
        for row, amount in shape.extended_need:
            listed = view.columns.sizes[row + SIZE_EXTENDED, 0].take(view.at)
            unit = 1 + (listed >> COUNTED_BITS)
            share = _share((listed - view.host[row] + amount) // unit, listed // unit)
            total += self._counted_column(share)
        return total, None

    def score(
        self, view: View, shape: Shape, ask: Ask, best: Ints, flat: Ints
    ) -> tuple[Ints, Ints]:
        if ask.scoring == SCORE_EACH:
            return self._each(view, ask, best, flat)
        kind, idle = best & view.columns.kind_mask, view.idle(ask, best, flat)
        if ask.scoring == SCORE_COMPUTE:
            left, size = cores_pct(view.packed.take(flat)) - ask.cores_pct[kind], ask.size_pct[kind]
            points = self._column(size - left, size, idle)
            return np.where(ask.is_second_best[kind], 0, points), left
        left, size = view.left_mib(ask, best, kind, flat), ask.size_mib[kind]
        points = self._column(size - left - ask.memory_mib[kind], size, idle)
        if ask.number > 1:
            points[:, 1:] = 0
        if ask.is_wired:
            first = flat if ask.number == 1 else flat[:, 0]
            (points if ask.number == 1 else points[:, 0])[:] += _network_gain(view, ask, first)
        return points, left

    def _of_cards(self, request: PodRequest, picks: Sequence[Pick]) -> Points:
        micro, leftover, done = 0, 0, 0
        networks: dict[str, list[int]] = {}
        for group in by_family(request).values():
            for wanted in group:
                mine = picks[done : done + wanted.count]
                done += wanted.count
                points = self._of_request(wanted, mine)
                micro, leftover = micro + points.micro, leftover + points.leftover
                if is_wired(wanted):
                    networks.setdefault(wanted.chip, []).append(mine[0].card.fact.network)
        return Points(micro + sum(map(_network_micro, networks.values())), leftover)

    def _of_request(self, wanted: DeviceRequest, picks: Sequence[Pick]) -> Points:
        match FAMILIES[wanted.family].scoring:
            case base.SCORE_FIRST:
                first, size = picks[0], picks[0].card.fact.memory_mib
                used = first.used_after_mib - first.charged_mib
                micro = self._micro(used, size, first.was_idle) if size else 0
            case base.SCORE_COMPUTE:
                micro = sum(
                    self._micro(size - pick.free_after_pct, size, pick.was_idle)
                    for pick in picks
                    if (size := pick.card.fact.cores_pct) and not pick.is_second_best
                )
                return Points(micro, sum(pick.free_after_pct for pick in picks))
            case _:
                micro = sum(
                    self._micro(pick.used_after_mib, pick.card.fact.memory_mib, pick.was_idle)
                    for pick in picks
                )
        return Points(micro, sum(pick.free_after_mib for pick in picks))

    # ---- what a policy says: plain, and on columns

    @abstractmethod
    def _micro(self, used: int, size: int, was_idle: bool) -> int:
        """Micro-points of one card."""

    @abstractmethod
    def _column(self, used: Ints, size: Ints, idle: Bools) -> Ints:
        """The same of many; 0 for a card without a size."""

    @abstractmethod
    def _each(self, view: View, ask: Ask, best: Ints, flat: Ints) -> tuple[Ints, Ints]:
        """Points and leftover where every card counts, by its memory in use after the charge."""

    def _counted_micro(self, share_micro: int) -> int:
        return 0

    def _counted_column(self, share: Ints) -> Ints:
        return np.zeros(share.shape, np.int64)


class Unscored(_ByUse):
    """Any node that fits is as good as another: best fit decides."""

    def _micro(self, used: int, size: int, was_idle: bool) -> int:
        return 0

    def _column(self, used: Ints, size: Ints, idle: Bools) -> Ints:
        return np.zeros(used.shape, np.int64)

    def _each(self, view: View, ask: Ask, best: Ints, flat: Ints) -> tuple[Ints, Ints]:
        left = view.left_mib(ask, best, best & view.columns.kind_mask, flat)
        return np.zeros(best.shape, np.int64), left


class Binpack(_ByUse):
    name = "binpack"
    order = "fullest"

    def _micro(self, used: int, size: int, was_idle: bool) -> int:
        return share_micro(used, size)

    def _column(self, used: Ints, size: Ints, idle: Bools) -> Ints:
        return _share(used, size)

    def _each(self, view: View, ask: Ask, best: Ints, flat: Ints) -> tuple[Ints, Ints]:
        kind = best & view.columns.kind_mask
        left = view.left_mib(ask, best, kind, flat)
        return _full * (ask.size_mib[kind] - left) // ask.divisor_mib[kind], left

    def _counted_micro(self, share_micro: int) -> int:
        return share_micro

    def _counted_column(self, share: Ints) -> Ints:
        return share


class Spread(_ByUse):
    name = "spread"
    order = "emptiest"

    def _micro(self, used: int, size: int, was_idle: bool) -> int:
        return FULL_MICRO if was_idle else 0

    def _column(self, used: Ints, size: Ints, idle: Bools) -> Ints:
        points: Ints = _full * (idle & (size > 0))
        return points

    def _each(self, view: View, ask: Ask, best: Ints, flat: Ints) -> tuple[Ints, Ints]:
        left = view.left_mib(ask, best, best & view.columns.kind_mask, flat)
        return _full * view.idle(ask, best, flat), left

    def _counted_micro(self, share_micro: int) -> int:
        return FULL_MICRO - share_micro

    def _counted_column(self, share: Ints) -> Ints:
        points: Ints = FULL_MICRO - share
        return points


def _share(used: Ints, size: Ints) -> Ints:
    """100 points × used ÷ size, floored; 0 where there is nothing."""
    share: Ints = FULL_MICRO * used // np.maximum(size, 1)
    share[size <= 0] = 0
    return share


def _network_micro(networks: Sequence[int]) -> int:
    """What the networks of containers' first chips are worth: 0 if one of them is not known."""
    if not networks or min(networks) < 0:
        return 0
    return NETWORK_MICRO * max(map(networks.count, networks)) // len(networks)


def _network_gain(view: View, ask: Ask, first: Ints) -> Ints:
    """How much `_network_micro` grows (M,) by another container with this first chip."""
    known = view.networks.setdefault(ask.request.chip, [])
    before = _network_column(known, len(first))
    known.append(view.columns.network.take(view.at, axis=0).take(first))
    return _network_column(known, len(first)) - before


def _network_column(networks: Sequence[Ints], nodes: int) -> Ints:
    """`_network_micro` of many nodes (M,)."""
    if not networks:
        return np.zeros(nodes, np.int64)
    of = np.stack(networks)
    most = (of[:, None] == of[None, :]).sum(axis=1).max(axis=0)
    return np.where((of >= 0).all(axis=0), NETWORK_MICRO * most // len(networks), 0)
