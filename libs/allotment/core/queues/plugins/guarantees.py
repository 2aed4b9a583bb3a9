"""The most that sibling queues may hold beyond their guarantees.

Siblings share what none of them is guaranteed. So the most that a queue may have depends on what
the others hold: a queue that holds no more than its guarantee leaves the rest to them.
"""

from collections.abc import Mapping

from allotment.core.queues.resources import NOTHING, Resources, total_of


class Unguaranteed:
    """What sibling queues share, and how much of it is in use. It has only resources that some
    queue is guaranteed; of others each queue may have everything.
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
        """Set what a queue holds now."""
        if self._names:
            part = self._part(queue, held)
            self._used = self._used.plus(part).minus(self._beyond[queue])
            self._beyond[queue] = part

    def most(self, queue: str, capability: Resources) -> Resources:
        """The part of its capability that a queue may have now."""
        if not self._names:
            return capability
        others = self._used.minus(self._beyond[queue])
        left = self._free.raised(others.only(self._names)).minus(others)
        return capability.capped(left.plus(self._guarantees[queue].only(self._names)))

    def _part(self, queue: str, held: Resources) -> Resources:
        return held.only(self._names).beyond(self._guarantees[queue]) if self._names else NOTHING
