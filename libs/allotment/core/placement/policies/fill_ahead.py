"""Fill ahead: what a pod fills, less what it takes from future pods, less what it strands.

In cards, a place gains

    what the pod fills of its cards
    + 1/3 of the change of the fill ahead
    - 7/4 of the change of the dead rests, each squared.

The *fill ahead* of a node is how full typical pods could make its free part: for each size of the
mix, if pods of this size alone took all the room (as many on a card as fit, limited by free CPU and
memory in proportion: `typical.filled_milli`); then the mean over the mix. It counts what a pod
fills of its own card, in memory or compute, not a mean over all cards: 8 GB are half of a small
card and a tenth of a large one.

A *dead rest* is the idle part of a card that no longer fits any size of the mix, though the idle
card would. Squared, a leftover of a fiftieth counts for almost nothing, so that cards are filled
up, but half a card counts: a pod that fills half of a small card and strands the other half goes to
a large card instead, as long as there is room.

Sizes are weighed by the fourth root of the cards that their pods request (`typical.root_mix`),
between counting pods (what fills up a card next) and counting cards (what needs reserved room).

Gains are counted in steps of 8 thousandths of a card: of nearly equal places the fullest node wins.
Weights and step were tuned on other seeds than those in docs/policies.md and on 24 random
workloads. The result is not sensitive to them: weights from 0.3 to 0.4 and from 1.5 to 2, and steps
up to 30 thousandths, differ little.
"""

from collections.abc import Sequence

from allotment.core.placement.devices.free import Free
from allotment.core.placement.policies.typical import (
    PPM,
    Mix,
    card_milli,
    card_ppm,
    fill_milli,
    filled_milli,
    is_dead,
    units,
)
from allotment.core.placement.policies.valued import Host, Valued
from allotment.core.placement.rules.points import FULL_MICRO, KIB_BITS
from allotment_proto.facts import Typical

_PARTS = 3
"""Values are in thirds of 10⁻⁹ cards: the fill ahead counts a third."""
_IDLE = _PARTS * 1_000
"""The deduction for an idle millionth of a card."""
_DEAD = _PARTS * 1_750
"""The deduction for a dead rest, by its square in thousandths of a card."""
_STEP = _PARTS * 8 * PPM
_STEP_MICRO = FULL_MICRO // 4_000
"""A loss of 32 cards takes all 100 points."""
_MOST_FILLED = _PARTS * 8_000 * PPM
"""The gain of a pod that fills eight cards: 100 points."""


def rest_of(idle_ppm: int, idle_milli: int, is_dead: bool) -> int:
    """The deduction for a card's idle part from the value of its node, in thirds of 10⁻⁹ cards."""
    rest = _IDLE * idle_ppm
    if is_dead:
        rest += _DEAD * idle_milli * idle_milli
    return rest


def fill_micro(gain: int) -> int:
    """Micro-points for a change of the value, in steps."""
    steps = -((_MOST_FILLED - gain) // _STEP)
    return min(max(FULL_MICRO + _STEP_MICRO * steps, 0), FULL_MICRO)


class FillAhead(Valued):
    """Wants a mix of sizes (`typical.root_mix`). Without one, best fit decides."""

    name = "fill-ahead"

    def __init__(self, mix: Mix = ()) -> None:
        super().__init__(mix)
        self._of_family: dict[str, list[Typical]] = {}

    def part(self, family: str, free: Free) -> tuple[int, ...]:
        """Per shape how many of its units the card takes and what these fill; then the card's
        deduction, in thirds of 10⁻⁹ cards.
        """
        shapes = self._shapes(family)
        sums: list[int] = []
        for shape in shapes:
            many = units(free, shape)
            sums += (many, many * fill_milli(free, shape) if many else 0)
        return *sums, rest_of(card_ppm(free), card_milli(free), is_dead(free, shapes))

    def worth(self, family: str, sums: Sequence[int], host: Host) -> int:
        """The fill ahead less the deductions, in thirds of 10⁻⁹ cards."""
        ahead = sum(
            shape.weight_ppm
            * filled_milli(many, fill, host.cpu_milli, host.memory_bytes >> KIB_BITS, shape)
            for shape, many, fill in zip(self._shapes(family), sums[:-1:2], sums[1::2], strict=True)
        )
        return ahead - sums[-1]

    def micro(self, gain: int) -> int:
        return fill_micro(gain)

    def _shapes(self, family: str) -> list[Typical]:
        known = self._of_family.get(family)
        if known is None:
            known = [each for each in self.mix if each.ask and each.ask.family == family]
            known = self._of_family[family] = [each for each in known if each.weight_ppm]
        return known
