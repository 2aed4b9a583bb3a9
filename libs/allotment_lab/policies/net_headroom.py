"""Net headroom: what a pod fills of its cards, less the room that this costs the pods to come.

`headroom` with two changes, for clusters where pods come, wait and go.

Sizes are weighed by the cards that their pods ask for, not by how many pods there are (`card_mix`).
Counted by pods, jobs of four or eight cards are too few for the mix, and a policy that keeps
no room for them makes them wait longest although they are a large part of the load.

And what the pod fills of its cards is counted for the place. On cards of one size that is the same
everywhere. A pod that asks for MiB fills much of a small card and little of a large one: it goes to
the small one, unless that costs other pods more than it gains.
"""

from collections.abc import Sequence

from allotment.core.placement.devices.free import Free
from allotment.core.placement.policies.typical import PPM, card_milli
from allotment.core.placement.policies.valued import Host
from allotment_lab.policies.headroom import Headroom

MOST_FILLED = 8_000 * PPM
"""What a pod of eight cards fills. Points begin there: gains are above 0 and points at most 100."""


class NetHeadroom(Headroom):
    """Wants a mix of sizes weighed by cards (`mixes.card_mix`). Without one, best fit decides."""

    name = "net-headroom"

    def part(self, family: str, free: Free) -> tuple[int, ...]:
        """As headroom, and behind it what is idle, in 10⁻³ cards."""
        return *super().part(family, free), card_milli(free)

    def worth(self, family: str, sums: Sequence[int], host: Host) -> int:
        """The headroom less what is idle, in 10⁻⁹ cards."""
        return super().worth(family, sums[:-1], host) - PPM * sums[-1]

    def micro(self, gain: int) -> int:
        return super().micro(gain - MOST_FILLED)
