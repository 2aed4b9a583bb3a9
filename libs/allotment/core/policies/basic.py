"""The policies of Volcano's vgpu scoring: binpack, spread, and none.

binpack takes the fullest card and gives 100 points × used-after ÷ capacity a card; spread takes the
card with the fewest holders and gives 100 points a card that was idle; none takes cards by index
from the last and gives nothing. Counted resources (`nvidia.com/gpu`) score likewise by their use on
the node. Source: volcano `vgpu` scoring (deviceshare 5.1).
"""

from collections.abc import Sequence

import numpy as np

from allotment.core.devices.base import Pick
from allotment.core.model import Node
from allotment.core.packing import Ints
from allotment.core.points import COUNTED_BITS, FULL_MICRO, counted_share_micro, share_micro
from allotment.core.policies.base import ByOrder, Points, View
from allotment.core.shapes import Ask, Shape
from allotment_proto.facts import PodRequest, Policy

_full = np.array(FULL_MICRO)


class _ByUse(ByOrder):
    """What policies share that score a card by its use, or not at all."""

    name = "none"
    order = "last"

    def points(
        self, node: Node, request: PodRequest, picks: Sequence[Pick], policy: Policy
    ) -> Points:
        if picks:
            micro = sum(self._card_micro(pick) for pick in picks)
            return Points(micro, sum(pick.free_after_mib for pick in picks))
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
        facts = view.columns.facts
        for row, amount in shape.extended_need:
            name = view.columns.resource_name(row)
            listed = np.array(
                [dict(f.extended).get(name, 0) if (f := facts[p]) else 0 for p in view.at.tolist()],
                np.int64,
            )
            unit = 1 + (listed >> COUNTED_BITS)
            share = _share((listed - view.host[row] + amount) // unit, listed // unit)
            total += self._counted_column(share)
        return total, None

    def score(
        self, view: View, shape: Shape, ask: Ask, best: Ints, flat: Ints
    ) -> tuple[Ints, Ints]:
        left = view.left_mib(ask, best, best & view.columns.kind_mask, flat)
        return np.zeros(best.shape, np.int64), left

    def _card_micro(self, pick: Pick) -> int:
        return 0

    def _counted_micro(self, share_micro: int) -> int:
        return 0

    def _counted_column(self, share: Ints) -> Ints:
        return np.zeros(share.shape, np.int64)


class Unscored(_ByUse):
    """Any node that fits is as good as another: best fit decides."""


class Binpack(_ByUse):
    name = "binpack"
    order = "fullest"

    def _card_micro(self, pick: Pick) -> int:
        return share_micro(pick.used_after_mib, pick.card.fact.memory_mib)

    def _counted_micro(self, share_micro: int) -> int:
        return share_micro

    def score(
        self, view: View, shape: Shape, ask: Ask, best: Ints, flat: Ints
    ) -> tuple[Ints, Ints]:
        kind = best & view.columns.kind_mask
        left = view.left_mib(ask, best, kind, flat)
        return _full * (ask.size_mib[kind] - left) // ask.divisor_mib[kind], left

    def _counted_column(self, share: Ints) -> Ints:
        return share


class Spread(_ByUse):
    name = "spread"
    order = "emptiest"

    def _card_micro(self, pick: Pick) -> int:
        return FULL_MICRO if pick.was_idle else 0

    def _counted_micro(self, share_micro: int) -> int:
        return FULL_MICRO - share_micro

    def score(
        self, view: View, shape: Shape, ask: Ask, best: Ints, flat: Ints
    ) -> tuple[Ints, Ints]:
        left = view.left_mib(ask, best, best & view.columns.kind_mask, flat)
        return _full * view.idle(ask, best, flat), left

    def _counted_column(self, share: Ints) -> Ints:
        points: Ints = FULL_MICRO - share
        return points


def _share(used: Ints, size: Ints) -> Ints:
    """100 points × used ÷ size, floored; 0 where there is nothing."""
    share: Ints = FULL_MICRO * used // np.maximum(size, 1)
    share[size <= 0] = 0
    return share
