"""Headroom: place where it costs the typical pods the least room.

The headroom of a node is what it could still earn with the sizes of the mix: for each size the
worth of the pods that it has room for, one on a card, limited by free CPU and memory in proportion
(`typical.headroom_milli`); then the mean over the mix. A pod goes where the headroom shrinks least.

Three things set it apart from counting fragments. What a share leaves behind on its card is lost at
once and not only when no shape fits into it any more, so shares that fill a card together come
together. CPU and memory count long before they run out: what needs much of them goes where there is
much of them per card, and a node keeps the proportion that its cards need to be used up. And since
the mix holds mean needs, a dozen sizes say what takes fragments many dozens of exact shapes.

The price: idle cards are kept whole only as far as the mix wants whole cards. To a mix of shares
alone an idle card is worth no more than one that still takes a share, and shares spread.
"""

from collections.abc import Sequence

import numpy as np

from allotment.core.devices.base import Free
from allotment.core.packing import Ints
from allotment.core.points import FULL_MICRO
from allotment.core.policies.tables import Cards, HostColumns, Tables
from allotment.core.policies.typical import headroom_milli
from allotment.core.policies.valued import Each, Host, Valued

NANO_PER_MICRO = 160
"""How much headroom, in 10⁻⁹ cards, costs a micro-point: 16 cards cost all 100 points."""

_full = np.array(FULL_MICRO)
_one = np.array(1)
_add = np.add.reduce


class Headroom(Valued):
    """Wants a mix of sizes (`typical.mean_mix`). Without one, best fit decides."""

    name = "headroom"

    def value(self, family: str, cards: Sequence[Free], host: Host) -> int:
        """The headroom in 10⁻⁹ cards."""
        return sum(
            shape.weight_ppm * headroom_milli(cards, host.cpu_milli, host.memory_bytes, shape)
            for shape in self.mix
            if shape.ask is not None and shape.ask.family == family
        )

    def values(self, tables: Tables, cards: Cards, host: HostColumns) -> Ints:
        milli = tables.worth_milli * (cards.good.sum(axis=2) // tables.number)
        milli = np.minimum(milli, _limits(tables, host)) * tables.weight_ppm
        worth: Ints = milli.sum(axis=0)
        return worth

    def gains_each(
        self, tables: Tables, cards: Cards, each: Each, before: HostColumns, after: HostColumns
    ) -> Ints:
        node, single, charged = each
        count, limits = cards.good.sum(axis=2), _limits(tables, after)
        milli = tables.worth_milli * (count // tables.number)
        less = tables.worth_milli * ((count - _one) // tables.number)
        kept = np.minimum(milli, limits)
        spent = np.minimum(milli, _limits(tables, before)) - kept
        lost = (kept - np.minimum(less, limits)) * tables.weight_ppm
        cost = lost.take(node, axis=1) * (single.good ^ charged.good)
        gain: Ints = -_add(spent * tables.weight_ppm, axis=0).take(node) - _add(cost, axis=0)
        return gain

    def micro(self, gain: int) -> int:
        return min(max(FULL_MICRO - -gain // NANO_PER_MICRO, 0), FULL_MICRO)

    def micros(self, gain: Ints) -> Ints:
        points: Ints = np.clip(_full - -gain // NANO_PER_MICRO, 0, FULL_MICRO)
        return points


def _limits(tables: Tables, host: HostColumns) -> Ints:
    """What free CPU and memory let the sizes earn: (S, M), in milli-cards."""
    limits = np.full((len(tables.number), len(host.cpu_milli)), np.iinfo(np.int64).max)
    for free, need in (
        (host.cpu_milli, tables.cpu_milli),
        (host.memory_kib, tables.memory_kib),
    ):
        share = free * tables.worth_milli // np.maximum(need, 1)
        np.minimum(limits, share, out=limits, where=need > 0)
    return limits
