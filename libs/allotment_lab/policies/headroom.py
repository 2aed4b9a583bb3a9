"""Headroom: place where it costs the typical pods the least room.

The headroom of a node is what it could still earn with the sizes of the mix: for each size the
worth of the pods that it has room for, one on a card, limited by free CPU and memory in proportion
(`mixes.headroom_milli`); then the mean over the mix. A pod goes where the headroom shrinks least.

Three things set it apart from counting fragments. What a share leaves behind on its card is lost at
once and not only once no shape fits into it, so shares that fill a card together come
together. CPU and memory count long before they run out: what needs much of them goes where there is
much of them per card, and a node keeps the proportion that its cards need to be used up. And since
the mix holds mean needs, a dozen sizes say what takes fragments many dozens of exact shapes.

The price: idle cards are kept whole only as far as the mix wants whole cards. To a mix of shares
alone an idle card is worth no more than one that still takes a share, and shares spread.
"""

from collections.abc import Sequence

from allotment.core.placement.devices.free import Free
from allotment.core.placement.policies.typical import takes
from allotment.core.placement.policies.valued import Host, Valued
from allotment.core.placement.rules.points import FULL_MICRO
from allotment_lab.policies.mixes import headroom_milli

_NANO_PER_MICRO = 160
"""How much headroom, in 10⁻⁹ cards, costs a micro-point: 16 cards cost all 100 points."""


class Headroom(Valued):
    """Wants a mix of sizes (`mixes.mean_mix`). Without one, best fit decides."""

    name = "headroom"

    def part(self, family: str, free: Free) -> tuple[int, ...]:
        """Per shape of the family whether the card takes it."""
        return tuple(
            takes(free, shape.ask, shape.request.selection)
            for shape in self.mix
            if shape.ask is not None and shape.ask.family == family
        )

    def worth(self, family: str, sums: Sequence[int], host: Host) -> int:
        """The headroom in 10⁻⁹ cards."""
        shapes = [shape for shape in self.mix if shape.ask and shape.ask.family == family]
        return sum(
            shape.weight_ppm * headroom_milli(good, host.cpu_milli, host.memory_bytes, shape)
            for shape, good in zip(shapes, sums, strict=True)
        )

    def micro(self, gain: int) -> int:
        """A change is a loss."""
        return min(max(FULL_MICRO - -gain // _NANO_PER_MICRO, 0), FULL_MICRO)
