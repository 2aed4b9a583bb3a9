"""The most that sibling queues may hold beyond their guarantees.

Siblings share what none of them is guaranteed. So the most that a queue may have depends on what
the others hold: a queue that holds no more than its guarantee leaves the rest to them.
"""

from collections.abc import Callable, Mapping

from allotment.core.queues.resources import Resources, total_of


class Guarantees:
    """What sibling queues are guaranteed of a total, by queue, and what of it all of them share."""

    def __init__(self, total: Resources, guarantees: Mapping[str, Resources]) -> None:
        guaranteed = total_of(list(guarantees.values()))
        self.names = guaranteed.named
        self.by_queue = guarantees
        self.free = total.beyond(guaranteed).only(self.names)


class Unguaranteed:
    """What sibling queues share, and how much of it is in use. It has only resources that some
    queue is guaranteed; of others each queue may have everything.
    """

    def __init__(self, guarantees: Guarantees, held: Callable[[str], Resources]) -> None:
        """`held` returns what a queue holds now; it is not called where nothing is guaranteed."""
        self._guarantees = guarantees
        self._names = guarantees.names
        names = guarantees.by_queue if self._names else ()
        self._beyond = {name: self._part(name, held(name)) for name in names}
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
        left = self._guarantees.free.raised(others.only(self._names)).minus(others)
        own = self._guarantees.by_queue[queue].only(self._names)
        return capability.capped(left.plus(own))

    def _part(self, queue: str, held: Resources) -> Resources:
        return held.only(self._names).beyond(self._guarantees.by_queue[queue])
