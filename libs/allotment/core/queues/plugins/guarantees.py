"""What queues side by side may hold beyond what they are guaranteed.

What nobody is guaranteed is there for all of them together. So the most that one may have follows
from what the others hold: one that holds no more than its guarantee leaves the rest to them.
"""

from collections.abc import Mapping

from allotment.core.queues.resources import NOTHING, Resources, total_of


class Unguaranteed:
    """What queues side by side share, and what of it is in use. Only of resources that some queue
    is guaranteed any of: of others everybody may have all.
    """

    def __init__(
        self, total: Resources, guarantees: Mapping[str, Resources], held: Mapping[str, Resources]
    ) -> None:
        """`held` is what each of the queues holds now."""
        guaranteed = total_of(list(guarantees.values()))
        self._names = guaranteed.named
        self._guarantees = guarantees
        self._free = total.beyond(guaranteed).only(self._names)
        self._beyond = {name: self._part(name, held.get(name, NOTHING)) for name in guarantees}
        self._used = total_of(list(self._beyond.values()))

    def holds(self, queue: str, held: Resources) -> None:
        """A queue holds so much from now on."""
        if self._names:
            part = self._part(queue, held)
            self._used = self._used.plus(part).minus(self._beyond[queue])
            self._beyond[queue] = part

    def most(self, queue: str, capability: Resources) -> Resources:
        """What of its capability a queue may have, as the others are."""
        if not self._names:
            return capability
        others = self._used.minus(self._beyond[queue])
        left = self._free.raised(others.only(self._names)).minus(others)
        return capability.capped(left.plus(self._guarantees[queue].only(self._names)))

    def _part(self, queue: str, held: Resources) -> Resources:
        return held.only(self._names).beyond(self._guarantees[queue]) if self._names else NOTHING
