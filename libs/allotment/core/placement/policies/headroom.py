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

from allotment.core.placement.board.arrays import HUGE
from allotment.core.placement.board.packing import Ints
from allotment.core.placement.devices.free import Free
from allotment.core.placement.policies.tables import Cards, HostColumns, Tables
from allotment.core.placement.policies.typical import headroom_milli
from allotment.core.placement.policies.valued import Host, Valued
from allotment.core.placement.rules.points import FULL_MICRO

_NANO_PER_MICRO = 160
"""How much headroom, in 10⁻⁹ cards, costs a micro-point: 16 cards cost all 100 points."""

_full = np.array(FULL_MICRO)
_one = np.array(1)
_sum = np.add.reduce


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

    def values(self, tables: Tables, cards: Cards, host: HostColumns, now: int) -> Ints:
        milli = _earned(tables, _sum(cards.good, axis=1))
        milli = np.minimum(milli, _limits(tables, host)[:, now])
        worth: Ints = tables.weight_ppm[:, 0] @ milli
        return worth

    def gains_each(self, tables: Tables, cards: Cards, host: HostColumns) -> Ints:
        good, limits = cards.good, _limits(tables, host)
        count = _sum(good[:, 0], axis=1)
        milli = _earned(tables, count)
        less = _earned(tables, count - _one)
        kept = np.minimum(milli, limits[:, 1])
        lost = kept - np.minimum(less, limits[:, 1])
        lost *= tables.weight_ppm
        spent: Ints = tables.weight_ppm[:, 0] @ (kept - np.minimum(milli, limits[:, 0]))
        gain: Ints = spent - _sum(lost[:, None] * (good[:, 0] ^ good[:, 1]), axis=0)
        return gain

    def micro(self, gain: int) -> int:
        return min(max(FULL_MICRO - -gain // _NANO_PER_MICRO, 0), FULL_MICRO)

    def micros(self, gain: Ints) -> Ints:
        points: Ints = np.clip(_full - -gain // _NANO_PER_MICRO, 0, FULL_MICRO)
        return points


def _earned(tables: Tables, count: Ints) -> Ints:
    """The worth of the pods that so many cards (S, M) take, in milli-cards."""
    pods = count.copy()
    pods[: tables.many] //= tables.number[: tables.many]
    pods *= tables.worth_milli
    return pods


def _limits(tables: Tables, host: HostColumns) -> Ints:
    """What free CPU and memory let the sizes earn: (S, 2, M), in milli-cards."""
    worth = tables.worth_milli[:, None]
    limits: Ints | None = None
    for free, need in (
        (host.cpu_milli, tables.cpu_milli[:, None]),
        (host.memory_kib(), tables.memory_kib[:, None]),
    ):
        share = free * worth // np.maximum(need, _one)
        share += HUGE * (need == 0)
        limits = share if limits is None else np.minimum(limits, share)
    assert limits is not None
    return limits
