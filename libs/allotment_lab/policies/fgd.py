"""Fragmentation gradient descent: place where the idle parts that go to waste grow least.

A node's fragment is the idle part of its cards that a pod of the mix is expected not to be able to
use (`typical.usable_milli`). With Δ the fragment before less the fragment after, in cards, a place
scores ⌊100 ÷ (1 + e^−Δ)⌋ points: the coarse steps are part of the method, since places whose Δ is
about the same are then told apart by best fit. Source: Weng et al., "Beware of Fragmentation:
Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023.
"""

from bisect import bisect_right
from collections.abc import Sequence

from allotment.core.placement.devices.free import Free
from allotment.core.placement.policies.typical import PPM, card_milli, room, takes
from allotment.core.placement.policies.valued import Host, Valued
from allotment.core.placement.rules.points import POINT_MICRO

_LOGITS_NANO = (
    40_005_334,
    80_042_707,
    120_144_311,
    160_342_650,
    200_670_695,
    241_162_056,
    281_851_152,
    322_773_392,
    363_965_377,
    405_465_108,
    447_312_218,
    489_548_225,
    532_216_813,
    575_364_144,
    619_039_208,
    663_294_217,
    708_185_057,
    753_771_802,
    800_119_300,
    847_297_860,
    895_384_047,
    944_461_608,
    994_622_575,
    1_045_968_555,
    1_098_612_288,
    1_152_679_509,
    1_208_311_205,
    1_265_666_373,
    1_324_925_414,
    1_386_294_361,
    1_450_010_175,
    1_516_347_489,
    1_585_627_263,
    1_658_228_076,
    1_734_601_055,
    1_815_289_966,
    1_900_958_761,
    1_992_430_164,
    2_090_741_096,
    2_197_224_577,
    2_313_634_929,
    2_442_347_035,
    2_586_689_344,
    2_751_535_313,
    2_944_438_979,
    3_178_053_830,
    3_476_098_689,
    3_891_820_298,
    4_595_119_850,
)
"""⌊10⁹ · ln(k ÷ (100 − k))⌋ for k = 51 … 99."""

STEPS_NANO = (*(-x for x in reversed(_LOGITS_NANO)), 0, *(x + 1 for x in _LOGITS_NANO))
"""The smallest Δ, in 10⁻⁹ cards, for 1, 2 … 99 points."""


class Fgd(Valued):
    """Wants a mix of exact shapes (`mixes.exact_mix`). Without one, best fit decides."""

    name = "fgd"

    def part(self, family: str, free: Free) -> tuple[int, ...]:
        """Per shape of the family whether the card takes it, and how much is idle of it then; and
        what is idle, in 10⁻³ cards.
        """
        idle, sums = card_milli(free), [0] * 0
        for shape in self.mix:
            if shape.ask is not None and shape.ask.family == family:
                good = takes(free, shape.ask, shape.request.selection)
                sums += (good, good * idle)
        return *sums, idle

    def worth(self, family: str, sums: Sequence[int], host: Host) -> int:
        """The fragment with its sign turned, in 10⁻⁹ cards."""
        worth, at = -PPM * sums[-1], 0
        for shape in self.mix:
            if shape.ask is not None and shape.ask.family == family:
                is_enough = sums[at] >= shape.ask.count
                if is_enough and room(host.cpu_milli) >= room(shape.request.cpu_milli):
                    worth += shape.weight_ppm * sums[at + 1]
                at += 2
        return worth

    def micro(self, gain: int) -> int:
        """As many points as steps are reached."""
        return POINT_MICRO * bisect_right(STEPS_NANO, gain)
