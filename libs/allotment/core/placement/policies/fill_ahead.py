"""Fill ahead: what a pod fills, less what it takes from the pods to come, less what it strands.

In cards, a place gains

    what the pod fills of its cards
    + 1/3 of what this changes of the fill ahead
    - 7/4 of what this changes of the dead rests, each squared.

The *fill ahead* of a node is how full typical pods could make what is free of it: for each size of
the mix, if pods of this size alone took all the room (as many on a card as fit, and limited by free
CPU and memory in proportion: `typical.filled_milli`); then the mean over the mix. It counts what a
pod fills of the card that it gets, in memory or compute, and not a mean over all cards: 8 GB are
half of a small card and a tenth of a large one.

A *dead rest* is the idle part of a card that no size of the mix fits into any more, though one
would if the card were idle. Squared, a fiftieth that is left over counts for next to nothing, so
that cards are filled up; and half a card counts for what it is: a pod that fills half of a small
card and strands the other half goes to a large card instead, as long as there is room.

Sizes are weighed by the fourth root of the cards that their pods ask for (`typical.root_mix`),
between counting pods (what fills up a card next) and counting cards (what needs room kept).

Gains are counted in steps of 8 thousandths of a card: of places that are about the same the fullest
node wins. Weights and step were found by trying, on other seeds than those in docs/policies.md
and on 24 random workloads; between 0.3 and 0.4 and 1.5 and 2, and up to 30 thousandths, little
changes, but that the published experiment likes fine steps.
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
"""Values are in thirds of 10⁻⁹ cards: what is ahead counts a third."""
_IDLE = _PARTS * 1_000
"""What an idle millionth of a card takes off."""
_DEAD = _PARTS * 1_750
"""What a dead rest takes off, by its square in thousandths of a card."""
_STEP = _PARTS * 8 * PPM
_STEP_MICRO = FULL_MICRO // 4_000
"""32 cards cost all 100 points."""
_MOST_FILLED = _PARTS * 8_000 * PPM
"""What a pod of eight cards fills: 100 points."""


def rest_of(idle_ppm: int, idle_milli: int, is_dead: bool) -> int:
    """What a card's idle part takes off the value of its node, in thirds of 10⁻⁹ cards."""
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
        """Per shape how many of its units the card takes and what these fill; and the card's rest,
        in thirds of 10⁻⁹ cards.
        """
        shapes = self._shapes(family)
        sums: list[int] = []
        for shape in shapes:
            many = units(free, shape)
            sums += (many, many * fill_milli(free, shape) if many else 0)
        return *sums, rest_of(card_ppm(free), card_milli(free), is_dead(free, shapes))

    def worth(self, family: str, sums: Sequence[int], host: Host) -> int:
        """The fill ahead less the rests, in thirds of 10⁻⁹ cards."""
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
